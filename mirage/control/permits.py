"""Whether a submission may go out: what the limits say of all chains as they are stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirage.provisioner.limits import Usage, permit, refusal_pause
from mirage.provisioner.protection import protection

if TYPE_CHECKING:
    from mirage.domain.chain import ChainRecord
    from mirage.domain.job import Seconds
    from mirage.ports import ChainStore
    from mirage.provisioner.limits import Limits, Permit
    from mirage.provisioner.protection import Protection

_HOUR = 3_600


@dataclass(frozen=True, slots=True)
class Permits:
    """Reads the store anew for each question: between two of them a link may have been sent."""

    store: ChainStore
    limits: Limits

    def obtain(self, record: ChainRecord, now: Seconds) -> Permit:
        """Whether another link of this chain may be submitted."""
        records = self.store.load()
        links = [link for other in records for link in other.links]
        usage = Usage(
            live_links=sum(not link.final for link in links),
            submissions_last_hour=sum(link.planned > now - _HOUR for link in links),
            refusals=record.refusals,
            not_before=record.not_before,
            next_try=_next_try(protection(records, self.limits)),
        )
        return permit(now, usage, self.limits)

    def protection(self) -> Protection | None:
        """Protected mode, where it is on."""
        return protection(self.store.load(), self.limits)

    def next_try(self) -> Seconds:
        """The instant from which one submission may go out; 0 where none has to wait."""
        return _next_try(self.protection())

    def pause_after(self, refusals: int) -> Seconds:
        """How long a chain waits once Slurm has refused it so many times in a row."""
        return refusal_pause(refusals, self.limits)


def _next_try(protected: Protection | None) -> Seconds:
    return protected.next_try if protected is not None else 0
