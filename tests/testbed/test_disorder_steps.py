"""How the rounds of failures judge what scripts themselves wrote, and when links ran."""

from __future__ import annotations

import sys

import pytest
from slurm_testbed import PROGRAM

sys.path.insert(0, str(PROGRAM.parent))

from disorder.steps import GOAL, judge_one_writer, judge_steps

WHOLE = [f"{step} {7 if step < 9 else 8} 1" for step in range(1, GOAL + 1)]


def faults(lines: list[str], *, done: bool = True) -> int:
    return len(list(judge_steps("c1", "".join(f"{line}\n" for line in lines), done=done)))


def test_judge_steps_whole_run_passes():
    assert faults(WHOLE) == 0
    assert faults(WHOLE[:5], done=False) == 0
    assert faults([], done=False) == 0


@pytest.mark.parametrize(
    "lines",
    [
        [*WHOLE[:9], WHOLE[8], *WHOLE[9:]],  # done twice
        [*WHOLE[:9], *WHOLE[10:]],  # lost
        WHOLE[1:],
        WHOLE[:-1],  # done, and not all of it
        [],
    ],
)
def test_judge_steps_lost_or_doubled_step_is_found(lines: list[str]):
    assert faults(lines) == 1


def test_judge_one_writer_finds_runs_that_overlap():
    assert not list(judge_one_writer("c1", [(8, 20, 30), (7, 10, 20), (8, 35, 40)]))
    assert len(list(judge_one_writer("c1", [(8, 19, 30), (7, 10, 20)]))) == 1
