"""States of our links, merged from the queue, accounting and the last snapshot."""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mirage.backends.job_ends import end_of, ended_unseen, with_past_runs
from mirage.backends.jobquery import JobQuery
from mirage.backends.seldom import Seldom
from mirage.domain.job import ABSENT, Job, JobId
from mirage.domain.link import NO_IDENTITIES, NO_JOB, LinkIdentity, is_link, is_nameless, is_tag
from mirage.domain.snapshot import Snapshot
from mirage.domain.tags import marked_for_another
from mirage.slurm.job_state import may_be_unlaunched
from mirage.slurm.rows import CELL

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from mirage.backends.jobquery import Ask, Fates
    from mirage.domain.job import Seconds
    from mirage.domain.snapshot import PartitionState
    from mirage.slurm.queuetext import Queue, QueueRow

_log = logging.getLogger(__name__)
_SELDOM = Seldom()
_TAG = re.compile(r"mirage:[A-Za-z0-9._-]+:[0-9]+")

ShowsAll = Callable[[bool], bool]
"""Given whether jobs of other users are seen, whether all are."""
_SHOWN_FOR: Seconds = 60
"""Maximum age of Slurm's answer whether it shows the jobs of all users."""
GRACE: Seconds = 600
"""Maximum delay of accounting behind the controller before a link that it lacks counts as lost, s."""


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
        doubtful = {tag for tag, found in seen.items() if tag in expected and may_be_unlaunched(found.job)}
        self.missing_since = {tag: self.missing_since.get(tag, now) for tag in (*missing, *doubtful)}
        completing = {tag: found.job.job_id for tag, found in seen.items() if found.completing}
        if missing or completing or doubtful:
            ids = {expected[tag] for tag in missing} - {NO_JOB} | set(completing.values())
            ids |= {seen[tag].job.job_id for tag in doubtful}
            without_id = any(expected[tag] == NO_JOB for tag in missing)
            by_tag = without_id and (not ids or self._by_id_before)
            self._by_id_before = without_id and not by_tag
            fates = self.query.about(() if by_tag else ids, ask).with_comments(each.job for each in queue.ours)
            if ask_runs is not None:
                fates = fates.completed({tag: expected[tag] for tag in missing}, known, ask_runs)
            for tag, job_id in completing.items():
                told = fates.of(job_id, _identity_of(seen[tag].job))
                links[tag] = end_of(seen[tag], told, self.last.get(tag), now)
            for tag in doubtful:
                links |= self._cancelled(tag, links.pop(tag), fates, now)
            self.report_unreadable("accounting", fates.unreadable)
            unread = _Unread.of([*queue.unreadable, *fates.unreadable])
            held = {tag for tag in missing if tag in nameless or unread.may_be(tag, expected[tag])}
            self.missing_since |= dict.fromkeys(held, now)
            links |= self._missing(missing, expected, known, fates, by_tag, now, held)
            links = self._without_hidden(links, missing, known, queue.owners, now)
        links |= with_past_runs([links[tag] for tag in expected if tag in links], known, ask_runs or ask)
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
                job = ended_unseen(bearers.get(tag))
                if not (fates.answered and by_tag) or (job is None and tag in held):
                    self.unaccounted |= {tag}
            else:
                certain = fates.answered and not by_tag and tag not in held
                certain = certain and expected[tag] not in fates.unanswered
                job = self._fate(tag, fates.of(expected[tag], known[tag]), fates, now, certain=certain)
            if job is not None:
                found[tag] = replace(job, tag=tag)
        return found

    def _cancelled(self, tag: str, job: Job, fates: Fates, now: Seconds) -> dict[str, Job]:
        """A job that was cancelled as it started: accounting knows whether Slurm could not start it.

        Until it does, the link stays as it was last seen.
        """
        told = fates.of(job.job_id, _identity_of(job))
        if told is not None and told.state.finished:
            return {tag: replace(job, state=told.state, reason=told.reason, start=told.start, end=told.end)}
        if not fates.lagging or now - self.missing_since[tag] > GRACE:
            return {tag: job}
        if tag not in self.last:
            self.unaccounted |= {tag}
            return {}
        return {tag: self.last[tag]}

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
