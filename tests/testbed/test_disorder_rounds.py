"""What the rounds of faults make of the log of Slurm's commands."""

from __future__ import annotations

import sys

import pytest
from slurm_testbed import PROGRAM

sys.path.insert(0, str(PROGRAM.parent))

from disorder.mishaps import Call
from disorder.rounds import blind

SBATCH = Call(9.0, "sbatch", True, 77)


@pytest.mark.parametrize(
    ("looks", "told"),
    [
        ([Call(1.0, "queue", True, 5)], 0),
        ([Call(1.0, "queue", True, 5), Call(2.0, "queue", False, 5)], 1),
        ([Call(1.0, "queue", False, 5), Call(2.0, "queue", True, 5)], 0),
        ([Call(1.0, "queue", True, 5), Call(2.0, "queue", False, 6)], 1),
        ([Call(1.0, "queue", False, 4), Call(2.0, "queue", True, 5), Call(3.0, "queue", False, 4)], 0),
    ],
)
def test_blind_submission_follows_a_look_of_the_same_daemon_that_failed(looks: list[Call], told: int) -> None:
    assert len(list(blind([*looks, SBATCH]))) == told
