"""Commands that end, fail, hang with children, or are not there."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from mirage.backends.execution import Commands
from mirage.domain.errors import ClusterUnavailable


def program(folder: Path, text: str) -> Commands:
    path = folder / "squeue"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return Commands({"PATH": f"{folder}:/usr/bin:/bin", "SLURM_CONF": "/etc/slurm/other.conf"}, timeout=1)


def runs(pid: int) -> bool:
    """Whether the process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_what_is_printed_and_how_it_ends(tmp_path: Path) -> None:
    answer = program(tmp_path, "echo out; echo err >&2; cat; exit 3").run(["squeue"], stdin=b"in\xff")
    assert (answer.status, answer.out, answer.err, answer.said) == (3, "out\nin\udcff", "err\n", "err")


def test_the_environment_is_the_clusters_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JWT", "secret")
    seen = program(tmp_path, "env").run(["squeue"]).out
    assert "SLURM_CONF=/etc/slurm/other.conf" in seen
    assert "SLURM_JWT" not in seen


def test_a_command_that_hangs_takes_its_children_with_it(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    commands = program(tmp_path, f"sleep 600 & echo $! >{pids}; echo $$ >>{pids}; wait")
    with pytest.raises(ClusterUnavailable, match="squeue: no answer within 1 s"):
        commands.run(["squeue"])
    left = [int(pid) for pid in pids.read_text().split()]
    for _ in range(100):  # the kernel needs a moment to bury them
        if not any(runs(pid) for pid in left):
            break
        time.sleep(0.05)
    assert [runs(pid) for pid in left] == [False, False]


def test_a_killed_command_says_so(tmp_path: Path) -> None:
    with pytest.raises(ClusterUnavailable, match="squeue: killed by SIGKILL"):
        program(tmp_path, "kill -9 $$").run(["squeue"])


def test_a_command_that_cannot_be_run_says_why(tmp_path: Path) -> None:
    commands = program(tmp_path, "")
    (tmp_path / "squeue").write_text("no program at all")
    with pytest.raises(ClusterUnavailable, match="squeue: cannot be run"):
        commands.run(["squeue"])


@pytest.mark.parametrize(
    ("folder", "entered"), [("a folder; with 'quotes'", True), ("not there", False), ("-", False)]
)
def test_a_command_works_in_the_folder_asked_for_where_there_is_one(
    tmp_path: Path, folder: str, entered: bool
) -> None:
    (tmp_path / "a folder; with 'quotes'").mkdir()
    asked = str(tmp_path / folder)
    answer = program(tmp_path, 'pwd; echo "$1"; env').run(["squeue", "--x"], folder=asked)
    place, argument, *environment = answer.out.splitlines()
    assert (place, argument, answer.status) == (asked if entered else "/", "--x", 0)
    assert not any(line.startswith(("OLDPWD", "PWD")) for line in environment if not line.endswith(place))
