"""The log of Slurm's commands as the rounds of failures read it."""

from __future__ import annotations

import sys

import pytest
from slurm_testbed import PROGRAM

sys.path.insert(0, str(PROGRAM.parent))

from disorder.mishaps import Call
from disorder.rounds import blind

SBATCH = Call(9.0, 5.0, "sbatch", True, 77)


def poll(at: float, whole: bool, caller: int) -> Call:
    return Call(at, at - 0.5, "queue", whole, caller)


@pytest.mark.parametrize(
    ("polls", "reported"),
    [
        ([], 1),
        ([poll(1.0, True, 5)], 0),
        ([poll(1.0, True, 5), poll(2.0, False, 5)], 1),
        ([poll(1.0, False, 5), poll(2.0, True, 5)], 0),
        ([poll(1.0, True, 5), poll(2.0, False, 6)], 1),
        ([poll(1.0, False, 4), poll(2.0, True, 5), poll(3.0, False, 4)], 0),
        ([poll(1.0, True, 5), poll(6.0, False, 5)], 0),
        ([poll(1.0, False, 5), poll(6.0, True, 5)], 1),
    ],
)
def test_blind_submission_begins_after_a_poll_of_the_same_daemon_that_failed(
    polls: list[Call], reported: int
) -> None:
    assert len(list(blind([*polls, SBATCH]))) == reported
