"""States of our links, merged from the queue, accounting and the last snapshot."""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mirage.backends.jobquery import JobQuery
from mirage.backends.seldom import Seldom
from mirage.domain.job import ABSENT, NEVER, Job, JobId, JobState, PastRun
from mirage.domain.link import NO_IDENTITIES, NO_JOB, LinkIdentity, is_link, is_nameless, is_tag
from mirage.domain.snapshot import Snapshot
from mirage.domain.tags import marked_for_another
from mirage.slurm.rows import CELL

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from mirage.backends.jobquery import Ask, Fates
    from mirage.domain.job import Seconds
    from mirage.domain.snapshot import PartitionState
    from mirage.slurm.queuetext import Queue, QueueRow

_log = logging.getLogger(__name__)
_SENT_WITHIN = 5  # seconds after its cycle began in which a link nearly always reaches Slurm
_SELDOM = Seldom()
_TAG = re.compile(r"mirage:[A-Za-z0-9._-]+:[0-9]+")

ShowsAll = Callable[[bool], bool]
"""Given whether jobs of other users are seen, whether all are."""
_SHOWN_FOR: Seconds = 60
"""Maximum age of Slurm's answer whether it shows the jobs of all users."""
GRACE: Seconds = 600
"""Maximum delay of accounting behind the controller before a link that it lacks counts as lost, s."""

# Ends after which a job does not go back to the queue; the others may be a requeue in the making.
_FINAL = (
    *(JobState.COMPLETED, JobState.FAILED, JobState.TIMEOUT),
    *(JobState.CANCELLED, JobState.OUT_OF_MEMORY, JobState.DEADLINE),
)


