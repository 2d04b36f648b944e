"""Notification rules: compare the state of each cycle with the one before. No IO; used in the loop's thread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirage.domain.chain import ChainRecord, ChainStatus
from mirage.domain.journal import EntryKind, Notice, NoticeKind
from mirage.domain.link import NO_JOB
from mirage.domain.objective import total_saved
from mirage.provisioner import heldlinks
from mirage.provisioner.decide import hours

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirage.control.forecasts import ForecastLedger
    from mirage.control.status import Status
    from mirage.domain.chain import ChainId
    from mirage.domain.job import Seconds
    from mirage.domain.journal import Entry
    from mirage.domain.link import Link

_DAY = 86_400
_WEEK, _MONDAY = 7 * _DAY, 4 * _DAY
"""Seconds; the epoch was a Thursday."""
_SHORT = 900
"""Seconds. Shorter forecasts count as this long, against needless messages."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Thresholds of messages, in seconds."""

    gap: Seconds = 600
    unreachable: Seconds = 600
    late: float = 2.0
    """Factor: a link counts as stuck if it waits longer than this times the P90 of its forecast."""


@dataclass(frozen=True, slots=True)
class _Known:
    """A chain with facts that need a scan of all its links."""

    record: ChainRecord
    stopped: Link | None
    """The last link, if none runs after it."""
    waiting: Link | None

    @classmethod
    def of(cls, record: ChainRecord) -> _Known:
        return cls(record, record.stopped_running, None if record.over else record.waiting)


