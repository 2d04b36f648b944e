"""Whose turn it is: when a chain falls due, which is decided next, and whether its submission may go out.

One owner may take a part of a cycle's time only; the limits count all chains.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirage.domain.job import NEVER
from mirage.domain.link import LinkState
from mirage.provisioner import handover, rejections
from mirage.provisioner.events import LinkRejected
from mirage.provisioner.limits import Usage, in_turn, permit, shares
from mirage.provisioner.rejections import protection
from mirage.provisioner.steering import ends_early
from mirage.slurm.error_messages import is_permanent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from mirage.control.stores import CountedChains
    from mirage.domain.chain import ChainId, ChainRecord
    from mirage.domain.errors import SubmissionRejected
    from mirage.domain.job import Seconds
    from mirage.domain.link import Link
    from mirage.provisioner.limits import Limits, Permit
    from mirage.provisioner.rejections import Protection
    from mirage.provisioner.tally import Tally


def next_due(record: ChainRecord, now: Seconds, settle: Seconds) -> Seconds:
    """The next time at which something is due: the head's end, a back-off, a search, a handover."""
    end = record.head.end if record.head else NEVER
    released = end - ends_early(record) - record.chain.release_lead
    due = [record.not_before, end, released, handover.next_instant(record, now)]
    planned = [link for link in record.links if link.state is LinkState.PLANNED]
    due += [rejections.sent_again(link, settle) for link in planned]
    return min((time for time in due if time > now), default=NEVER)


class Turns:
    """Shares the decision time of a cycle among the owners: what one leaves, another may take.

    A chain beyond its owner's share is left to a later cycle; among an owner's chains the one decided longest ago
    comes first. At least one chain of each owner is decided in each cycle. Without a bound no time is measured:
    replays depend on none.
    """

    def __init__(self, seconds: float | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        """``seconds``: real time for the decisions of all owners in one cycle; ``None``: no bound."""
        self.seconds = seconds
        self._clock = clock if seconds is not None else float
        self._began = 0.0
        self._spent: dict[str, float] = {}
        self._cycle = 0
        self._last: dict[ChainId, int] = {}
        """In which cycle each chain was decided last."""
        self.decided: dict[str, float] = {}
        """By owner: real seconds from the start of the cycle until the last of the owner's chains was decided."""

    def begin_cycle(self) -> None:
        """The time of ``decided`` runs from now on."""
        self._began = self._clock()
        self._cycle += 1

    def attend(self, records: Iterable[ChainRecord]) -> Iterator[tuple[ChainRecord, bool]]:
        """Each record, and whether it is to be decided in this cycle; done when the next one is asked for."""
        order = self._in_order(in_turn(records, self._spent))
        chains = Counter(record.chain.owner for record in order)
        owners, unfinished, used = len(chains), len(chains), 0.0
        self._spent, self.decided = dict.fromkeys(chains, 0.0), {}
        self._last = {each.chain.chain_id: self._last.get(each.chain.chain_id, 0) for each in order}
        for record in order:
            owner, began = record.chain.owner, self._clock()
            granted = self._granted(owner, used, owners, unfinished)
            yield record, granted
            ended = self._clock()
            used += ended - began
            self._spent[owner] += ended - began
            chains[owner] -= 1
            unfinished -= not chains[owner]
            if granted and self.seconds is not None:
                self._last[record.chain.chain_id] = self._cycle
                self.decided[owner] = ended - self._began

    def _granted(self, owner: str, used: float, owners: int, unfinished: int) -> bool:
        """Whether the owner is within its share, or no unfinished owner would lose its share."""
        if self.seconds is None:
            return True
        share = self.seconds / owners
        return self._spent[owner] < share or used < self.seconds - share * (unfinished - 1)

    def _in_order(self, order: Sequence[ChainRecord]) -> list[ChainRecord]:
        """Each owner keeps its places, and fills them with the chains first that were decided longest ago."""
        own: defaultdict[str, list[ChainRecord]] = defaultdict(list)
        for record in order:
            own[record.chain.owner].append(record)
        following = {
            owner: iter(sorted(records, key=lambda record: self._last.get(record.chain.chain_id, 0)))
            for owner, records in own.items()
        }
        return [next(following[record.chain.owner]) for record in order]


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

    def rejected(self, record: ChainRecord, index: int, error: SubmissionRejected) -> LinkRejected:
        """What follows from Slurm's rejection of a link.

        A try in protected mode is for all chains: its rejection is not the chain's own.
        """
        own, permanent = self.protection() is None, is_permanent(error.reason)
        return LinkRejected(
            index,
            str(error),
            rejections.retry_pause(record.refusals + 1, self.limits),
            counts=own,
            permanent=permanent,
            pauses=own and permanent and rejections.pauses(record, self.limits),
        )


def _next_try(protected: Protection | None) -> Seconds:
    return protected.next_try if protected is not None else 0
