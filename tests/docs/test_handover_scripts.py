"""The scripts of the documents lose nothing: warned, killed, replaced while a client sends requests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.request
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PATIENCE = 120.0
"""Seconds after which a test fails; nothing is asserted of them."""


class Batch:
    """Scripts of a directory, run as slurmstepd runs a batch script."""

    def __init__(self, folder: Path, examples: Path) -> None:
        self.folder = folder
        self.running: list[subprocess.Popen[bytes]] = []
        for name in ("train.sh", "train.py", "serve.sh", "serve.py"):
            (folder / name).write_bytes((examples / name).read_bytes())

    def start(self, script: str, **environment: str) -> subprocess.Popen[bytes]:
        with self._log(len(self.running)).open("wb") as log:
            command = ["bash", script]
            process = subprocess.Popen(command, cwd=self.folder, env=os.environ | environment, stdout=log)
        self.running.append(process)
        return process

    def said(self, process: subprocess.Popen[bytes]) -> list[str]:
        return self._log(self.running.index(process)).read_text().splitlines()

    def checkpoint(self) -> int:
        return int(json.loads((self.folder / "checkpoint.json").read_text())["step"])

    def _log(self, index: int) -> Path:
        return self.folder / f"said-{index}"


def wait_for(holds: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, f"{what} never came"
        time.sleep(0.01)


@pytest.fixture
def batch(tmp_path: Path, root: Path) -> Iterator[Batch]:
    batch = Batch(tmp_path, root / "docs" / "examples")
    yield batch
    for process in batch.running:
        process.kill()
        process.wait()


def test_undisturbed_it_runs_to_its_end(batch: Batch) -> None:
    run = batch.start("train.sh", SECONDS_A_STEP="0")
    assert (run.wait(), batch.checkpoint()) == (0, 30)
    assert batch.said(run) == ["link - continues from step 0", "done"]


def test_what_is_warned_saves_and_the_next_goes_on_from_there(batch: Batch) -> None:
    first = batch.start("train.sh", SECONDS_A_STEP="0.2", MIRAGE_LINK="1")
    wait_for(lambda: batch.said(first), "its first word, after which it minds the signal")
    first.send_signal(signal.SIGUSR1)
    assert first.wait() == 0
    saved = batch.checkpoint()
    assert 1 <= saved < 30
    assert batch.said(first) == ["link 1 continues from step 0", f"saved at step {saved}"]
    second = batch.start("train.sh", SECONDS_A_STEP="0", MIRAGE_LINK="2")
    assert second.wait() == 0
    assert batch.said(second) == [f"link 2 continues from step {saved}", "done"]
    assert batch.checkpoint() == 30


def test_what_is_killed_has_a_whole_checkpoint_of_at_most_five_steps_ago(batch: Batch) -> None:
    run = batch.start("train.sh", SECONDS_A_STEP="0.05")
    wait_for((batch.folder / "checkpoint.json").exists, "a checkpoint")
    run.kill()
    run.wait()
    saved = batch.checkpoint()
    assert saved % 5 == 0
    second = batch.start("train.sh", SECONDS_A_STEP="0")
    assert second.wait() == 0
    assert batch.said(second) == [f"link - continues from step {saved}", "done"]


def test_a_server_takes_over_when_it_is_ready_and_makes_way_when_told(batch: Batch) -> None:
    endpoint, ready = batch.folder / "endpoint", [batch.folder / "ready" / name for name in "12"]

    def serve(link: int) -> subprocess.Popen[bytes]:
        told = {"MIRAGE_LINK": str(link), "MIRAGE_HANDOVER_FILE": str(ready[link - 1])}
        return batch.start("serve.sh", SECONDS_TO_LOAD="0.2", **told)

    def answer() -> str:
        address = endpoint.read_text().replace(os.uname().nodename, "127.0.0.1")
        with urllib.request.urlopen(address, timeout=PATIENCE) as answered:
            return str(answered.read().decode())

    first = serve(1)
    wait_for(ready[0].exists, "the first link")
    assert answer() == "link 1\n"
    before = endpoint.read_text()
    second = serve(2)
    wait_for(ready[1].exists, "the second link")
    assert endpoint.read_text() != before
    assert answer() == "link 2\n"
    first.send_signal(signal.SIGTERM)
    assert first.wait() == 0
    assert batch.said(first) == ["link 1 answers", "drained"]
    assert answer() == "link 2\n"
    second.send_signal(signal.SIGTERM)
    assert second.wait() == 0


@pytest.mark.parametrize("name", ["train.sh", "serve.sh", "train.py", "serve.py"])
def test_the_document_shows_what_lies_in_the_folder(root: Path, name: str) -> None:
    text = (root / "docs/handover.md").read_text()
    script = (root / "docs/examples" / name).read_text()
    shown = text.partition(f"[{name}](examples/{name})")[2].split("```")[1].partition("\n")[2]
    assert shown in script
    assert shown == script or name.endswith(".py")