@dataclass
class LinkTracker:
    """Keeps the last state of each link, for times without an answer from accounting."""

    account_name: str = ""
    """Account that queries Slurm; empty: this account sees the jobs of all users."""
    shows_all: ShowsAll = lambda seen: False
    """Queries whether this account sees the jobs of all users; false if Slurm does not answer that."""
    last: dict[str, Job] = field(default_factory=dict)
    missing_since: dict[str, Seconds] = field(default_factory=dict)
    rivals: tuple[Job, ...] = ()
    """After ``account``: jobs whose tag another one bears."""
    query: JobQuery = field(default_factory=JobQuery)
    _by_id_before: bool = False
    """Links without an id were not asked for in the cycle before."""
    unaccounted: frozenset[str] = frozenset()
    """After ``account``: links that have left the queue, and of whose end nothing is known yet."""
    unmarked: frozenset[str] = frozenset()
    """After ``account``: links that are in the queue without their marks."""
    _seldom: Seldom = field(default_factory=Seldom)
    _shown: tuple[Seconds, bool] = (ABSENT, False)
    """When ``shows_all`` was asked last, and its answer."""

    def account(
        self,
        queue: Queue,
        expected: Mapping[str, JobId],
        ask: Ask,
        now: Seconds,
        identities: Mapping[str, LinkIdentity] = NO_IDENTITIES,
        ask_runs: Ask | None = None,
    ) -> dict[str, Job]:
        """Every known link, by tag; sends at most one query, unless accounting rejects it.

        A cycle that finds requeued jobs sends one more, for the ends of their runs.

        A link whose ID another job has now has left the queue, and only accounting's rows of that link count.
        Where ``ask`` brings the last job with a number alone, ``ask_runs`` queries all of them.

        Links whose id is not known are asked for by their tags, among all recent jobs; in every second cycle only
        where links with an id are to be asked for: if they are not in the queue they do not run, so it can wait.
        A link whose row, of the queue or of accounting, could not be read is there all the same: it stays as it
        was last seen, as long as that lasts. A row without an id may be any link's.

        A link that has left the queue and was never seen is ``unaccounted`` while accounting cannot be asked, has
        not been asked, or may not know it yet: it may have completed the work, or failed for good.
        """
        known = {tag: identities.get(tag) or LinkIdentity(tag) for tag in expected}
        seen, self.rivals = _by_tag(queue.ours, expected, known)
        nameless = {queued.job.tag for queued in queue.ours if is_nameless(queued.job.user)}
        seen = {tag: found for tag, found in seen.items() if tag not in nameless or expected.get(tag) != NO_JOB}
        self._report_reused(queue.ours, expected, known)
        self._report_unmarked(queue.ours, expected, known)
        self.report_unreadable("queue", queue.unreadable)
        self.unaccounted = frozenset()
        links = {tag: found.job for tag, found in seen.items()}
        missing = [tag for tag, job_id in expected.items() if not _is_there(tag, job_id, seen)]
        self.missing_since = {tag: self.missing_since.get(tag, now) for tag in missing}
        completing = {tag: found.job.job_id for tag, found in seen.items() if found.completing}
        if missing or completing:
            ids = {expected[tag] for tag in missing} - {NO_JOB} | set(completing.values())
            without_id = any(expected[tag] == NO_JOB for tag in missing)
            by_tag = without_id and (not ids or self._by_id_before)
            self._by_id_before = without_id and not by_tag
            fates = self.query.about(() if by_tag else ids, ask).with_comments(each.job for each in queue.ours)
            if ask_runs is not None:
                fates = fates.completed({tag: expected[tag] for tag in missing}, known, ask_runs)
            for tag, job_id in completing.items():
                told = fates.of(job_id, _identity_of(seen[tag].job))
                links[tag] = _end_of(seen[tag], told, self.last.get(tag), now)
            self.report_unreadable("accounting", fates.unreadable)
            unread = _Unread.of([*queue.unreadable, *fates.unreadable])
            held = {tag for tag in missing if tag in nameless or unread.may_be(tag, expected[tag])}
            self.missing_since |= dict.fromkeys(held, now)
            links |= self._missing(missing, expected, known, fates, by_tag, now, held)
            links = self._without_hidden(links, missing, known, queue.owners, now)
        links |= _with_past_runs([links[tag] for tag in expected if tag in links], known, ask_runs or ask)
        self.last = links
        return dict(links)

    def _without_hidden(
        self,
        links: Mapping[str, Job],
        missing: Collection[str],
        known: Mapping[str, LinkIdentity],
        owners: Collection[str],
        now: Seconds,
    ) -> dict[str, Job]:
        """``links`` without those that Slurm may hide from this account: they are ``unaccounted``.

        With ``PrivateData=jobs`` Slurm shows the jobs of others to Operators alone, and those of an account to its
        coordinators: seeing some jobs does not mean seeing all. A missing job then shows nothing, unless
        accounting has its end.
        """
        me = self.account_name
        hidden = {tag for tag in missing if known[tag].owner != me and not _has_ended(links.get(tag))}
        if not me or not hidden or self._sees_all(now, any(owner not in ("", me) for owner in owners)):
            return dict(links)
        if self._seldom.allows("jobs_hidden", me):
            text = "event=jobs_hidden account=%s links=%d first=%s text=%r"
            advice = "Slurm may hide the jobs of other users: make the account an Operator if PrivateData has jobs"
            _log.warning(text, me, len(hidden), min(hidden), advice)
        self.unaccounted |= hidden
        return {tag: job for tag, job in links.items() if tag not in hidden}

    def _sees_all(self, now: Seconds, seen: bool) -> bool:
        asked, answer = self._shown
        if asked == ABSENT or not 0 <= now - asked < _SHOWN_FOR:
            answer = self.shows_all(seen)
            self._shown = now, answer
        return answer

    def report_unreadable(self, source: str, rows: Sequence[str]) -> None:
        """Log that rows are left out: once an hour for each that is the first of them."""
        if rows and self._seldom.allows(source, rows[0].partition(CELL)[0]):
            _log.warning("event=unreadable_rows source=%s rows=%d first=%r", source, len(rows), rows[0][:200])

    def _report_reused(
        self, ours: Iterable[QueueRow], expected: Mapping[str, JobId], known: Mapping[str, LinkIdentity]
    ) -> None:
        """Log that jobs have the IDs of links and are none: once an hour for each owner."""
        shown = {queued.job.job_id: queued.job for queued in ours}
        reused: defaultdict[str, list[str]] = defaultdict(list)
        for tag, job_id in expected.items():
            if job_id in shown and not is_link(shown[job_id], known[tag]):
                reused[known[tag].owner].append(tag)
        for owner, tags in reused.items():
            if self._seldom.allows("job_id_reused", owner):
                job = shown[expected[tags[0]]]
                text = "event=job_id_reused owner=%s links=%d first=%s job=%d name=%r comment=%r submit=%d"
                _log.warning(text, owner, len(tags), tags[0], job.job_id, job.name[:80], job.tag[:80], job.submit)

    def _report_unmarked(
        self, ours: Iterable[QueueRow], expected: Mapping[str, JobId], known: Mapping[str, LinkIdentity]
    ) -> None:
        """Note which links are without their marks, and log it: once an hour for each owner."""
        tags = {job_id: tag for tag, job_id in expected.items() if job_id != NO_JOB}
        others = [each.job for each in ours if each.job.job_id in tags and not is_tag(each.job.tag)]
        unmarked = [job for job in others if is_link(job, known[tags[job.job_id]])]
        self.unmarked = frozenset(tags[job.job_id] for job in unmarked)
        for job in unmarked:
            if self._seldom.allows("mark_missing", job.user):
                text = "event=mark_missing owner=%s link=%s job=%d comment=%r text=%r"
                advice = "a user or a job_submit plugin has set its comment; see mirage doctor"
                _log.warning(text, job.user, tags[job.job_id], job.job_id, job.tag[:80], advice)

    def _missing(
        self,
        tags: Iterable[str],
        expected: Mapping[str, JobId],
        known: Mapping[str, LinkIdentity],
        fates: Fates,
        by_tag: bool,
        now: Seconds,
        held: Collection[str],
    ) -> dict[str, Job]:
        bearers = {job.tag: job for job in fates.runs() if not marked_for_another(job.tag, job.user)}
        found = {}
        for tag in tags:
            if expected[tag] == NO_JOB:
                job = _ended_unseen(bearers.get(tag))
                if not (fates.answered and by_tag) or (job is None and tag in held):
                    self.unaccounted |= {tag}
            else:
                certain = fates.answered and not by_tag and tag not in held
                certain = certain and expected[tag] not in fates.unanswered
                job = self._fate(tag, fates.of(expected[tag], known[tag]), fates, now, certain=certain)
            if job is not None:
                found[tag] = replace(job, tag=tag)
        return found

    def _fate(self, tag: str, told: Job | None, fates: Fates, now: Seconds, *, certain: bool) -> Job | None:
        """``certain``: accounting answered about this id, and no row was left out; else silence says nothing."""
        last = self.last.get(tag)
        if told is not None and told.state.finished:
            return told
        patient = fates.lagging and now - self.missing_since[tag] <= GRACE
        if certain and not patient:
            return None
        known = last or told
        if known is None:
            self.unaccounted |= {tag}
        return known

    def snapshot(
        self, now: Seconds, queue: Queue, partitions: tuple[PartitionState, ...], links: Mapping[str, Job]
    ) -> Snapshot:
        """The snapshot of time ``now``, its links accounted for."""
        return Snapshot(
            time=now,
            pending=queue.pending,
            running=queue.running,
            partitions=partitions,
            users=queue.users,
            partition_names=queue.partitions,
            qos_names=queue.qos,
            links=links,
            rivals=self.rivals,
            unaccounted=self.unaccounted,
            unmarked=self.unmarked,
            labels=queue.labels,
        )


