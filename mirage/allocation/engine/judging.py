"""What an ending means for its task, when it may be retried, and what still fits into this link. Pure."""

from __future__ import annotations

import math
import signal
from typing import TYPE_CHECKING

from mirage.allocation.engine.entries import Result

if TYPE_CHECKING:
    from mirage.allocation.engine.entries import Stopping
    from mirage.allocation.engine.ledger import Ledger
    from mirage.allocation.engine.plan import Checkpoint, TaskSpec
    from mirage.allocation.engine.steps import Ending

MARGIN = 30.0
"""Seconds before the link's limit at which nothing of it shall run any more."""
HAD_IT_ALL = 0.9
"""A task that was cut off after so much of a link's length is not helped by another link."""
TO_END = "TERM"
"""The signal to a task that saves nothing."""

_KILL_AFTER = 10.0
"""Seconds that a task which saves nothing has between TERM and KILL."""
_TO_ITSELF = ("TERM", "INT", "HUP", "QUIT")
"""Signals that scripts send to their own group as they end (``kill 0``)."""
_FIRST_PAUSE = 10.0
_LONGEST_PAUSE = 600.0


def judge(
    ending: Ending, stopping: Stopping | None, nodes: tuple[str, ...], checkpoint: Checkpoint | None
) -> tuple[Result, str]:
    """What an ending is, and the sentence about it.

    A task that was told to save has saved whatever its exit code, and whoever told it (Slurm's ``--signal``
    without ``B:`` tells every step): programs differ in how they leave. If it had reached its end just then, its
    next attempt finds that out.
    """
    if stopping is not None and stopping.saves:
        return (Result.PREEMPTED if stopping.yields else Result.CHECKPOINTED), stopping.why
    if stopping is None and checkpoint is not None and _was_sent(checkpoint.signal, ending):
        return Result.CHECKPOINTED, f"{checkpoint.signal} came to it from outside, and it saves upon that"
    if ending.code == 0 and not (stopping is not None and TO_END in ending.heard):
        return Result.SUCCEEDED, ""
    if stopping is not None:
        return (Result.FAILED if stopping.fails else Result.CUT_OFF), stopping.why
    return _judge_failure(ending, nodes)


def _judge_failure(ending: Ending, nodes: tuple[str, ...]) -> tuple[Result, str]:
    """Whose doing it is that a task did not end well of which nobody here wanted anything."""
    if blamed := [node for node in ending.failed_nodes if node in nodes]:
        return Result.NODE_FAILED, f"node {blamed[0]} has failed"
    if ending.outside:
        return Result.CUT_OFF, ending.outside
    if by := next((name for name in ending.heard if _died_of(name, ending) and _was_sent(name, ending)), ""):
        return Result.CUT_OFF, f"killed by {by}, which came to all of its step"
    if not ending.began:
        return Result.REFUSED, ending.said or f"was not started: {_spelt(ending.code)}"
    return Result.FAILED, _spelt(ending.code)


def _was_sent(name: str, ending: Ending) -> bool:
    """Whether a signal came from another user. Some have two names."""
    name = signal.Signals[f"SIG{name}"].name.removeprefix("SIG")
    return name in ending.heard and (name not in _TO_ITSELF or bool(ending.outside))


def _died_of(name: str, ending: Ending) -> bool:
    return ending.code == 128 + signal.Signals[f"SIG{name}"]


def _spelt(code: int | None) -> str:
    if code is None:
        return "was killed with all that belongs to it"
    if 128 < code < 128 + signal.NSIG:
        names = {number.value: number.name for number in signal.Signals}
        return f"killed by {names.get(code - 128, f'signal {code - 128}')}"
    return f"exit code {code}"


def seconds_ran(start: float, began: float | None, now: float, stopping: Stopping | None, end: float) -> float:
    """Seconds that a link gave the task's command, at most until it was told to stop at once.

    Starting it may take long, and its end may be noticed late: Slurm does not answer at all times. ``start``: when
    it was asked for; ``began``: when the command began, ``None``: it did not; ``end``: the link's.
    """
    if began is None:
        return 0.0
    until = min(now, end, stopping.at if stopping is not None and not stopping.saves else now)
    return max(0.0, until - max(start, began))


def to_be_killed(stopping: Stopping | None, task: TaskSpec) -> float:
    """Until when one that was told to end may take, whoever has told it."""
    if stopping is None:
        return math.inf
    return stopping.at + (task.checkpoint.grace if task.checkpoint and stopping.saves else _KILL_AFTER)


def not_before(ledger: Ledger, task: str) -> float:
    """The time from which a task may be retried: pauses double with what went wrong in a row."""
    attempts = ledger.of(task)
    last = attempts[-1].ended if attempts else None
    if last is None or last.result not in (Result.FAILED, Result.REFUSED):
        return 0.0
    count = len(ledger.failures(task)) if last.result is Result.FAILED else len(ledger.refusals(task))
    return last.at + min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** (count - 1))


def fits_in(task: TaskSpec, ledger: Ledger, left: float) -> bool:
    """Whether starting it makes sense with so many seconds left of the link."""
    if task.checkpoint is not None:
        useful = min(remaining(task, ledger), 2 * MARGIN)
        return task.checkpoint.restart + useful + task.checkpoint.grace + MARGIN <= left
    return max(task.expected or 0.0, ledger.longest_cut(task.name)) + MARGIN < left


def is_hopeless(task: TaskSpec, ledger: Ledger, length: float) -> str:
    """Why no link will ever be long enough; empty where one may be."""
    longest = ledger.longest_cut(task.name)
    if task.checkpoint is not None or longest < HAD_IT_ALL * (length - MARGIN):
        return ""
    return (
        f"did not end within the {longest:g} s that a link could give it, and has no checkpoint to continue from"
    )


def remaining(task: TaskSpec, ledger: Ledger) -> float:
    """Seconds that are estimated to be left; infinite where nothing is known."""
    if task.expected is None:
        return float("inf")
    served = ledger.served(task.name) if task.checkpoint else 0.0
    return max(0.0, task.expected - served)
