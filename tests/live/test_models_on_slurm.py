"""Models of the four plugins on a real Slurm: each active for a chain, each shadow of the others.

The daemon's Python has what ``mirage-slurm[onnx]`` and the plugins declare, and none of the libraries of training.
"""

from __future__ import annotations

import getpass
import json
import os
import re
import subprocess
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from lean_python import lean_python
from small_models import LIMIT, PARTITION, train_models

from mirage.backends.execution import CommandRunner
from mirage.bootstrap.backends import described_by_slurm
from mirage.domain.chain import Chain, ChainId, ChainRecord, DoneCondition
from mirage.domain.decision import ActionScores, WaitForecast
from mirage.domain.job import BatchScript, JobRequest
from mirage.domain.journal import Entry, EntryKind
from mirage.store.opening import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from slurm_testbed import Testbed

torch = pytest.importorskip("torch")
for _library in ("stable_baselines3", "gymnasium", "sklearn", "xgboost", "onnx"):
    pytest.importorskip(_library)

PREDICTORS = ("random-forest", "xgboost", "dqn", "policy-gradient")
TRAINING_ONLY = ("torch", "stable_baselines3", "gymnasium", "sklearn", "xgboost", "onnx", "mirage_encoders")
PATIENCE = 300.0
DAY = 86_400


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python environment of the daemon."""
    wanted = ("mirage-slurm[onnx]", *(f"mirage-{name}" for name in PREDICTORS))
    return lean_python(tmp_path_factory.mktemp("lean") / "venv", wanted)


@pytest.fixture
def models(testbed: Testbed, tmp_path: Path) -> dict[str, Path]:
    """Trained for the testbed as it describes itself; one thread, since others use this machine too."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        cluster = described_by_slurm("", CommandRunner(testbed.plain_environment()))
        return train_models(cluster, int(testbed.now()) - 9 * DAY, tmp_path)
    finally:
        torch.set_num_threads(threads)


