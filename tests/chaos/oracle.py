"""What must hold whatever happens, judged by what Slurm itself knows: Mirage's records are the accused."""

from __future__ import annotations

import logging
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fake_slurm.answers import option

from mirage.domain.chain import NO_JOB, ChainStatus, LinkState, Recovery
from mirage.domain.instants import spell_instant
from mirage.domain.job import ABSENT, Job, JobId, JobState
from mirage.domain.journal import EntryKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from chaos.slurmctld import Slurmctld
    from fake_slurm.fake import Call

    from mirage.domain.chain import Chain, ChainId, ChainRecord, Link
    from mirage.domain.journal import Entry

_BAD = (
    JobState.FAILED,
    JobState.OUT_OF_MEMORY,
    JobState.NODE_FAIL,
    JobState.PREEMPTED,
    JobState.CANCELLED,
)


class Faults(logging.Handler):
    """Hears of exceptions that the daemon survived but never meant to raise."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.heard: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            self.heard.append(f"{record.getMessage()}: {record.exc_info[1]!r}")


@dataclass
class Oracle:
    """Watches the way to Slurm and compares at the end. ``broken``: each invariant that did not hold, and how."""

    ctld: Slurmctld
    patience: int
    """Seconds after which a chain without faults has a link again."""
    chains: dict[ChainId, Chain] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    _fresh: bool = False
    _seen: dict[str, Job] = field(default_factory=dict)
    _tags: dict[str, JobId] = field(default_factory=dict)
    _accounting_failed: list[int] = field(default_factory=list)
    _cancelled: set[ChainId] = field(default_factory=set)
    _alone_since: dict[ChainId, int] = field(default_factory=dict)

    # Told as it happens

    def cycle_begins(self) -> None:
        """Nothing that was seen before counts as fresh from here on."""
        self._fresh = False

    def asked(self, call: Call) -> None:
        """A command is about to be given; whether it arrives is another matter."""
        if call.command == "sbatch" and "--test-only" not in call.arguments:
            self._judge_submission(option(call, "--comment"))

    def accepted(self, job: Job) -> None:
        """The controller has a new job."""
        if not job.tag:
            return
        if job.tag in self._tags:
            self._fail(f"two jobs for one link: {self._tags[job.tag]} and {job.job_id} are {job.tag}")
        self._tags[job.tag] = job.job_id

    def answered(self, call: Call, whole: bool) -> None:
        """What Slurm said has arrived as it said it, or not."""
        if call.command == "squeue" and option(call, "--Format") and whole:
            self._fresh = True
            alive = ((tag, self._alive(job_id)) for tag, job_id in self._tags.items())
            self._seen = {tag: job for tag, job in alive if job}
        if call.command == "sacct" and not whole:
            self._accounting_failed.append(self.ctld.now)

    def chain_cancelled(self, chain_id: ChainId) -> None:
        """Its owner was told that it is cancelled."""
        self._cancelled.add(chain_id)

    # Asked by the scenario

    def check_supplied(self, records: Iterable[ChainRecord]) -> None:
        """While there are no faults: every active chain has a job, or gets one soon."""
        for record in records:
            chain_id = record.chain.chain_id
            if record.status is not ChainStatus.ACTIVE or any(self._alive(job.job_id) for job in self.jobs(record)):
                self._alone_since.pop(chain_id, None)
            elif self.ctld.now - self._alone_since.setdefault(chain_id, self.ctld.now) > self.patience:
                self._fail(f"{chain_id} is lost: no job for {self.patience} s without a fault; {record.links[-2:]}")

    def check_end(self, records: Sequence[ChainRecord], journal: Sequence[Entry]) -> None:
        """All chains have ended: for reasons that Slurm's accounting bears out, and told as it was."""
        lines: defaultdict[ChainId | None, list[Entry]] = defaultdict(list)
        for entry in journal:
            lines[entry.chain].append(entry)
        for record in records:
            record.check()
            self._check_ending(record)
            self._check_links(record)
            self._check_journal(record, lines[record.chain.chain_id])
        told = {record.chain.chain_id for record in records}
        for chain_id in self.chains.keys() - told:
            self._fail(f"{chain_id} is not in the store any more")

    def jobs(self, record: ChainRecord) -> list[Job]:
        """Every job that Slurm ever took as one of this chain's, in order of links."""
        mine = [(tag, job_id) for tag, job_id in self._tags.items() if record.chain.bears(tag)]
        return [self.ctld.last(job_id) for _, job_id in sorted(mine, key=lambda each: int(each[0].rpartition(":")[2]))]

    # How it judges

    def _judge_submission(self, tag: str) -> None:
        chain_id = tag.split(":")[1]
        if not self._fresh:
            self._fail(f"{tag} is submitted although this cycle has not seen the queue")
        seen = {int(other.rpartition(":")[2]): job for other, job in self._seen.items() if other.split(":")[1] == chain_id}
        running = [n for n, job in seen.items() if job.state is JobState.RUNNING]
        waiting = [n for n, job in seen.items() if job.state is JobState.PENDING and n > max(running, default=0)]
        if waiting:
            self._fail(f"{tag} is submitted although link {waiting[-1]} waits in the queue")
        if len(running) > 1:
            self._fail(f"{tag} is submitted although links {running} run")
        if chain_id in self._cancelled:
            self._fail(f"{tag} is submitted although its owner has cancelled the chain")

    def _check_ending(self, record: ChainRecord) -> None:
        jobs, chain = self.jobs(record), record.chain
        if not record.over:
            self._fail(f"{chain.chain_id} never came to an end: {record.status}: {record.reason}")
        if any(self._alive(job.job_id) for job in jobs):
            self._fail(f"{chain.chain_id} is {record.status}, and has jobs: {[j.job_id for j in jobs]}")
        if record.status is ChainStatus.DONE and not self._enough(record, jobs):
            self._fail(f"{chain.chain_id} is done ({record.reason}) without cause: {jobs}")
        if record.status is ChainStatus.STOPPED and not self._hopeless(record, jobs):
            self._fail(f"{chain.chain_id} is stopped ({record.reason}) without cause: {jobs}")

    def _enough(self, record: ChainRecord, jobs: list[Job]) -> bool:
        done = record.chain.done
        ran = [job for job in jobs if any(v.start != ABSENT for v in self.ctld.versions(job.job_id))]
        if done.file or (done.links and len(ran) >= done.links):
            return True
        return done.exit_code is not None and any(
            job.exit_code == done.exit_code and job.state in (JobState.COMPLETED, JobState.FAILED) for job in ran
        )

    def _hopeless(self, record: ChainRecord, jobs: list[Job]) -> bool:
        policies = record.chain.failures
        bad = [job for job in jobs if job.state in _BAD or self.ctld.lost(job.job_id)]
        if record.chain.chain_id in self._cancelled or record.reason == "cancelled by its owner":
            return True
        gone = [job for job in bad if job.state is JobState.CANCELLED]
        if gone and policies.cancelled.recovery is Recovery.STOP:
            return True
        return any(
            (policy.recovery is Recovery.STOP and bool(bad))
            or (policy.recovery is Recovery.RETRY and len(bad) > policy.retries)
            for policy in (policies.exit, policies.node, policies.cancelled)
        )

    def _check_links(self, record: ChainRecord) -> None:
        """Every job is a link and every link was a job, and both ended alike."""
        links = {link.job_id: link for link in record.links if link.job_id != NO_JOB}
        for job in self.jobs(record):
            link = links.pop(job.job_id, None)
            if link is None:
                self._fail(f"job {job.job_id} is no link of {record.chain.chain_id}")
            elif not self._excused(job) and _told(link) != _told(job):
                self._fail(f"link {link.index} is {_told(link)}, accounting has {_told(job)}")
        if links:
            self._fail(f"{record.chain.chain_id} has links that never were jobs: {list(links.values())}")

    def _check_journal(self, record: ChainRecord, entries: list[Entry]) -> None:
        """Each submission and each end is told, and nothing is told that was not."""
        told = {(entry.link, entry.text) for entry in entries if entry.kind is EntryKind.EVENT}
        sent = {entry.text.split(":")[0] for entry in entries if entry.kind is EntryKind.ACTION}
        for link in record.links:
            if link.job_id == NO_JOB:
                continue
            named = {f"submitted link {link.index} as job {link.job_id}", f"submitted link {link.index} as job {link.job_id}, held back"}
            found = any(text.startswith(f"link {link.index} is job {link.job_id},") for _, text in told)
            if not (named & sent) and not found:
                self._fail(f"{record.chain.chain_id}: the journal does not tell that link {link.index} is job {link.job_id}")
            if link.state is LinkState.ENDED and (link.index, _sentence(link)) not in told:
                ends = [text for index, text in told if index == link.index]
                self._fail(f"{record.chain.chain_id}: the journal lacks {_sentence(link)!r}: {ends}")

    def _excused(self, job: Job) -> bool:
        """Nobody could tell Mirage how it ended."""
        return self.ctld.lost(job.job_id) or any(when >= job.end for when in self._accounting_failed)

    def _alive(self, job_id: JobId) -> Job | None:
        job = self.ctld.last(job_id)
        return None if job.state.finished or self.ctld.lost(job_id) else job

    def _fail(self, text: str) -> None:
        self.broken.append(f"at {self.ctld.now}: {text}")


def _told(which: Link | Job) -> tuple[int, int, JobState, int]:
    state = which.job_state if hasattr(which, "job_state") else which.state
    return which.start, which.end, JobState(state), which.exit_code


def _sentence(link: Link) -> str:
    return f"link {link.index} ended at {spell_instant(link.end)}: {link.job_state.name}, exit code {link.exit_code}"
