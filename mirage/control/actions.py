"""Actions of the loop on the cluster: submit, cancel, signal, hold. The intent is stored before the action."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mirage.domain.bounds import format_instant
from mirage.domain.chain import ChainStatus, Steering
from mirage.domain.errors import (
    BackEndLost,
    ClusterUnavailable,
    JobBlocked,
    NotPermitted,
    SubmissionRejected,
    UnknownJob,
)
from mirage.domain.job import ABSENT, JobChange
from mirage.domain.journal import Entry, EntryKind
from mirage.domain.link import NO_JOB
from mirage.domain.texts import one_line
from mirage.provisioner import handover, identities, machine, rejections, steering
from mirage.provisioner.events import LinkRejected, LinkRetired, LinkSubmitted, PauseAsked
from mirage.provisioner.gates import with_gate
from mirage.provisioner.limits import without_script
from mirage.provisioner.pending import attempt
from mirage.slurm.error_messages import is_limit

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mirage.control.filewatch import FileWatch
    from mirage.control.permits import Permits
    from mirage.control.startplans import Pins
    from mirage.control.stores import ChangedEntries
    from mirage.domain.chain import ChainRecord
    from mirage.domain.job import Job, JobId, Seconds
    from mirage.domain.link import Link
    from mirage.ports import Actuator, ChainStore
    from mirage.provisioner.pending import Attempt
    from mirage.provisioner.rejections import Protection

_FORGOTTEN_AFTER = 3_600
_LONGEST_PROBLEM = 200
"""Maximum number of characters of an error that a reason quotes."""
_LONGEST_TEXT = 4_000
_UNBOUND = "the next attempt does not bind it to its predecessor's nodes"
_REFUSED = (ClusterUnavailable, NotPermitted, UnknownJob)


@dataclass(frozen=True, slots=True)
class Act:
    """Result of an attempt."""

    text: str
    done: bool


@dataclass(frozen=True, slots=True)
class ActionExecutor:
    """Execute decisions; a failed action is written to the journal, and a later cycle retries it."""

    actuator: Actuator
    store: ChainStore
    journal: ChangedEntries
    files: FileWatch
    permits: Permits
    pins: Pins
    attempts: dict[JobId, Attempt] = field(default_factory=dict)
    """Requested changes that no snapshot has shown yet."""
    releases: dict[JobId, Attempt] = field(default_factory=dict)
    """Releases of jobs that Slurm holds: a job that no node can start is held again each time."""
    doubts: dict[str, str] = field(default_factory=dict)
    """Error of the last submission, by tag of a link that may not have reached the cluster."""

    def correct(self, record: ChainRecord, now: Seconds) -> ChainRecord:
        """Return the record; if the clock was set back, with corrected times, which are stored."""
        corrected = rejections.corrected(record, now, self.permits.limits)
        if corrected is not record:
            text = "times of this chain were later than possible and are corrected; was the clock set back?"
            self.store.save(corrected, journal_entry(record, now, EntryKind.EVENT, text))
        return corrected

    def send(self, record: ChainRecord, link: Link, now: Seconds, behind: Job | None = None) -> Act:
        """Submit a planned link. The intent is stored first: whatever happens next, the tag finds the job.

        ``behind``: submit the link held, to be released near the end of this predecessor.
        """
        record = record.with_link(replace(link, planned=now))
        request = self.store.with_script(record.chain.link_request(link.index, _previous_job(record, link)))
        pinned = behind is not None and record.chain.method is Steering.PIN
        if behind is not None and pinned and (why := self.pins.unfit(record, behind, request)):
            return self._unable(record, link, f"{why}; {_UNBOUND}", now)
        gated = with_gate(request, record, link, bound=pinned)
        if record.chain.one_writer and gated is not request:
            record = record.with_link(replace(record.links[link.index - 1], looks=True))
        request = gated
        self.doubts.pop(link.tag, None)
        self.store.save(record)
        if behind is not None:
            request = steering.held_request(request, record.chain, behind)
        if record.chain.one_writer and not pinned:
            request = replace(request, dependencies=handover.awaited(record, link))
        try:
            job_id = self.actuator.submit(request)
        except SubmissionRejected as error:
            if error.reason == "InvalidDependency":  # on a job that is just leaving: the next cycle knows
                return self._unable(record, link, str(error), now)
            if behind is not None and pinned and not is_limit(error.reason):
                self.pins.rejected(record, behind, str(error))
                return self._unable(record, link, f"{error}; {_UNBOUND}", now)
            return self._refused(record, link, error, now)
        except NotPermitted as error:
            return self._unable(record, link, str(error), now)
        except BackEndLost as error:
            return self._back_end_lost(record, link, error, now)
        except ClusterUnavailable as error:
            self.doubts[link.tag] = str(error)
            return self._trouble(record, now, f"link {link.index} may not have reached the cluster: {error}")
        held = ", held" if behind is not None else ""
        text = f"submitted link {link.index} as job {job_id}{held}: {link.reason}"
        record = machine.apply(record, LinkSubmitted(link.index, job_id, now), now)
        self.store.save(record, journal_entry(record, now, EntryKind.ACTION, text, link.index))
        return Act(text, done=True)

    def cancel_leftovers(self, record: ChainRecord, now: Seconds) -> str:
        """Cancel jobs that the chain no longer needs; repeat this until a snapshot shows that they are gone.

        Returns which jobs could not be cancelled and why; empty if all could.
        """
        return "; ".join(filter(None, [self._cancel(record, link, now) for link in handover.to_cancel(record)]))

    def cancel_stock(self, record: ChainRecord, stock: Iterable[Job], now: Seconds) -> None:
        """Cancel the held jobs of a chain that is over; repeat this until a snapshot shows that they are gone."""
        for job in stock:
            self._cancel_job(record, job, now, "the held job", "the chain is over")

    def cancel_returned(self, record: ChainRecord, jobs: Iterable[Job], now: Seconds) -> None:
        """Cancel jobs of ended links that are in the queue again: they would run in addition to a link."""
        for job in jobs:
            self._cancel_job(record, job, now, "job", "its link has ended, but the job is in the queue again")

    def face(self, record: ChainRecord, unknown: Sequence[Job], now: Seconds, *, released: bool) -> ChainRecord:
        """Handle jobs with the chain's tag that its record does not know; return the new record.

        ``released``: links are held jobs that Mirage releases, not submissions of its own.

        A job whose submission was repeated is a copy of ours and is cancelled. Any other job is left alone: the
        chain pauses, and none of its links may start until the owner resumes it.
        """
        for job in [job for job in unknown if identities.sent_twice(record, job)]:
            self._cancel_job(record, job, now, "job", "its link was submitted again")
        foreign = [job for job in unknown if not identities.sent_twice(record, job)]
        if not foreign or record.over:
            return record
        if record.status is ChainStatus.ACTIVE:
            record = self.pause(record, identities.why_pause(foreign, released=released), now)
        whose = "released" if released else "submitted"
        for link in identities.to_withdraw(record, foreign):
            record = self._retire(record, link, f"it must not overlap with a job that Mirage has not {whose}", now)
            self._cancel(record, link, now)
        return record

    def pause(self, record: ChainRecord, why: str, now: Seconds) -> ChainRecord:
        """Pause the chain until its owner resumes it."""
        record = machine.apply(record, PauseAsked(why), now)
        self.store.save(record, journal_entry(record, now, EntryKind.TROUBLE, record.reason))
        return record

    def drop_script(self, record: ChainRecord) -> None:
        """Store a chain that is over without its script and environment, which nothing will need again."""
        emptied = without_script(record)
        if emptied is not record:
            self.store.save(emptied)

    def make_way(self, record: ChainRecord, waiting: Job | None, now: Seconds) -> ChainRecord:
        """Signal predecessors to exit, and cancel those whose grace period is over; return the new record.

        A link that can never start, as the job ``waiting`` shows, is abandoned: the next one replaces it.
        """
        tried = self.attempts.get(waiting.job_id) if waiting is not None else None
        blocked = tried is not None and tried.hopeless
        if link := handover.stuck(record, waiting, blocked=blocked):
            why = "its job can no longer be released" if blocked else handover.NEVER_SATISFIED
            record = self._retire(record, link, f"Slurm will never start it: {why}", now)
        if waiting is not None and handover.to_release(record, waiting):
            verb = "released after a failed launch"
            self._ask(self.releases, record, waiting, JobChange(held=False), verb, now)
        ready = self.files.ready(record, now)
        for link in handover.to_retire(record, ready, now):
            record = self._tell(record, link, now, handover.why_to_retire(record, ready))
        for link in handover.to_end(record, now):
            if link.job_id != NO_JOB:
                self._cancel(record, link, now)
        return record

    def steer(self, record: ChainRecord, job: Job, predecessor: Job | None, now: Seconds, *, back: bool) -> Act:
        """Ask Slurm to hold or release a pending link; the next snapshot shows whether it did."""
        change = steering.change(record.chain, predecessor, back=back)
        return self._ask(self.attempts, record, job, change, "held" if back else "released", now)

    def _ask(
        self,
        attempts: dict[JobId, Attempt],
        record: ChainRecord,
        job: Job,
        change: JobChange,
        verb: str,
        now: Seconds,
    ) -> Act:
        """Ask for a change; retry with growing pauses."""
        earlier = attempts.get(job.job_id)
        if earlier is not None and earlier.change == change and earlier.waits(now):
            next_try = f"{earlier.count} attempts, next try at {format_instant(earlier.next_try)}"
            why = f"{earlier.problem}; {next_try}" if earlier.problem else next_try
            return Act(f"job {job.job_id} is not {verb} yet: {why}", done=False)
        for other in [key for key, past in attempts.items() if past.next_try < now - _FORGOTTEN_AFTER]:
            del attempts[other]
        attempts[job.job_id] = attempt(change, earlier, now)
        try:
            self.actuator.update(job.job_id, record.chain.owner, change)
        except UnknownJob:
            return Act(f"job {job.job_id} is no longer pending", done=False)
        except (ClusterUnavailable, NotPermitted) as error:
            blocked = isinstance(error, JobBlocked)
            problem = one_line(str(error), _LONGEST_PROBLEM)
            attempts[job.job_id] = replace(attempts[job.job_id], blocked=blocked, problem=problem)
            return self._trouble(record, now, f"job {job.job_id} could not be {verb}: {error}")
        text = f"asked Slurm for job {job.job_id} to be {verb}"
        self.write(record, now, EntryKind.ACTION, text)
        return Act(text, done=True)

    def tell_protection(self, before: Protection | None, after: Protection | None, now: Seconds) -> None:
        """Write to the journal that protected mode began or ended in this cycle."""
        if after is not None and before is None:
            text = f"protected mode: {after}; Mirage now submits only a periodic test"
            self.write(None, now, EntryKind.TROUBLE, text)
        if after is None and before is not None:
            self.write(None, now, EntryKind.EVENT, "protected mode is over")

    def write(self, record: ChainRecord | None, now: Seconds, kind: EntryKind, text: str, link: int = 0) -> None:
        """Write one journal entry."""
        self.journal.write(journal_entry(record, now, kind, text, link))

    def _tell(self, record: ChainRecord, link: Link, now: Seconds, why: str) -> ChainRecord:
        """Signal a predecessor to exit. Its grace period begins once the signal has certainly arrived.

        The intent is stored first: how a link ends that may have received the signal says nothing of its work.
        """
        signal, untold = record.chain.handover.signal, record
        if link.telling == ABSENT:
            record = record.with_link(replace(link, telling=now))
            self.store.save(record)
        try:
            self.actuator.signal(link.job_id, record.chain.owner, signal.name, reach=record.chain.told)
        except UnknownJob:
            return self._untold(untold, link)
        except NotPermitted as error:
            self._trouble(record, now, f"link {link.index} could not be signalled to exit: {error}")
            return self._untold(untold, link)
        except ClusterUnavailable as error:
            self._trouble(record, now, f"link {link.index} may not have received the signal to exit: {error}")
            return record
        text = f"{why}; {signal.name} sent, {signal.lead} s of grace"
        return self._retire(record, link, text, now)

    def _untold(self, record: ChainRecord, link: Link) -> ChainRecord:
        """Undo a signal that certainly failed, unless an earlier signal may have arrived."""
        if link.telling == ABSENT:
            self.store.save(record)
        return record

    def _retire(self, record: ChainRecord, link: Link, reason: str, now: Seconds) -> ChainRecord:
        event = LinkRetired(link.index, reason)
        record = machine.apply(record, event, now)
        self.store.save(record, journal_entry(record, now, EntryKind.ACTION, str(event), link.index))
        return record

    def _cancel(self, record: ChainRecord, link: Link, now: Seconds) -> str:
        """Cancel a link; return why that failed, or an empty text."""
        try:
            self.actuator.cancel(link.job_id, record.chain.owner)
        except _REFUSED as error:
            return self._trouble(record, now, f"could not cancel link {link.index}: {error}").text
        self.write(record, now, EntryKind.ACTION, f"cancelled link {link.index}", link.index)
        return ""

    def _cancel_job(self, record: ChainRecord, job: Job, now: Seconds, what: str, why: str) -> None:
        try:
            self.actuator.cancel(job.job_id, job.user)
        except _REFUSED as error:
            self._trouble(record, now, f"could not cancel {what} {job.job_id}: {error}")
        else:
            self.write(record, now, EntryKind.ACTION, f"cancelled {what} {job.job_id}: {why}")

    def _refused(self, record: ChainRecord, link: Link, error: SubmissionRejected, now: Seconds) -> Act:
        refused = self.permits.rejected(record, link.index, error)
        next_try = f"next try at {format_instant(now + refused.pause)}"
        after = "the chain is paused" if refused.pauses else next_try
        return self._taken_back(record, refused, now, f"Slurm rejected link {link.index}: {error}; {after}")

    def _back_end_lost(self, record: ChainRecord, link: Link, error: BackEndLost, now: Seconds) -> Act:
        text = f"link {link.index} may not have reached the cluster: {error}"
        self.doubts[link.tag] = str(error)
        record = self.permits.back_end_lost(record, record.links[link.index - 1], str(error), now)
        text = record.reason if record.status is ChainStatus.PAUSED else text
        self.store.save(record, *self.journal.new(journal_entry(record, now, EntryKind.TROUBLE, text)))
        return Act(text, done=False)

    def _unable(self, record: ChainRecord, link: Link, error: str, now: Seconds) -> Act:
        """Nothing is wrong with the link: withdraw the intent; the next cycle tries again."""
        unable = LinkRejected(link.index, error, 0, counts=False, by_slurm=False)
        return self._taken_back(record, unable, now, f"link {link.index} could not be submitted: {error}")

    def _taken_back(self, record: ChainRecord, event: LinkRejected, now: Seconds, text: str) -> Act:
        record = machine.apply(record, event, now)
        self.store.save(record, *self.journal.new(journal_entry(record, now, EntryKind.TROUBLE, text)))
        return Act(text, done=False)

    def _trouble(self, record: ChainRecord, now: Seconds, text: str) -> Act:
        self.write(record, now, EntryKind.TROUBLE, text)
        return Act(text, done=False)


def journal_entry(record: ChainRecord | None, now: Seconds, kind: EntryKind, text: str, link: int = 0) -> Entry:
    """Return a journal entry about a chain, or about the whole service; quoted text of others is cut."""
    return Entry(now, record.chain.chain_id if record else None, kind, text[:_LONGEST_TEXT], link)


def _previous_job(record: ChainRecord, link: Link) -> JobId:
    """Return the job of the previous link, the value of ``MIRAGE_PREV_JOBID``."""
    return record.links[link.index - 2].job_id if link.index > 1 else NO_JOB
