"""Protected mode: Slurm refuses one chain after another, so nothing is submitted but one try now and then. Pure.

Nothing of it is stored beside the chains: a restart finds it as it was.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirage.domain.chain import NO_JOB, LinkState
from mirage.domain.job import ABSENT

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mirage.domain.chain import ChainRecord
    from mirage.domain.job import Seconds
    from mirage.provisioner.limits import Limits

FIRST_TRY = 300
"""Seconds from the refusal that begins it to the first try; after that they grow with the trouble's age."""
LONGEST_WAIT = 1_800
"""Seconds between two tries at most: a chain that could go on must not be kept waiting for long."""


@dataclass(frozen=True, slots=True)
class Protection:
    """Protected mode is on."""

    since: Seconds
    """Nothing has been accepted since the first of the refusals that count."""
    chains: int
    """How many were refused."""
    next_try: Seconds
    """From this instant on one submission may go out; the next ones wait for what becomes of it."""

    def __str__(self) -> str:
        """For the journal."""
        return f"Slurm has refused {self.chains} chains in a row, which it had accepted before"


def protection(records: Sequence[ChainRecord], limits: Limits) -> Protection | None:
    """Protected mode, where these chains give cause for it; ``None``: all is well.

    A chain counts that Slurm had accepted before and refuses now: one that it never took is its owner's mistake.
    So is, most likely, what befalls one owner alone while others are served here too.
    """
    suspects = [record for record in records if _had_worked(record)]
    if not limits.protect_after or len(suspects) < limits.protect_after:
        return None
    accepted = max(link.planned for record in records for link in record.links if link.job_id != NO_JOB)
    refused = [record for record in suspects if record.refused > accepted]
    if len(refused) < limits.protect_after or not _of_several(refused, records):
        return None
    since = max(accepted, min(record.refused_since for record in refused))
    last = _last_attempt(records)
    return Protection(since, len(refused), last + min(max(last - since, FIRST_TRY), LONGEST_WAIT))


def _had_worked(record: ChainRecord) -> bool:
    return not record.over and record.refused != ABSENT and any(link.job_id != NO_JOB for link in record.links)


def _of_several(refused: Iterable[ChainRecord], records: Iterable[ChainRecord]) -> bool:
    """Whether several owners are concerned, or there is but one."""
    served = {record.chain.owner for record in records if not record.over}
    return len({record.chain.owner for record in refused}) >= min(2, len(served))


def _last_attempt(records: Iterable[ChainRecord]) -> Seconds:
    """When something was last refused, or sent and not answered."""
    unanswered = LinkState.PLANNED
    return max(
        max(record.refused, *(link.planned for link in record.links[-1:] if link.state is unanswered), ABSENT)
        for record in records
    )