@dataclass(frozen=True, slots=True)
class _Unread:
    """The part of the unreadable rows that shows the links they may be."""

    ids: Collection[str]
    tags: Collection[str]
    nameless: bool
    """A row shows no id."""

    @classmethod
    def of(cls, rows: Collection[str]) -> _Unread:
        ids = {row.partition(CELL)[0] for row in rows}
        tags = {tag for row in rows for tag in _TAG.findall(row)}
        return cls(ids, tags, not all(shown.isdecimal() for shown in ids))

    def may_be(self, tag: str, job_id: JobId) -> bool:
        return self.nameless or str(job_id) in self.ids or tag in self.tags


def _by_tag(
    ours: Collection[QueueRow], expected: Mapping[str, JobId], known: Mapping[str, LinkIdentity]
) -> tuple[dict[str, QueueRow], tuple[Job, ...]]:
    """One job a tag: the one expected, else one of the tag's owner, not ended, submitted first; and the others.

    A job that several chains claim is shown to each whose it may be; whose it is ``Snapshot.link`` knows.
    """
    tags_of = _tags_of(ours, expected, known)
    found: dict[str, QueueRow] = {}
    rivals = []

    def rank(queued: QueueRow) -> tuple[bool, bool, bool, JobId]:
        job = queued.job
        return job.job_id not in tags_of, marked_for_another(job.tag, job.user), job.state.finished, job.job_id

    for queued in sorted(ours, key=rank):
        by_comment = (queued.job.tag,) if _may_be_shown_by(queued.job, expected) else ()
        for tag in tags_of.get(queued.job.job_id) or by_comment:
            if tag in found:
                if _SELDOM.allows("duplicate_tag", queued.job.user):
                    one, other = found[tag].job, queued.job
                    ids, users = f"{one.job_id},{other.job_id}", f"{one.user},{other.user}"
                    _log.warning("event=duplicate_tag jobs=%s users=%s tag=%s", ids, users, tag)
                rivals.append(queued.job)
            elif expected.get(tag, NO_JOB) in (NO_JOB, queued.job.job_id):
                job = queued.job if queued.job.tag == tag else replace(queued.job, tag=tag)
                named = _named(job, expected, known)
                found[tag] = queued if named is queued.job else replace(queued, job=named)
    return found, tuple(rivals)


