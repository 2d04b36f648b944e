"""What the loop shows of itself: frozen after each cycle, read by any thread."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mirage.domain.heldjobs import HeldJobs
from mirage.domain.job import ABSENT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirage.domain.chain import ChainId, ChainRecord
    from mirage.domain.job import Seconds
    from mirage.domain.snapshot import Snapshot
    from mirage.provisioner.protection import Protection


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
    held: HeldJobs | None = field(init=False)
    """Held links of the snapshot; ``None``: links are submitted, not released."""

    def __post_init__(self) -> None:
        stock = self.snapshot.stock
        object.__setattr__(self, "held", None if stock is None else HeldJobs(stock))

    @property
    def stale_since(self) -> Seconds:
        """When the cluster last answered, where it does not answer now; else ``ABSENT``."""
        return self.snapshot.stale_since if self.snapshot.stale else ABSENT
