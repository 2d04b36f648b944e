"""What one cycle did, its errors, and what the loop shows of itself.

The status is frozen after each cycle and read by any thread.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mirage.domain.errors import ClusterUnavailable, MirageError
from mirage.domain.job import ABSENT, NEVER
from mirage.domain.tags import HeldJobs
from mirage.domain.texts import storable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirage.domain.chain import ChainId, ChainRecord
    from mirage.domain.job import Seconds
    from mirage.domain.snapshot import Snapshot
    from mirage.provisioner.rejections import Protection

_LONGEST = 500
"""Characters: an error quotes what a user wrote, and it is shown in every cycle."""


@dataclass(frozen=True, slots=True)
class ChainFault:
    """An error in the turn of one chain, or in one command."""

    chain: ChainId | None
    """``None``: it concerns no single chain."""
    error: Exception

    @property
    def text(self) -> str:
        """The error in one line."""
        return error_text(self.error)


def error_text(error: Exception) -> str:
    """An error in one bounded line; one that was not raised on purpose is called a bug."""
    if isinstance(error, MirageError):
        return _cut(str(error))
    said = _cut(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
    return f"internal error (bug in Mirage): {said}; the daemon's log has the traceback"


def _cut(text: str) -> str:
    return storable(text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}...")


@dataclass(frozen=True, slots=True)
class Cycle:
    """What one cycle did."""

    sentence: str
    wake: Seconds
    """When the next cycle must come at the latest; ``NEVER``: any time."""
    deciding: bool
    """Whether some chain awaits a decision."""
    faults: tuple[ChainFault, ...] = ()
    """Errors of single chains and commands; the others had their turn all the same."""
    calm: bool = False
    """Whether the next poll may come later than usual, ``wake`` aside (``mirage.control.calm``)."""
    forecast: bool = False
    """Whether a forecast of the queue decides when some chain submits."""


def joined(cycles: list[Cycle], faults: list[ChainFault]) -> Cycle:
    """One cycle out of those of each chain, and of the errors of commands."""
    return Cycle(
        "; ".join(cycle.sentence for cycle in cycles) or "no chain needs attention",
        min((cycle.wake for cycle in cycles), default=NEVER),
        any(cycle.deciding for cycle in cycles),
        (*faults, *(fault for cycle in cycles for fault in cycle.faults)),
        calm=not faults and all(cycle.calm for cycle in cycles),
        forecast=any(cycle.forecast for cycle in cycles),
    )


def faultless(cycle: Cycle) -> Cycle:
    """The cycle. Raises the first error in it."""
    if cycle.faults:
        raise cycle.faults[0].error
    return cycle


@dataclass(frozen=True, slots=True)
class Status:
    """The state after one cycle."""

    time: Seconds
    """When the cycle began, on Slurm's clock."""
    sentence: str
    """What the cycle did."""
    snapshot: Snapshot
    chains: tuple[ChainRecord, ...] = ()
    """In order of creation, those that are over included."""
    explained: Mapping[ChainId, str] = field(default_factory=dict)
    """What the cycle did about each chain that it attended to."""
    cycles: int = 0
    """Cycles completed since the process began."""
    protection: Protection | None = None
    """Protected mode, where it is on."""
    files_unknown: Mapping[ChainId, str] = field(default_factory=dict)
    """Of which chains the done-file or the handover file cannot be checked, and why."""
    decided: Mapping[str, float] = field(default_factory=dict)
    """By owner: real seconds from the start of the cycle until the last of the owner's chains was decided."""
    asked: bool = True
    """Whether this process has polled the cluster: not as a standby, nor before its first cycle."""
    unready: frozenset[ChainId] = frozenset()
    """Chains whose links report when they are ready, and whose last running link has not."""
    problem: str = ""
    """Why the cycle failed, so that nothing is decided; empty: it did not."""
    held: HeldJobs | None = field(init=False)
    """Held links of the snapshot; ``None``: links are submitted, not released."""

    def __post_init__(self) -> None:
        stock = self.snapshot.stock
        object.__setattr__(self, "held", None if stock is None else HeldJobs(stock))

    def asking(self) -> Status:
        """The same status, marked as having polled the cluster."""
        return self if self.asked else replace(self, asked=True)

    def having(self, chains: tuple[ChainRecord, ...]) -> Status:
        """The same with the chains as they are stored now: what a command changed, within a cycle."""
        return replace(self, chains=chains)

    def check_asked(self) -> None:
        """Raise ``ClusterUnavailable`` where this process has not asked the cluster."""
        if not self.asked:
            raise ClusterUnavailable(f"this daemon has not polled the cluster: {self.sentence}")

    def explaining_all(self) -> Status:
        """The same, its sentence that of each chain that is not over."""
        waiting = (record for record in self.chains if record.live or not record.over)
        return replace(self, explained={record.chain.chain_id: self.sentence for record in waiting})

    def failing(self, problem: str) -> Status:
        """The same, after a cycle that failed: nothing is decided until one works again."""
        return replace(self, sentence=f"stands by: {problem}", problem=problem).explaining_all()

    @property
    def known_until(self) -> Seconds:
        """Time up to which the state of the cluster is known; durations are reported up to then."""
        return self.time if self.stale_since == ABSENT else self.stale_since

    @property
    def stale_since(self) -> Seconds:
        """When the cluster last answered, where it was asked and does not answer now; else ``ABSENT``."""
        return self.snapshot.stale_since if self.asked and self.snapshot.stale else ABSENT
