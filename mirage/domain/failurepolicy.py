"""Reaction of a chain to a link that ends before its time."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from mirage.domain.job import Seconds  # noqa: TC001 (pydantic reads it)

_LONGEST_BACKOFF = 6 * 3_600


class FailureKind(StrEnum):
    """Kinds of a link's end before its time."""

    EXIT = "exit"
    """Its script failed: non-zero exit code, out of memory."""
    NODE = "node"
    """The cluster's doing: node or boot failure, preemption, a job that vanished."""
    CANCELLED = "cancelled"
    """Someone cancelled it, pending or running, and it was not Mirage."""


class FailureAction(StrEnum):
    """Reaction of a chain to a failed link."""

    CONTINUE = "continue"
    """Submit the next link immediately, however often."""
    RETRY = "retry"
    """Submit the next link after a pause that doubles, up to a number of failures in a row."""
    STOP = "stop"
    """End the chain; a link still pending is cancelled."""


@dataclass(frozen=True, slots=True)
class FailurePolicy:
    """Policy for one kind of failure."""

    recovery: FailureAction
    """The action that follows."""
    retries: int = 3
    """RETRY only: failures in a row that are still followed by another link."""
    backoff: Seconds = 60
    """RETRY only: pause before the first retry; doubles with each failure in a row, up to six hours."""

    def pause(self, failures: int) -> Seconds:
        """Seconds to wait after this many failures in a row (1 or more)."""
        if self.recovery is not FailureAction.RETRY:
            return 0
        return min(self.backoff << min(failures - 1, 16), max(self.backoff, _LONGEST_BACKOFF))

    def gives_up(self, failures: int) -> bool:
        """Whether this many failures in a row end the chain."""
        if self.recovery is FailureAction.STOP:
            return True
        return self.recovery is FailureAction.RETRY and failures > self.retries


@dataclass(frozen=True, slots=True)
class FailurePolicies:
    """One policy for each kind of failure."""

    exit: FailurePolicy = FailurePolicy(FailureAction.RETRY)
    """Policy after a failed script."""
    node: FailurePolicy = FailurePolicy(FailureAction.CONTINUE)
    """Policy after a failure of the cluster."""
    cancelled: FailurePolicy = FailurePolicy(FailureAction.STOP)
    """Policy after a cancellation by a user."""

    def of(self, kind: FailureKind) -> FailurePolicy:
        """Return the policy for one kind of failure; ``cancelled`` for all but exits and node failures."""
        return {FailureKind.EXIT: self.exit, FailureKind.NODE: self.node}.get(kind, self.cancelled)


USUAL = FailurePolicies()
"""Policy of a chain whose owner configures none."""
