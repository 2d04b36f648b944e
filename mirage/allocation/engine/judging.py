"""Decide what an ending means for its task, when a retry may start, and what still fits into this link. Pure."""

from __future__ import annotations

import math
import signal
from typing import TYPE_CHECKING

from mirage.allocation.engine.entries import AttemptResult

if TYPE_CHECKING:
    from mirage.allocation.engine.entries import Stopping
    from mirage.allocation.engine.plan import Checkpoint, TaskSpec
    from mirage.allocation.engine.steps import Ending
    from mirage.allocation.engine.task_states import TaskStates

MARGIN = 30.0
"""Seconds before the link's time limit by which all of its tasks must have ended."""
HAD_IT_ALL = 0.9
"""A task that was cut off after this share of a link's length is not helped by another link."""
TO_END = "TERM"
"""The signal to a task without a checkpoint."""

_KILL_AFTER = 10.0
"""Seconds between TERM and KILL for a task without a checkpoint."""
_TO_ITSELF = ("TERM", "INT", "HUP", "QUIT")
"""Signals that scripts send to their process group as they end (``kill 0``)."""
_FIRST_PAUSE = 10.0
_LONGEST_PAUSE = 600.0


def judge(
    ending: Ending, stopping: Stopping | None, nodes: tuple[str, ...], checkpoint: Checkpoint | None
) -> tuple[AttemptResult, str]:
    """Return the result of an ending and its reason.

    A task that was asked to save counts as checkpointed whatever its exit code, because programs differ in how
    they leave. Who sent the signal does not matter: Slurm's ``--signal`` without ``B:`` signals every step. If
    the task had just finished, its next attempt finds that out.
    """
    if stopping is not None and stopping.saves:
        return (AttemptResult.PREEMPTED if stopping.yields else AttemptResult.CHECKPOINTED), stopping.why
    if stopping is None and checkpoint is not None and _was_sent(checkpoint.signal, ending):
        return AttemptResult.CHECKPOINTED, f"received {checkpoint.signal} from outside, and saves upon that signal"
    if ending.code == 0 and not (stopping is not None and TO_END in ending.heard):
        return AttemptResult.SUCCEEDED, ""
    if stopping is not None:
        return (AttemptResult.FAILED if stopping.fails else AttemptResult.CUT_OFF), stopping.why
    return _judge_failure(ending, nodes)


def _judge_failure(ending: Ending, nodes: tuple[str, ...]) -> tuple[AttemptResult, str]:
    """Who is to blame for a task that failed without having been asked to end."""
    if blamed := [node for node in ending.failed_nodes if node in nodes]:
        return AttemptResult.NODE_FAILED, f"node {blamed[0]} has failed"
    if ending.outside:
        return AttemptResult.CUT_OFF, ending.outside
    if by := next((name for name in ending.heard if _died_of(name, ending) and _was_sent(name, ending)), ""):
        return AttemptResult.CUT_OFF, f"killed by {by}, which signalled its whole step"
    if not ending.began:
        return AttemptResult.REFUSED, ending.said or f"did not start: {_spelt(ending.code)}"
    return AttemptResult.FAILED, _spelt(ending.code)


def _was_sent(name: str, ending: Ending) -> bool:
    """Whether a signal came from outside the step. Some signals have two names."""
    name = signal.Signals[f"SIG{name}"].name.removeprefix("SIG")
    return name in ending.heard and (name not in _TO_ITSELF or bool(ending.outside))


def _died_of(name: str, ending: Ending) -> bool:
    return ending.code == 128 + signal.Signals[f"SIG{name}"]


def _spelt(code: int | None) -> str:
    if code is None:
        return "all of its processes were killed"
    if 128 < code < 128 + signal.NSIG:
        names = {number.value: number.name for number in signal.Signals}
        return f"killed by {names.get(code - 128, f'signal {code - 128}')}"
    return f"exit code {code}"


def seconds_ran(start: float, began: float | None, now: float, stopping: Stopping | None, end: float) -> float:
    """Seconds that a link gave the task's command, at most until it was asked to stop immediately.

    The start may take long, and the end may be noticed late, because Slurm does not answer at all times.
    ``start``: when the step was requested; ``began``: when the command began, or ``None``; ``end``: that of the
    link.
    """
    if began is None:
        return 0.0
    until = min(now, end, stopping.at if stopping is not None and not stopping.saves else now)
    return max(0.0, until - max(start, began))


def to_be_killed(stopping: Stopping | None, task: TaskSpec) -> float:
    """When to kill an attempt that was asked to end."""
    if stopping is None:
        return math.inf
    return stopping.at + (task.checkpoint.grace if task.checkpoint and stopping.saves else _KILL_AFTER)


def not_before(ledger: TaskStates, task: str) -> float:
    """The time from which a task may be retried: pauses double with each failure in a row."""
    attempts = ledger.of(task)
    last = attempts[-1].ended if attempts else None
    if last is None or last.result not in (AttemptResult.FAILED, AttemptResult.REFUSED):
        return 0.0
    count = len(ledger.failures(task)) if last.result is AttemptResult.FAILED else len(ledger.refusals(task))
    return last.at + min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** (count - 1))


def fits_in(task: TaskSpec, ledger: TaskStates, left: float) -> bool:
    """Whether starting it makes sense with this number of seconds left of the link."""
    if task.checkpoint is not None:
        useful = min(remaining(task, ledger), 2 * MARGIN)
        return task.checkpoint.restart + useful + task.checkpoint.grace + MARGIN <= left
    return max(task.expected or 0.0, ledger.longest_cut(task.name)) + MARGIN < left


def is_hopeless(task: TaskSpec, ledger: TaskStates, length: float) -> str:
    """Why no link can ever be long enough; empty where one may be."""
    longest = ledger.longest_cut(task.name)
    if task.checkpoint is not None or longest < HAD_IT_ALL * (length - MARGIN):
        return ""
    return f"did not end within the {longest:g} s that a link can give it, and has no checkpoint to continue from"


def remaining(task: TaskSpec, ledger: TaskStates) -> float:
    """Estimated seconds left; infinite where no estimate exists."""
    if task.expected is None:
        return float("inf")
    served = ledger.served(task.name) if task.checkpoint else 0.0
    return max(0.0, task.expected - served)
