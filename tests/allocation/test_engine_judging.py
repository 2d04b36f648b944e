"""The meaning of a step's end: who caused it, and whether the completed work is kept."""

from __future__ import annotations

import pytest

from mirage.allocation.engine.entries import AttemptResult, Stopping
from mirage.allocation.engine.judging import judge
from mirage.allocation.engine.plan import Checkpoint
from mirage.allocation.engine.steps import Ending

SAVES = Checkpoint("USR1", 60, 0)
BY_TERM = Checkpoint("TERM", 60, 0)


def told(**more: bool) -> Stopping:
    return Stopping(0.0, "a", 1, "its link ends", **({"saves": False} | more))


def ending(code: int | None, *heard: str, outside: str = "") -> Ending:
    return Ending(code, began=True, heard=heard, outside=outside)


@pytest.mark.parametrize(
    ("how", "stopping", "checkpoint", "result"),
    [
        (ending(0), None, None, AttemptResult.SUCCEEDED),
        (ending(0), None, SAVES, AttemptResult.SUCCEEDED),
        (ending(3), told(saves=True), SAVES, AttemptResult.CHECKPOINTED),
        (ending(0, "USR1"), told(saves=True, yields=True), SAVES, AttemptResult.PREEMPTED),
        (ending(137), told(yields=True), SAVES, AttemptResult.CUT_OFF),
        # reported by another user
        (ending(0, "USR1"), None, SAVES, AttemptResult.CHECKPOINTED),
        (ending(1, "USR1"), None, SAVES, AttemptResult.CHECKPOINTED),
        (ending(0, "USR1"), None, None, AttemptResult.SUCCEEDED),
        (ending(138, "USR1"), None, None, AttemptResult.CUT_OFF),
        (ending(1, "USR1"), None, None, AttemptResult.FAILED),
        (ending(138), None, None, AttemptResult.FAILED),
        # scripts send these to themselves, unless the job is being ended
        (ending(0, "TERM"), None, BY_TERM, AttemptResult.SUCCEEDED),
        (ending(143, "TERM"), None, None, AttemptResult.FAILED),
        (ending(0, "TERM", outside="its job is being ended"), None, BY_TERM, AttemptResult.CHECKPOINTED),
        (ending(143, "TERM", outside="its job is being ended"), None, None, AttemptResult.CUT_OFF),
        # ended by us, it says 0: before the signal came, or because of it
        (ending(0), told(), None, AttemptResult.SUCCEEDED),
        (ending(0, "TERM"), told(), None, AttemptResult.CUT_OFF),
        (ending(0, "TERM"), told(fails=True), None, AttemptResult.FAILED),
    ],
)
def test_who_ended_it_and_what_is_kept(
    how: Ending, stopping: Stopping | None, checkpoint: Checkpoint | None, result: AttemptResult
) -> None:
    assert judge(how, stopping, ("n1",), checkpoint)[0] is result