class NotificationRules:
    """Creates messages from changes after ``first``, the stored state.

    Messages about lasting conditions, an interruption or a late link, may repeat after a restart.
    """

    def __init__(self, first: Status, thresholds: Thresholds, ledger: ForecastLedger) -> None:
        self._last = first
        self._known = {record.chain.chain_id: _Known.of(record) for record in first.chains}
        self._thresholds = thresholds
        self._ledger = ledger
        self._commanded: set[ChainId] = set()
        self._gaps: dict[ChainId, int] = {}
        self._stuck: dict[ChainId, Seconds] = {}
        self._cut_off = False

    def hear(self, entry: Entry) -> None:
        """Note a journal entry: users get no message about their own commands."""
        if entry.kind is EntryKind.COMMAND and entry.chain is not None:
            self._commanded.add(entry.chain)

    def seen(self, status: Status) -> list[Notice]:
        """Return the messages about changes since the last call."""
        found = [*self._of_controller(status), *self._of_protection(status)]
        known = {}
        for record in status.chains:
            before = self._known.get(record.chain.chain_id) or _Known.of(ChainRecord(record.chain))
            now = before if before.record is record else _Known.of(record)
            if now is not before:
                found += self._of_change(before.record, record, status.time)
            found += self._of_lasting(now, status)
            found += self._of_week(now.record, status.time)
            known[record.chain.chain_id] = now
        self._last, self._known = status, known
        self._commanded.clear()
        for memory in (self._gaps, self._stuck):
            for gone in memory.keys() - self._known.keys():
                del memory[gone]
        return found

    def _of_controller(self, status: Status) -> Iterator[Notice]:
        if not status.snapshot.stale:
            if self._cut_off:
                self._cut_off = False
                yield Notice(NoticeKind.UNREACHABLE, status.time, "Slurm replies again", over=True)
        elif not self._cut_off and status.time - status.stale_since >= self._thresholds.unreachable:
            self._cut_off = True
            away = hours(status.time - status.stale_since)
            text = f"Slurm has not replied for {away}: Mirage decides nothing until it does"
            yield Notice(NoticeKind.UNREACHABLE, status.time, text)

    def _of_protection(self, status: Status) -> Iterator[Notice]:
        if status.protection is not None and self._last.protection is None:
            text = f"protected mode is on: {status.protection}; submissions are held except a periodic try"
            yield Notice(NoticeKind.PROTECTED, status.time, text)
        if status.protection is None and self._last.protection is not None:
            yield Notice(NoticeKind.PROTECTED, status.time, "protected mode is over", over=True)

    def _of_lasting(self, known: _Known, status: Status) -> Iterator[Notice]:
        """Return messages about interruptions, late links and missing held links."""
        time = status.time
        if known.stopped is not None:
            yield from self._of_gap(known.record, known.stopped, time)
        link = known.waiting
        if link is not None and (text := self._lateness(known.record, link, time)):
            yield from self._of_trouble(known.record, text, time, link.index)
        if text := heldlinks.shortage(known.record, status.held):
            yield from self._of_trouble(known.record, text, time)

    def _of_change(self, before: ChainRecord, now: ChainRecord, time: Seconds) -> Iterator[Notice]:
        had = {link.index for link in before.links if link.job_id != NO_JOB}
        for link in now.links:
            if link.job_id != NO_JOB and link.index not in had:
                text = f"link {link.index} is submitted as job {link.job_id}: {link.reason}"
                yield _about(now, NoticeKind.SUBMITTED, time, text, link.index)
        yield from self._of_handovers(before, now, time)
        if before.status is now.status or now.chain.chain_id in self._commanded:
            return
        if now.status is ChainStatus.DONE:
            yield _about(now, NoticeKind.DONE, time, f"the chain is done: {now.reason}")
        if now.status in (ChainStatus.PAUSED, ChainStatus.STOPPED):
            yield from self._of_trouble(now, f"the chain was {now.status} by Mirage: {now.reason}", time)

    def _of_handovers(self, before: ChainRecord, now: ChainRecord, time: Seconds) -> Iterator[Notice]:
        """Return messages about ended interruptions, also those that had no message before."""
        known = {link.index for link, _ in before.handovers()}
        for link, outcome in now.handovers():
            gap = hours(outcome.interruption)
            if link.index in known:
                continue
            if self._gaps.get(now.chain.chain_id) == link.index:
                del self._gaps[now.chain.chain_id]
                text = f"a link runs again after an interruption of {gap}"
                yield _about(now, NoticeKind.GAP, time, text, over=True)
            elif outcome.interruption > self._thresholds.gap:
                text = f"interruption of {gap} after link {link.index}"
                yield _about(now, NoticeKind.GAP, time, text, link.index, over=True)

    def _of_gap(self, now: ChainRecord, last: Link, time: Seconds) -> Iterator[Notice]:
        """Return one message when the interruption after a link is too long."""
        chain = now.chain.chain_id
        if last.index == self._gaps.get(chain) or time - last.end <= self._thresholds.gap:
            return
        self._gaps[chain] = last.index
        text = f"interruption: no link has run for {hours(time - last.end)}, since link {last.index} ended"
        yield _about(now, NoticeKind.GAP, time, text, last.index)

    def _lateness(self, record: ChainRecord, link: Link, time: Seconds) -> str:
        forecasts = self._ledger.of(record.chain.chain_id, link.index)
        if not forecasts or link.submit < 0:
            return ""
        forecast = next(iter(forecasts.values()))
        foreseen = forecast.at(0.9) - link.submit
        if time - link.submit <= self._thresholds.late * max(foreseen, _SHORT):
            return ""
        waited = hours(time - link.submit)
        return (
            f"link {link.index} has waited for {waited}; the forecast was at most "
            f"{hours(max(0.0, foreseen))} (P90)"
        )

    def _of_week(self, record: ChainRecord, time: Seconds) -> Iterator[Notice]:
        """Return one message at the end of a week with handovers."""
        end = (time - _MONDAY) // _WEEK * _WEEK + _MONDAY
        if not self._last.time < end <= time:
            return
        week = [each for _, each in record.handovers() if end - _WEEK <= each.successor_start < end]
        if not week:
            return
        lost = hours(sum(each.interruption for each in week))
        text = f"{len(week)} handover{'s' if len(week) != 1 else ''} in the last week, interruption {lost}"
        if saved := total_saved(week):
            more = "less" if saved.p50 < 0 else "more"
            text += (
                "; submitting each link at the end of its predecessor would have lost about "
                f"{hours(abs(saved.p50))} {more} (an estimate: {hours(saved.p10)} to {hours(saved.p90)})"
            )
        yield _about(record, NoticeKind.WEEK, time, text)

    def _of_trouble(self, record: ChainRecord, text: str, time: Seconds, link: int = 0) -> Iterator[Notice]:
        """Return at most one message per chain and day."""
        chain = record.chain.chain_id
        if not 0 <= time - self._stuck.get(chain, time - _DAY) < _DAY:
            self._stuck[chain] = time
            yield _about(record, NoticeKind.STUCK, time, text, link)


def _about(
    record: ChainRecord, kind: NoticeKind, time: Seconds, text: str, link: int = 0, *, over: bool = False
) -> Notice:
    chain = record.chain
    return Notice(kind, time, text, chain.chain_id, chain.name, chain.owner, link, over)
