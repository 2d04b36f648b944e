"""Protected mode: Slurm rejects one chain after another, so nothing is submitted but one try periodically. Pure.

Nothing of it is stored next to the chains: a restart finds it as it was.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirage.slurm.rejections import concerns_others

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirage.domain.chain import ChainId, ChainRecord
    from mirage.domain.job import Seconds
    from mirage.provisioner.limits import Limits
    from mirage.provisioner.tally import Tally

FIRST_TRY = 300
"""Seconds from the rejection that begins it to the first try; after that they grow with the trouble's age."""
LONGEST_WAIT = 1_800
"""Seconds between two tries at most: a chain that could continue must not be kept waiting for long."""


@dataclass(frozen=True, slots=True)
class Protection:
    """State of the protected mode while it is on."""

    since: Seconds
    """Slurm has accepted nothing since the first of the counted rejections."""
    chains: int
    """Number of rejected chains."""
    next_try: Seconds
    """From this time on one of these chains may try; the next one waits for the result."""
    held: frozenset[ChainId] = frozenset()
    """The rejected chains. Others may submit: the first accepted link ends protected mode."""

    def next_try_of(self, record: ChainRecord) -> Seconds:
        """From when on this chain may try; 0: at any time."""
        return self.next_try if record.chain.chain_id in self.held else 0

    def __str__(self) -> str:
        """Return the text for the journal."""
        return f"Slurm has rejected {self.chains} chains in a row that it had accepted before"


def protection(tally: Tally, limits: Limits) -> Protection | None:
    """Protected mode, where these chains give cause for it; ``None``: all is well.

    A chain counts that Slurm had accepted before and rejects now: one that it never took is its owner's mistake.
    So is, most likely, what befalls one owner alone while others are served here too; and a limit, or what a
    partition does not give, concerns the chains alone that come up against it.
    """
    suspects = tally.suspects.values()
    if not limits.protect_after or len(suspects) < limits.protect_after:
        return None
    accepted = tally.last_accepted()
    refused = [record for record in suspects if record.refused > accepted and _may_lie_with_slurm(record)]
    if len(refused) < limits.protect_after or not _of_several(refused, tally):
        return None
    since = max(accepted, min(record.refused_since for record in refused))
    last = tally.last_attempt()
    next_try = last + min(max(last - since, FIRST_TRY), LONGEST_WAIT)
    return Protection(since, len(refused), next_try, frozenset(record.chain.chain_id for record in refused))


def _may_lie_with_slurm(record: ChainRecord) -> bool:
    return concerns_others(record.rejection.partition(":")[0])


def _of_several(refused: Iterable[ChainRecord], tally: Tally) -> bool:
    """Whether several owners are concerned, or there is but one."""
    served = sum(totals.not_over > 0 for totals in tally.owners.values())
    return len({record.chain.owner for record in refused}) >= min(2, served)
