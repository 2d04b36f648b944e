"""Chains whose own jobs look after them: no process of Mirage stays anywhere between two commands."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING

from user_shell import PATIENCE

if TYPE_CHECKING:
    from pathlib import Path

    from user_shell import Shell

STEPS, PER_LINK = 75, 15
TRAIN = """#!/bin/bash
#SBATCH -J train -N1 --exclusive -t 20 -o train-%j.log
#MIRAGE --handover none
step=$(cat step 2>/dev/null || echo 0)
while [ $step -lt {steps} ]; do
  step=$((step + 1)); sleep 60; echo $step >step; echo "$SLURM_JOB_ID $step" >>steps
  [ $((step % {per_link})) = 0 ] && [ $step -lt {steps} ] && exit 0
done
touch done
"""


def write_trainer(home: Path) -> None:
    (home / "train.sh").write_text(TRAIN.format(steps=STEPS, per_link=PER_LINK))


def steps_of(home: Path) -> list[tuple[str, int]]:
    lines = [line.split() for line in (home / "steps").read_text().splitlines()]
    return [(job, int(step)) for job, step in lines]


def wait_for(path: Path, seconds: float = PATIENCE) -> None:
    limit = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < limit
        time.sleep(0.2)


def test_a_chain_looks_after_itself(shell: Shell) -> None:
    """Not even a command is typed between the submission and the end."""
    write_trainer(shell.home)
    shell.type("mirage submit --controller job --done-file done train.sh")
    wait_for(shell.home / "done")
    done = steps_of(shell.home)
    assert [step for _, step in done] == list(range(1, STEPS + 1))
    assert len(list(itertools.groupby(job for job, _ in done))) == STEPS // PER_LINK
    shell.testbed.wait_until(lambda: shell.says("mirage chains -t all", "DONE"), PATIENCE, "its end")
    shell.testbed.wait_until(lambda: not shell.testbed.queue(), PATIENCE, "the last call")