def _with_past_runs(links: Iterable[Job], known: Mapping[str, LinkIdentity], ask: Ask) -> dict[str, Job]:
    """The links whose jobs were requeued since they were sent or last seen, with the runs that ended before."""
    again = {job.tag: job for job in links if job.submit > _submitted_by(known[job.tag])}
    if not again:
        return {}
    fates = ask({job.job_id for job in again.values()})
    return {tag: _with_runs(job, known[tag], fates) for tag, job in again.items()}


def _submitted_by(link: LinkIdentity) -> Seconds:
    """When its first run was submitted, at the latest; a later submit time is another run's."""
    sent = NEVER if link.sent == ABSENT else link.sent + _SENT_WITHIN
    return sent if link.submit == ABSENT else link.submit


def _with_runs(job: Job, link: LinkIdentity, fates: Fates) -> Job:
    if not fates.answered or job.job_id in fates.unanswered:
        return replace(job, runs_untold=link.submit != ABSENT)
    every = [run for run in fates.runs() if run.job_id == job.job_id]
    if same := [run.submit for run in every if run.start == job.start != ABSENT]:
        job = replace(job, submit=min(job.submit, *same))  # of a run that was resized the last row alone is known
    runs = [run for run in every if run.submit < job.submit]
    ended = [
        run for run in runs if run.state.finished and ABSENT not in (run.start, run.end) and is_link(run, link)
    ]
    return replace(job, past_runs=tuple(sorted(PastRun(run.submit, run.start, run.end) for run in ended)))


def _has_ended(job: Job | None) -> bool:
    return job is not None and job.state.finished


def _named(job: Job, expected: Mapping[str, JobId], known: Mapping[str, LinkIdentity]) -> Job:
    """A link's job whose ID is known is its owner's, also where Slurm could not find out the user's name."""
    if is_nameless(job.user) and expected.get(job.tag) == job.job_id and known[job.tag].owner:
        return replace(job, user=known[job.tag].owner)
    return job


def _tags_of(
    ours: Iterable[QueueRow], expected: Mapping[str, JobId], known: Mapping[str, LinkIdentity]
) -> dict[JobId, list[str]]:
    """The expected links that each job is."""
    claims: defaultdict[JobId, list[str]] = defaultdict(list)
    for tag, job_id in expected.items():
        if job_id != NO_JOB:
            claims[job_id].append(tag)
    found = {}
    for queued in ours:
        job = queued.job
        if tags := [tag for tag in claims.get(job.job_id, ()) if is_link(job, known[tag])]:
            found[job.job_id] = tags
    return found


def _may_be_shown_by(job: Job, expected: Mapping[str, JobId]) -> bool:
    """Whether a job that is none of the expected ones may be shown by its comment."""
    return is_tag(job.tag) and expected.get(job.tag) != job.job_id


def _identity_of(job: Job) -> LinkIdentity:
    return LinkIdentity(job.tag, job.user, job.name, job.partition, job.submit)


def _is_there(tag: str, job_id: JobId, seen: Mapping[str, QueueRow]) -> bool:
    """Whether the queue shows the link. Any user can write a tag: without a known ID, its mark decides."""
    if tag not in seen:
        return False
    return job_id != NO_JOB or not marked_for_another(tag, seen[tag].job.user)


def _end_of(completing: QueueRow, told: Job | None, last: Job | None, now: Seconds) -> Job:
    """The end of a job whose nodes are being cleaned up; it counts as running where the end is unknown.

    Not every accounting reports exit codes; the queue may drop the job before the next poll.
    """
    if told is None or told.state not in _FINAL:
        return _before_completing(completing.job, last, now)
    end = told.end if told.end != ABSENT else completing.job.end
    code = told.exit_code if told.exit_code != ABSENT else completing.exit_code
    return replace(completing.job, state=told.state, exit_code=code, end=end, completing=True)


def _before_completing(job: Job, last: Job | None, now: Seconds) -> Job:
    """A job that goes back to the queue is shown with a start and an end that it never had: those before count."""
    if ABSENT < job.end <= now:  # it has ended
        return job
    seen = last is not None and last.job_id == job.job_id and last.state is JobState.RUNNING
    start, end = (last.start, last.end) if last is not None and seen else (ABSENT, ABSENT)
    return replace(job, start=start, end=end)


def _ended_unseen(told: Job | None) -> Job | None:
    """A job found by its tag alone: it counts if it ran and ended."""
    return told if told is not None and told.state.finished and told.start != ABSENT else None
