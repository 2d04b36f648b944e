"""What the loop does on the cluster: submit, cancel, make way, hold back. Intent is stored before the act."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mirage.domain.chain import NO_JOB, HandoverPolicy
from mirage.domain.errors import ClusterUnavailable, NotPermitted, SubmissionRejected, UnknownJob
from mirage.domain.journal import Entry, EntryKind
from mirage.provisioner import handover, machine, steering
from mirage.provisioner.events import LinkRefused, LinkRetired, LinkSubmitted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirage.control.permits import Permits
    from mirage.domain.chain import ChainRecord, Link
    from mirage.domain.job import Job, JobId, Seconds
    from mirage.ports import Actuator, ChainStore, Files, Journal

_REFUSED = (ClusterUnavailable, NotPermitted, UnknownJob)


@dataclass(frozen=True, slots=True)
class Act:
    """What came of an attempt."""

    text: str
    done: bool


@dataclass(frozen=True, slots=True)
class Hands:
    """Carries out what was decided; whatever fails is said in the journal and tried again by a later cycle."""

    actuator: Actuator
    store: ChainStore
    journal: Journal
    files: Files
    permits: Permits

    def send(self, record: ChainRecord, link: Link, now: Seconds, behind: Job | None = None) -> Act:
        """Submit a planned link. The intent is stored first: whatever happens next, the tag finds the job.

        ``behind``: it goes into the queue held back, to be let go as this predecessor's end comes near.
        """
        record = record.with_link(replace(link, planned=now))
        self.store.save(record)
        request = record.chain.link_request(link.index, _previous_job(record, link))
        if behind is not None:
            request = steering.bid(request, record.chain.steering, behind)
        try:
            job_id = self.actuator.submit(request)
        except SubmissionRejected as error:
            return self._refused(record, link, str(error), now)
        except NotPermitted as error:
            return self._unable(record, link, str(error), now)
        except ClusterUnavailable as error:
            return self._trouble(record, now, f"link {link.index} may not have reached the cluster: {error}")
        held = ", held back" if behind is not None else ""
        text = f"submitted link {link.index} as job {job_id}{held}: {link.reason}"
        record = machine.apply(record, LinkSubmitted(link.index, job_id, now), now)
        self.store.save(record, told(record, now, EntryKind.ACTION, text, link.index))
        return Act(text, done=True)

    def cancel_leftovers(self, record: ChainRecord, now: Seconds) -> None:
        """Cancel what has no business on the cluster any more; asked again until a snapshot shows it gone."""
        for link in machine.to_cancel(record):
            self._cancel(record, link, now)

    def cancel_stock(self, record: ChainRecord, stock: Iterable[Job], now: Seconds) -> None:
        """Cancel what a chain that is over will never ask for; asked again until a snapshot shows it gone."""
        for job in stock:
            if record.chain.bears(job.tag) and job.user == record.chain.owner:
                self._cancel_job(record, job, now)

    def make_way(self, record: ChainRecord, now: Seconds) -> ChainRecord:
        """Tell predecessors to end, and end those whose grace is over; the record with what was told."""
        for link in handover.surplus(record):
            record = self._retire(record, link, "it was requeued after a later link", now)
        for link in handover.to_retire(record, self._is_ready(record), now):
            record = self._tell(record, link, now)
        for link in handover.to_end(record, now):
            if link.job_id != NO_JOB:
                self._cancel(record, link, now)
        return record

    def steer(self, record: ChainRecord, job: Job, predecessor: Job | None, now: Seconds, *, back: bool) -> Act:
        """Hold a pending link back or let it go."""
        chain = record.chain
        change = steering.change(chain, predecessor, back=back)
        verb = "held back" if back else "let go"
        try:
            self.actuator.update(job.job_id, chain.owner, change)
        except _REFUSED as error:
            return self._trouble(record, now, f"job {job.job_id} could not be {verb}: {error}")
        text = f"job {job.job_id} {verb}"
        self.write(record, now, EntryKind.ACTION, text)
        return Act(text, done=True)

    def write(self, record: ChainRecord | None, now: Seconds, kind: EntryKind, text: str, link: int = 0) -> None:
        """One line of the journal."""
        self.journal.write(told(record, now, kind, text, link))

    def _is_ready(self, record: ChainRecord) -> bool:
        heir = handover.successor(record)
        if heir is None or record.chain.handover.policy is not HandoverPolicy.WHEN_READY:
            return False
        path = record.chain.handover_file(heir.index)
        return bool(path) and self.files.exists(path)

    def _tell(self, record: ChainRecord, link: Link, now: Seconds) -> ChainRecord:
        """Signal a predecessor, then store it: a checkpoint asked for twice beats one never asked for."""
        signal = record.chain.handover.signal
        try:
            self.actuator.signal(link.job_id, record.chain.owner, signal.name, batch_only=signal.batch_only)
        except UnknownJob:
            return record
        except (ClusterUnavailable, NotPermitted) as error:
            self._trouble(record, now, f"link {link.index} could not be told to make way: {error}")
            return record
        text = f"its successor has taken over; {signal.name} sent, {signal.lead} s of grace"
        return self._retire(record, link, text, now)

    def _retire(self, record: ChainRecord, link: Link, reason: str, now: Seconds) -> ChainRecord:
        event = LinkRetired(link.index, reason)
        record = machine.apply(record, event, now)
        self.store.save(record, told(record, now, EntryKind.ACTION, str(event), link.index))
        return record

    def _cancel(self, record: ChainRecord, link: Link, now: Seconds) -> None:
        try:
            self.actuator.cancel(link.job_id, record.chain.owner)
        except _REFUSED as error:
            self._trouble(record, now, f"could not cancel link {link.index}: {error}")
        else:
            self.write(record, now, EntryKind.ACTION, f"cancelled link {link.index}", link.index)

    def _cancel_job(self, record: ChainRecord, job: Job, now: Seconds) -> None:
        try:
            self.actuator.cancel(job.job_id, job.user)
        except _REFUSED as error:
            self._trouble(record, now, f"could not cancel the held job {job.job_id}: {error}")
        else:
            self.write(record, now, EntryKind.ACTION, f"cancelled the held job {job.job_id}: the chain is over")

    def _refused(self, record: ChainRecord, link: Link, error: str, now: Seconds) -> Act:
        """A try in protected mode is for all chains: its refusal is not the chain's own."""
        pause = self.permits.pause_after(record.refusals + 1)
        own = self.permits.protection() is None
        refused = LinkRefused(link.index, error, pause, counts=own)
        return self._taken_back(record, refused, now, f"link {link.index} was refused: {error}")

    def _unable(self, record: ChainRecord, link: Link, error: str, now: Seconds) -> Act:
        """Nothing is wrong with the link: the intent is taken back and the next cycle tries again."""
        unable = LinkRefused(link.index, error, 0, counts=False, by_slurm=False)
        return self._taken_back(record, unable, now, f"link {link.index} could not be submitted: {error}")

    def _taken_back(self, record: ChainRecord, event: LinkRefused, now: Seconds, text: str) -> Act:
        record = machine.apply(record, event, now)
        self.store.save(record, told(record, now, EntryKind.TROUBLE, text))
        return Act(text, done=False)

    def _trouble(self, record: ChainRecord, now: Seconds, text: str) -> Act:
        self.write(record, now, EntryKind.TROUBLE, text)
        return Act(text, done=False)


def told(record: ChainRecord | None, now: Seconds, kind: EntryKind, text: str, link: int = 0) -> Entry:
    """One entry, about a chain or the whole service."""
    return Entry(now, record.chain.chain_id if record else None, kind, text, link)


def _previous_job(record: ChainRecord, link: Link) -> JobId:
    """The job of the link before, as ``MIRAGE_PREV_JOBID`` tells it."""
    return record.links[link.index - 2].job_id if link.index > 1 else NO_JOB
