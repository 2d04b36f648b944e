"""Whether a submission may go out: what the limits say of all chains as they are counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirage.provisioner import rejections
from mirage.provisioner.events import LinkRefused
from mirage.provisioner.limits import Usage, permit
from mirage.provisioner.protection import protection
from mirage.provisioner.shares import shares
from mirage.slurm.rejections import is_permanent

if TYPE_CHECKING:
    from mirage.control.counted import CountedChains
    from mirage.domain.chain import ChainRecord
    from mirage.domain.errors import SubmissionRejected
    from mirage.domain.job import Seconds
    from mirage.domain.link import Link
    from mirage.provisioner.limits import Limits, Permit
    from mirage.provisioner.protection import Protection
    from mirage.provisioner.tally import Tally


@dataclass(slots=True)
class Permits:
    """Asks the tally, not the chains: what a permit costs does not grow with their number."""

    chains: CountedChains
    limits: Limits
    _known: tuple[tuple[Tally, int, Limits], Protection | None] | None = None
    """Whether protected mode is on, and the state for which that was computed."""

    def obtain(self, record: ChainRecord, now: Seconds) -> Permit:
        """Whether another link of this chain may be submitted."""
        tally, protected = self.chains.tally, self.protection()
        usage = Usage(
            live_links=tally.all.live_links,
            submissions_last_hour=tally.all.submissions,
            not_before=record.not_before,
            failures=record.failures,
            next_try=protected.next_try_of(record) if protected is not None else 0,
            shares=shares(tally, record, self.limits),
        )
        return permit(now, usage, self.limits)

    def protection(self) -> Protection | None:
        """Protected mode, where it is on."""
        tally = self.chains.tally
        state = (tally, tally.version, self.limits)
        if self._known is None or self._known[0] != state:
            self._known = state, protection(tally, self.limits)
        return self._known[1]

    def next_try(self) -> Seconds:
        """The time from which one submission may go out; 0 where none has to wait."""
        return _next_try(self.protection())

    def back_end_lost(self, record: ChainRecord, link: Link, error: str, now: Seconds) -> ChainRecord:
        """Return the record after a submission that ended the backend; paused if the chain caused it."""
        return rejections.back_end_lost(record, link, error, self.chains.tally.last_accepted(), now)

    def rejected(self, record: ChainRecord, index: int, error: SubmissionRejected) -> LinkRefused:
        """What follows from Slurm's rejection of a link.

        A try in protected mode is for all chains: its rejection is not the chain's own.
        """
        own, permanent = self.protection() is None, is_permanent(error.reason)
        return LinkRefused(
            index,
            str(error),
            rejections.retry_pause(record.refusals + 1, self.limits),
            counts=own,
            permanent=permanent,
            pauses=own and permanent and rejections.pauses(record, self.limits),
        )


def _next_try(protected: Protection | None) -> Seconds:
    return protected.next_try if protected is not None else 0
