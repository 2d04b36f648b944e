"""Chains whose own jobs look after them: no process of Mirage stays anywhere between two commands."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from training_script import PER_LINK, STEPS, TRAIN, steps_of
from user_shell import PATIENCE

if TYPE_CHECKING:
    from user_shell import Shell


def wait_for(path: Path, seconds: float = PATIENCE) -> None:
    limit = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < limit
        time.sleep(0.2)


def test_a_chain_looks_after_itself(shell: Shell) -> None:
    """Not even a command is typed between the submission and the end."""
    (shell.home / "train.sh").write_text(TRAIN)
    shell.type("mirage submit --controller job --done-file done train.sh")
    wait_for(shell.home / "done")
    done = steps_of(shell.home)
    assert [step for _, step in done] == list(range(1, STEPS + 1))
    assert len(list(itertools.groupby(job for job, _ in done))) == STEPS // PER_LINK
    shell.testbed.wait_until(lambda: shell.says("mirage chains -t all", "DONE"), PATIENCE, "its end")
    shell.testbed.wait_until(lambda: not shell.testbed.queue(), PATIENCE, "the last call")


def kill_job(job: str, conf: Path) -> None:
    """All its processes, as where its node loses power; a job of another testbed may have the same number."""
    marks = {f"SLURM_JOB_ID={job}".encode(), f"SLURM_CONF={conf}".encode()}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if marks <= set((process / "environ").read_bytes().split(b"\0")):
                os.kill(int(process.name), signal.SIGKILL)


def test_a_chain_goes_on_where_its_node_is_gone_and_no_job_runs(shell: Shell) -> None:
    """Its successor is bound to that node, and its controller went with it."""
    if not shell.testbed.privileged:
        pytest.skip("only root can take a node down")
    (shell.home / "train.sh").write_text(TRAIN)
    shell.type("mirage submit --controller job --done-file done train.sh")
    own = "squeue -h -n train -o '%T %i %N'"
    shell.testbed.wait_until(lambda: len(shell.type(own).split("\n")) > 2, PATIENCE, "the successor")
    shell.testbed.wait_until((shell.home / "steps").exists, PATIENCE, "the first step")
    (running,) = [line.split() for line in shell.type(own).splitlines() if "RUNNING" in line]
    _, job, node = running
    kill_job(job, shell.testbed.conf)
    shell.testbed.node(node, "down")
    try:
        limit = time.monotonic() + PATIENCE
        while len({job for job, _ in steps_of(shell.home)}) == 1:
            assert time.monotonic() < limit, shell.type("squeue -a")
            time.sleep(0.5)
    finally:
        shell.testbed.node(node, "resume")
    wait_for(shell.home / "done")
    assert [step for _, step in steps_of(shell.home)] == list(range(1, STEPS + 1))


def test_commands_read_and_change_a_chain_between_its_own_looks(shell: Shell) -> None:
    (shell.home / "sleep.sh").write_text("#!/bin/bash\n#SBATCH -J sleep -N1 -t 300\nsleep 99999\n")
    shell.type("mirage submit --controller job sleep.sh")
    shell.type("mirage submit -J other sleep.sh")  # the script is there, so no option is needed any more
    shown = shell.type("mirage chains -h").splitlines()
    assert len(shown) == 2, shown
    shell.type("mirage chain pause other")
    assert "PAUSED" in shell.type("mirage chains")
    shell.type("mirage chain resume other && mirage chain update sleep --links 3")
    assert "sleep" in shell.type("mirage explain sleep")
    shell.type("mirage chain cancel sleep other")
    shell.testbed.wait_until(lambda: not shell.testbed.queue(), PATIENCE, "the end of jobs and calls")
    assert shell.says("mirage chains -t all", "CANCELLED")
