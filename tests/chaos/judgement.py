"""The end of a trial: chains as Mirage has them, its journal, and what Slurm's accounting says of them."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Protocol

from mirage.domain.bounds import format_instant
from mirage.domain.chain import ChainStatus
from mirage.domain.failurepolicy import FailureAction
from mirage.domain.job import ABSENT, Job, JobState
from mirage.domain.journal import EntryKind
from mirage.domain.link import NO_JOB, LinkState

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mirage.domain.chain import ChainId, ChainRecord
    from mirage.domain.journal import Entry
    from mirage.domain.link import Link

_BAD = (
    JobState.FAILED,
    JobState.OUT_OF_MEMORY,
    JobState.NODE_FAIL,
    JobState.PREEMPTED,
    JobState.CANCELLED,
)


class Accounts(Protocol):
    """Slurm's state, from a source that is independent of Mirage."""

    def of(self, record: ChainRecord) -> list[Job]:
        """Every job that was ever accepted as a link of this chain, as it ended, in order of links."""

    def times_run(self, job: Job) -> int:
        """How often it started: once, and again each time that it was requeued and started again."""

    def in_the_dark(self, job: Job) -> bool:
        """Whether there were times in which no source could show Mirage how the job ended."""

    def may_lack(self, link: Link) -> bool:
        """Whether it may know nothing of a job that the link had."""

    def took_back(self, link: Link, job: Job) -> bool:
        """Whether Slurm may rightly have reported another end to Mirage than it reports now."""

    def told_to_leave(self, job: Job) -> bool:
        """Whether the job ended on Mirage's signal to end: then its exit code does not describe its work."""

    def cancelled(self, chain_id: ChainId) -> bool:
        """Whether the chain's owner asked for its end."""


def judged(records: Sequence[ChainRecord], journal: Sequence[Entry], accounts: Accounts) -> Iterator[str]:
    """Yield errors: chains that did not end, or without cause; jobs, links and sentences that do not agree."""
    lines: defaultdict[ChainId | None, list[Entry]] = defaultdict(list)
    for entry in journal:
        lines[entry.chain].append(entry)
    for record in records:
        record.check()
        yield from _ending(record, accounts)
        yield from _links(record, accounts)
        yield from _journal(record, lines[record.chain.chain_id], accounts)


def _ending(record: ChainRecord, accounts: Accounts) -> Iterator[str]:
    jobs, chain_id = accounts.of(record), record.chain.chain_id
    if not record.over:
        yield f"{chain_id} never came to an end: {record.status}: {record.reason}"
    if record.status is ChainStatus.DONE and not _enough(record, accounts):
        yield f"{chain_id} is done ({record.reason}) without cause: {jobs}"
    if record.status is ChainStatus.STOPPED and not _hopeless(record, accounts):
        yield f"{chain_id} is stopped ({record.reason}) without cause: {jobs}"


def _enough(record: ChainRecord, accounts: Accounts) -> bool:
    done = record.chain.done
    jobs = accounts.of(record)
    if done.links and sum(map(accounts.times_run, jobs)) >= done.links:
        return True
    exited = [
        job
        for job in jobs
        if job.state in (JobState.COMPLETED, JobState.FAILED) and not accounts.told_to_leave(job)
    ]
    return done.exit_code is not None and any(job.exit_code == done.exit_code for job in exited)


def _hopeless(record: ChainRecord, accounts: Accounts) -> bool:
    """Whether enough failed that some policy of the chain stops it."""
    policies = record.chain.failures
    bad = [job for job in accounts.of(record) if job.state in _BAD or not job.state.finished]
    if accounts.cancelled(record.chain.chain_id):
        return True
    return any(
        (policy.recovery is FailureAction.STOP and bool(bad))
        or (policy.recovery is FailureAction.RETRY and len(bad) > policy.retries)
        for policy in (policies.exit, policies.node, policies.cancelled)
    )


def _links(record: ChainRecord, accounts: Accounts) -> Iterator[str]:
    """Every job is a link and every link was a job, and both ended alike."""
    links = {link.job_id: link for link in record.links if link.job_id != NO_JOB}
    for job in accounts.of(record):
        link = links.pop(job.job_id, None)
        if link is None:
            yield f"job {job.job_id} is no link of {record.chain.chain_id}"
        elif link.requeued or accounts.in_the_dark(job) or accounts.took_back(link, job):
            continue
        elif _end_of_link(link) != _end_of_job(job):
            yield f"{link.tag} is {_end_of_link(link)}, accounting has {_end_of_job(job)}"
    if never := [link for link in links.values() if not accounts.may_lack(link)]:
        yield f"{record.chain.chain_id} has links that never were jobs: {never}"


def _end_of_link(link: Link) -> tuple[object, ...]:
    start = _start(link.start, link.end, link.job_state)
    return start, link.end, link.job_state.name, *_code(link.job_state, link.exit_code)


def _end_of_job(job: Job) -> tuple[object, ...]:
    start = _start(job.start, job.end, job.state)
    return start, job.end, job.state.name, *_code(job.state, job.exit_code)


def _start(start: int, end: int, state: JobState) -> int:
    """Slurm reports of a job that was cancelled while pending that it started as it ended."""
    return ABSENT if state is JobState.CANCELLED and start == end else start


def _code(state: JobState, code: int) -> tuple[int, ...]:
    """The exit code of a job that exited by itself; of an ended one squeue shows 143, sacct 0: neither matters."""
    return (code,) if state in (JobState.COMPLETED, JobState.FAILED) else ()


def _journal(record: ChainRecord, entries: list[Entry], accounts: Accounts) -> Iterator[str]:
    """The journal reports each submission and each end of a link."""
    dark = {job.job_id for job in accounts.of(record) if accounts.in_the_dark(job)}
    sent = {entry.text.split(":")[0] for entry in entries if entry.kind is EntryKind.ACTION}
    for link in record.links:
        if link.job_id == NO_JOB:
            continue
        told = {entry.text for entry in entries if entry.kind is EntryKind.EVENT and entry.link == link.index}
        named = f"submitted link {link.index} as job {link.job_id}"
        found = any(text.startswith(f"link {link.index} is job {link.job_id},") for text in told)
        again = link.reason == f"job {link.job_id} was requeued"
        if not found and not again and not sent & {named, f"{named}, held"}:
            yield f"the journal does not tell that {link.tag} is job {link.job_id}"
        may_say = {_sentence(link)} | ({_vanished(link)} if link.job_id in dark else set())
        if link.state is LinkState.ENDED and not link.requeued and not told & may_say:
            yield f"{link.tag}: the journal lacks {_sentence(link)!r}: {sorted(told)}"


def _sentence(link: Link) -> str:
    end = format_instant(link.end)
    return f"link {link.index} ended at {end}: {link.job_state.name}, exit code {link.exit_code}"


def _vanished(link: Link) -> str:
    return f"link {link.index} is no longer known to Slurm"
