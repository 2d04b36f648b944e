"""What must hold whatever happens, judged by what Slurm itself knows: Mirage's records are the accused."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from chaos.judgement import judged
from fake_slurm.answers import option

from mirage.domain.chain import ChainStatus
from mirage.domain.job import ABSENT, Job, JobId, JobState

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from chaos.slurmctld import Slurmctld
    from fake_slurm.fake import Call

    from mirage.domain.chain import Chain, ChainId, ChainRecord
    from mirage.domain.journal import Entry


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
    _asked_to_end: set[ChainId] = field(default_factory=set)
    _cancelled: set[ChainId] = field(default_factory=set)
    _told_to_end: set[JobId] = field(default_factory=set)
    _alone_since: dict[ChainId, int] = field(default_factory=dict)

    # Told as it happens

    def cycle_begins(self) -> None:
        """Nothing that was seen before counts as fresh from here on."""
        self._fresh = False

    def asked(self, call: Call) -> None:
        """A command is about to be given; whether it arrives is another matter."""
        if call.command == "sbatch" and "--test-only" not in call.arguments:
            self._judge_submission(option(call, "--comment"))
        if call.command == "scancel":
            self._told_to_end.add(JobId(int(call.arguments[-1])))

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

    def end_asked(self, chain_id: ChainId) -> None:
        """Its owner asks for the end of a chain."""
        self._asked_to_end.add(chain_id)

    def end_confirmed(self, chain_id: ChainId) -> None:
        """The owner was told that it is so."""
        self._cancelled.add(chain_id)

    # Asked by the scenario

    def check_supplied(self, records: Iterable[ChainRecord]) -> None:
        """While there are no faults: every active chain has a job, or gets one soon."""
        for record in records:
            chain_id = record.chain.chain_id
            if record.status is not ChainStatus.ACTIVE or any(self._alive(job.job_id) for job in self.of(record)):
                self._alone_since.pop(chain_id, None)
            elif self.ctld.now - self._alone_since.setdefault(chain_id, self.ctld.now) > self.patience:
                self._fail(
                    f"{chain_id} is lost: no job for {self.patience} s without a fault; {record.links[-2:]}"
                )

    def check_end(self, records: Sequence[ChainRecord], journal: Sequence[Entry]) -> None:
        """All chains have ended: for reasons that Slurm's accounting bears out, and told as it was."""
        for each in judged(records, journal, self):
            self._fail(each)
        for job_id in self._tags.values():
            if self._alive(job_id):
                self._fail(f"job {job_id} is still there although its chain is over")
        for chain_id in self.chains.keys() - {record.chain.chain_id for record in records}:
            self._fail(f"{chain_id} is not in the store any more")

    # The accounts of ``judgement``

    def of(self, record: ChainRecord) -> list[Job]:
        """Every job that Slurm ever took as one of this chain's, in order of links."""
        mine = sorted((tag for tag in self._tags if record.chain.bears(tag)), key=_index)
        return [self.ctld.last(self._tags[tag]) for tag in mine]

    def has_run(self, job: Job) -> bool:
        """Whether it ever started."""
        return any(version.start != ABSENT for version in self.ctld.versions(job.job_id))

    def in_the_dark(self, job: Job) -> bool:
        """A controller that has forgotten the job, or an accounting that was asked in vain after its end."""
        return self.ctld.lost(job.job_id) or any(when >= job.end for when in self._accounting_failed)

    def cancelled(self, chain_id: ChainId) -> bool:
        """Whether its owner asked for its end, also where the daemon died before it could answer."""
        return chain_id in self._asked_to_end

    # How it judges

    def _judge_submission(self, tag: str) -> None:
        chain_id = tag.split(":")[1]
        if not self._fresh:
            self._fail(f"{tag} is submitted although this cycle has not seen the queue")
        seen = {_index(other): job for other, job in self._seen.items() if other.split(":")[1] == chain_id}
        running = [n for n, job in seen.items() if job.state is JobState.RUNNING]
        staying = [n for n in running if seen[n].job_id not in self._told_to_end]
        waiting = [n for n, job in seen.items() if job.state is JobState.PENDING and n > max(running, default=0)]
        if waiting:
            self._fail(f"{tag} is submitted although link {waiting[-1]} waits in the queue")
        if len(staying) > 1:
            self._fail(f"{tag} is submitted although links {staying} run")
        if chain_id in self._cancelled:
            self._fail(f"{tag} is submitted although its owner has cancelled the chain")

    def _alive(self, job_id: JobId) -> Job | None:
        job = self.ctld.last(job_id)
        return None if job.state.finished or self.ctld.lost(job_id) else job

    def _fail(self, text: str) -> None:
        self.broken.append(f"at {self.ctld.now}: {text}")


def _index(tag: str) -> int:
    return int(tag.rpartition(":")[2])
