"""``mirage submit --held-links``: links that are there, held, before their chain."""

from __future__ import annotations

import json
import socket
import threading
from typing import TYPE_CHECKING

import pytest
from api_world import world
from cli.submit_world import folder, submit

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    from api_world import World

__all__ = ["folder", "world"]


SBATCH = """\
#!/bin/sh
echo "sbatch: $MIRAGE_LINK after $MIRAGE_PREV_JOBID: $*" >>"$HOME/slurm.log"
echo "$MIRAGE_TASKS_STATE" >>"$HOME/states"
cat >/dev/null
[ "$MIRAGE_LINK" != "$REFUSED_LINK" ] || { echo "sbatch: error: QOSMaxSubmitJobPerUserLimit" >&2; exit 1; }
echo "10$MIRAGE_LINK"
"""
SCANCEL = """\
#!/bin/sh
echo "scancel: $*" >>"$HOME/slurm.log"
case $* in *"$KEPT") echo "scancel: error: Kill job error on job id $KEPT: Socket timed out" >&2; exit 1;; esac
"""


@pytest.fixture
def slurm(folder: Path) -> Path:
    """What the commands of a Slurm have been called with."""
    for name, text in (("sbatch", SBATCH), ("scancel", SCANCEL)):
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)
    return folder / "slurm.log"


def submit_held(folder: Path, socket: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """A chain with two held links."""
    settings = {"MIRAGE_SOCKET": str(socket), "KEPT": "none", "REFUSED_LINK": "none"} | variables
    return submit(folder, "--held-links=2", "--json", "train.sh", **settings)


def test_links_to_be_released_are_submitted_held_in_advance(folder: Path, slurm: Path, world: World) -> None:
    done = submit_held(folder, world.socket)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["held_jobs"] == [101, 102]
    first, second = slurm.read_text().splitlines()
    assert first.startswith("sbatch: 1 after :")
    assert second.startswith("sbatch: 2 after 101:")
    for index, line in ((1, first), (2, second)):
        assert "--hold" in line.split()
        assert f"--comment=mirage:{document['chain']['id']}:{index}" in line.split()


def test_every_link_is_told_where_its_tasks_state_is(folder: Path, slurm: Path, world: World) -> None:
    """Those too that are there before the daemon knows of their chain."""
    settings = {"MIRAGE_SOCKET": str(world.socket), "KEPT": "none", "REFUSED_LINK": "none"}
    done = submit(folder, "--tasks-state=tasks", "--held-links=2", "train.sh", **settings)
    assert done.returncode == 0, done.stderr
    assert (folder / "states").read_text().splitlines() == [f"{folder}/tasks"] * 2
    request = world.loop.records[0].chain.link_request(3)
    assert request.batch is not None
    assert dict(request.batch.environment)["MIRAGE_TASKS_STATE"] == f"{folder}/tasks"


REFUSAL = b'HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n{"detail": "no predictor xy"}'


def read_request(connected: socket.socket) -> None:
    """Head and body: a connection closed before all is read is reset."""
    with connected.makefile("rb") as stream:
        head = list(iter(stream.readline, b"\r\n"))
        stream.read(sum(int(line.split()[1]) for line in head if line.lower().startswith(b"content-length")))


@pytest.mark.parametrize(
    ("answer", "code", "words"), [(REFUSAL, 1, "no predictor xy"), (b"", 5, "before it answered")]
)
def test_held_links_are_there_before_their_chain_and_go_with_it(
    folder: Path, slurm: Path, answer: bytes, code: int, words: str
) -> None:
    seen: list[str] = []
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"{folder}/none.sock")
        listening.listen()

        def refuse() -> None:
            connected, _ = listening.accept()
            seen.extend(slurm.read_text().splitlines())
            read_request(connected)
            connected.sendall(answer)
            connected.close()

        thread = threading.Thread(target=refuse)
        thread.start()
        done = submit_held(folder, folder / "none.sock")
        thread.join()
    assert [line.split()[0] for line in seen] == ["sbatch:", "sbatch:"]
    assert (done.returncode, done.stdout) == (code, "")
    assert words in done.stderr
    assert "cancelled 2 held links" in done.stderr
    assert slurm.read_text().splitlines()[2:] == ["scancel: --verbose 101", "scancel: --verbose 102"]


def test_without_a_daemon_no_held_link_is_left(folder: Path, slurm: Path) -> None:
    done = submit_held(folder, folder / "none.sock")
    assert (done.returncode, done.stdout) == (5, "")
    acts = [line.split()[0] for line in slurm.read_text().splitlines()]
    assert acts == ["sbatch:", "sbatch:", "scancel:", "scancel:"]


def test_a_held_link_that_is_refused_takes_the_others_with_it(folder: Path, slurm: Path, world: World) -> None:
    done = submit_held(folder, world.socket, REFUSED_LINK="2")
    assert done.returncode == 1
    assert "QOSMaxSubmitJobPerUserLimit" in done.stderr
    assert "cancelled 1 held links" in done.stderr
    assert slurm.read_text().splitlines()[-1] == "scancel: --verbose 101"
    assert world.loop.records == []


def test_held_links_that_stay_are_named(folder: Path, slurm: Path) -> None:
    done = submit_held(folder, folder / "none.sock", KEPT="101")
    assert done.returncode == 5
    assert "job 101 could not be cancelled" in done.stderr
    assert "scancel 101\n" in done.stderr
    assert slurm.read_text().splitlines()[-1] == "scancel: --verbose 102"