class Site:
    """A daemon with a chain for each model."""

    def __init__(self, python: Path, testbed: Testbed, models: dict[str, Path], folder: Path) -> None:
        self.python, self.testbed, self.folder = python, testbed, folder
        self.names = {plugin: f"{plugin}:{model}" for plugin, model in models.items()}
        self.config = folder / "mirage.toml"
        folder.mkdir(mode=0o700)
        self.config.write_text(
            f'[service]\nstate = "{folder}"\nruntime = "{folder}"\n'
            f'[cluster]\nslurm_conf = "{testbed.conf}"\nclock = "{testbed.clock}"\n'
            f'[loop]\npredictor = "reactive"\nshadows = {json.dumps(list(self.names.values()))}\nsettle = "5s"\n'
            "budget = 60\n[limits]\nsubmissions_per_hour = 0\nsubmissions_per_hour_per_user = 0\n"
            "[store]\nhistory = 0\n[api]\nenabled = false\n"
        )

    def mirage(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        argv = [str(self.python), "-m", "mirage", *arguments]
        return subprocess.run(argv, capture_output=True, text=True, check=False, cwd="/", env=self.environment())

    def start_daemon(self) -> subprocess.Popen[bytes]:
        argv = [str(self.python), "-m", "mirage", "daemon", "--config", str(self.config)]
        return subprocess.Popen(argv, cwd="/", env=self.environment())

    def environment(self) -> dict[str, str]:
        """Without ``PYTHONPATH``: nothing of ours but what is installed."""
        return {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}

    def add_chains(self) -> None:
        user, directory = getpass.getuser(), str(self.folder.parent)
        batch = BatchScript("#!/bin/sh\nexec sleep 100h\n", (), (("PATH", os.environ["PATH"]),), directory)
        request = JobRequest("svc", user, LIMIT, partition=PARTITION, batch=batch)
        done = DoneCondition(exit_code=None, links=2)
        store = open_store(f"sqlite:///{self.folder}/mirage.db")
        for plugin, name in self.names.items():
            store.chains.save(ChainRecord(Chain(ChainId(plugin), plugin, user, request, done, predictor=name)))
        store.close()

    def records(self) -> dict[str, ChainRecord]:
        store = open_store(f"sqlite:///{self.folder}/mirage.db")
        found = {record.chain.chain_id: record for record in store.chains.load()}
        store.close()
        return dict(found)

    def entries(self, *kinds: EntryKind) -> list[Entry]:
        """Oldest first."""
        store = open_store(f"sqlite:///{self.folder}/mirage.db")
        lines = store.journal.read(kinds=kinds, limit=100_000)
        store.close()
        return [line.entry for line in reversed(lines)]


@pytest.fixture
def site(python: Path, testbed: Testbed, models: dict[str, Path], tmp_path: Path) -> Iterator[Site]:
    """Its daemon runs, each chain has its first link, and others request all nodes."""
    made = Site(python, testbed, models, tmp_path / "state")
    made.add_chains()
    daemon = made.start_daemon()
    try:
        testbed.wait_until(lambda: all(_running(r) for r in made.records().values()), PATIENCE, "first links")
        crowd(testbed, 8)
        yield made
        assert daemon.poll() is None, "the daemon has ended before its time"
    finally:
        daemon.terminate()
        assert daemon.wait(PATIENCE) == 0


def _running(record: ChainRecord) -> bool:
    return any(link.start > 0 for link in record.links)


def crowd(testbed: Testbed, jobs: int) -> None:
    """This number of jobs that take whole nodes, and that any other job precedes."""
    submit = [
        "sbatch",
        "-p",
        PARTITION,
        "--exclusive",
        "-t45",
        "--nice=100000",
        "-o/dev/null",
        "--wrap=sleep 1200",
    ]
    for _ in range(jobs):
        testbed.run(testbed.users[0], [*submit, "--wrap=sleep 1200"])


def test_each_is_in_charge_of_a_hand_over_and_in_shadow_of_the_others(site: Site) -> None:
    site.testbed.wait_until(
        lambda: all(record.handovers() for record in site.records().values()),
        PATIENCE,
        "a handover of each chain",
    )
    by_itself = {(entry.kind, entry.chain, entry.predictor) for entry in forecasts(site)}
    for plugin, name in site.names.items():
        assert (EntryKind.DECISION, plugin, name) in by_itself
        others = set(site.names) - {plugin}
        assert {(EntryKind.SHADOW, other, name) for other in others} <= by_itself
        assert_handed_over(site, plugin, name)
    assert_compared(site)


def forecasts(site: Site) -> list[Entry]:
    """The predictions and their predictors; each has the form of its plugin's models."""
    found = [entry for entry in site.entries(EntryKind.DECISION, EntryKind.SHADOW) if entry.prediction is not None]
    for entry in found:
        of_waits = entry.predictor.startswith(("random-forest", "xgboost"))
        if entry.predictor in site.names.values():
            assert isinstance(entry.prediction, WaitForecast if of_waits else ActionScores), entry
    return found


def assert_handed_over(site: Site, plugin: str, name: str) -> None:
    """By the model's own word; the second link ran.

    A network trained for seconds may find that holding is best until the end of the first link, which is then what
    the daemon has to do; the models of waits submit before.
    """
    decisions = [entry for entry in site.entries(EntryKind.DECISION) if entry.chain == plugin and entry.link == 2]
    asked = [entry for entry in decisions if entry.prediction is not None]
    submitted = next(entry for entry in decisions if entry.text.startswith("submit"))
    record = site.records()[plugin]
    _, second = record.links
    assert asked
    assert {entry.predictor for entry in asked} == {name}
    for entry in asked:
        if isinstance(scores := entry.prediction, ActionScores):
            assert entry.text.startswith("submit") == (scores.submit >= scores.hold), entry.text
    if submitted not in asked:
        assert isinstance(asked[-1].prediction, ActionScores), submitted.text
        assert submitted.text == "submit: the predecessor has ended"  # by its limit: Slurm takes a little longer
    assert second.start > 0
    assert [later.index - earlier.index for earlier, later in pairwise(record.links)] == [1]


def assert_compared(site: Site) -> None:
    """``mirage models shadow``, in the daemon's own Python."""
    done = site.mirage("models", "shadow", "--config", str(site.config), "--json")
    assert done.returncode == 0, done.stderr
    rows: dict[str, dict[str, Any]] = {row["predictor"]: row for row in json.loads(done.stdout)["predictors"]}
    for plugin, name in site.names.items():
        assert rows[name]["handovers"] > 0, rows
        assert rows[name]["in_charge"], rows
        assert (rows[name]["forecasts"] > 0) == (plugin in {"random-forest", "xgboost"})


@pytest.mark.parametrize("library", TRAINING_ONLY)
def test_the_daemons_python_has_nothing_of_training(python: Path, library: str) -> None:
    done = subprocess.run(
        [python, "-c", f"import {library}"], capture_output=True, text=True, check=False, cwd="/"
    )
    assert f"No module named '{library}'" in done.stderr


@pytest.mark.parametrize("plugin", PREDICTORS)
def test_training_there_says_what_to_install(python: Path, plugin: str) -> None:
    span = ("--start", "2025-01-07", "--end", "2025-01-13")
    argv = ("train", plugin, "--trace", "generated:demo:1", "--cluster", "demo", *span, "-o", "/nowhere/model")
    done = subprocess.run([python, "-m", "mirage", *argv], capture_output=True, text=True, check=False, cwd="/")
    assert done.returncode == 1
    assert re.search(r"pip install 'mirage-\S+\[train\]'", done.stderr), done.stderr
