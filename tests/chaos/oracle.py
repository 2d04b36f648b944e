"""What must hold whatever happens, judged by what Slurm itself knows: Mirage's records are the accused."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from chaos.judgement import judged
from chaos.steps import judge_step_numbers
from fake_slurm.answers import option

from mirage.domain.chain import ChainId, ChainStatus, Steering
from mirage.domain.command import ResumeChain
from mirage.domain.errors import ChainOver, MirageError, StoreUnavailable
from mirage.domain.failurepolicy import FailureAction
from mirage.domain.job import Job, JobId, JobState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from concurrent.futures import Future

    from chaos.slurmctld import Slurmctld
    from chaos.steps import Scripts
    from fake_slurm.fake import Call

    from mirage.domain.chain import Chain, ChainRecord
    from mirage.domain.command import Command
    from mirage.domain.journal import Entry
    from mirage.domain.link import Link


_FAILED_STARTS = 3
"""Links in a row that end within a minute of their start, after which a chain pauses."""


_MAY_FAIL = (StoreUnavailable, ChainOver)
"""Answers to commands with which nothing is wrong: a chain may end before its turn comes."""
_TURNS = 4
"""Cycles within which a command has its answer."""


class Faults(logging.Handler):
    """Records exceptions that the daemon survived but never meant to raise."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.heard: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            self.heard.append(f"{record.getMessage()}: {record.exc_info[1]!r}")


@dataclass(frozen=True)
class _Post:
    """A command of a user; ``good``: it is valid."""

    answer: Future[str]
    command: Command
    good: bool
    cycles: int = 0

    @property
    def what(self) -> str:
        return f"{type(self.command).__name__} by {self.command.by}"

    @property
    def may_wait(self) -> bool:
        """Whether its turn may be still to come: a cycle applies some commands of each user."""
        return not self.answer.done() and self.cycles < _TURNS

    def faults(self) -> Iterator[str]:
        if not self.answer.done():
            yield f"{self.what} is not answered"
            return
        error = self.answer.exception()
        if error is None and not self.good:
            yield f"{self.what} is executed: {self.answer.result()}"
        if error is not None and not isinstance(error, _MAY_FAIL if self.good else MirageError):
            yield f"{self.what} is answered with {error!r}"


@dataclass
class Oracle:
    """Watches the way to Slurm and compares at the end. ``broken``: each invariant that did not hold, and how."""

    ctld: Slurmctld
    patience: int
    """Seconds after which a chain without failures has a link again."""
    scripts: Scripts
    intended: Callable[[str], bool]
    """Whether the database on disk holds the link with this tag."""
    chains: dict[ChainId, Chain] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    obeyed: set[JobId] = field(default_factory=set)
    """Jobs that end because Mirage's signal came."""
    _fresh: bool = False
    _shown: set[tuple[JobId, int]] = field(default_factory=set)
    """Jobs and limits, as this cycle has seen them."""
    _known_limits: set[tuple[JobId, int]] = field(default_factory=set)
    """Jobs and limits, as seen by cycles that ended without an error."""
    _admins: frozenset[int] = frozenset()
    """Which jobs an administrator held when the queue was seen."""
    _pausable: set[ChainId] = field(default_factory=set)
    _gone_pending: dict[ChainId, tuple[int, JobId]] = field(default_factory=dict)
    """Chains whose pending link a person cancelled and that nothing has resumed since: when, and which job."""
    _posted: list[_Post] = field(default_factory=list)
    _due: list[_Post] = field(default_factory=list)
    _seen: dict[str, Job] = field(default_factory=dict)
    _tags: dict[str, JobId] = field(default_factory=dict)
    _accounting_failed: list[int] = field(default_factory=list)
    _asked_to_end: set[ChainId] = field(default_factory=set)
    _cancelled: set[ChainId] = field(default_factory=set)
    _told_to_end: set[JobId] = field(default_factory=set)
    _alone_since: dict[ChainId, int] = field(default_factory=dict)

    # Reported as it happens

    def cycle_begins(self) -> None:
        """Nothing that was seen before counts as fresh from here on."""
        self._fresh = False
        self._shown = set()
        self._due, self._posted = self._posted, []

    def cycle_ends(self, *, lived: bool, unscathed: bool) -> None:
        """``lived``: by the same process that began it; ``unscathed``: all that it wrote is on disk."""
        for post in self._due if lived else ():
            if post.may_wait:
                self._posted.append(replace(post, cycles=post.cycles + 1))
                continue
            for fault in post.faults():
                self._fail(fault)
            if isinstance(
                post.command, ResumeChain
            ):  # its turn may come after a cancellation that it did not mean
                self.resume_asked(post.command.chain_id)
        self._due = []
        if lived and unscathed and self._fresh:
            self._known_limits |= self._shown

    def daemon_ended(self) -> None:
        """Commands that it has not applied are lost with it."""
        self._posted = []

    def asked(self, call: Call) -> None:
        """A command is about to be given; whether it arrives is another matter."""
        if call.command == "sbatch" and "--test-only" not in call.arguments:
            self._judge_submission(option(call, "--comment"))
        if call.command == "scontrol" and call.arguments[0] in ("hold", "release", "update"):
            self._judge_change(call.arguments[0], JobId(int(call.arguments[1].removeprefix("JobId="))))
        if call.command == "scancel":
            self._told_to_end.add(JobId(int(call.arguments[-1])))

    def accepted(self, job: Job) -> None:
        """The controller has a new job."""
        if not job.tag:
            return
        if job.tag in self._tags:
            self._fail(f"two jobs for one link: {self._tags[job.tag]} and {job.job_id} are {job.tag}")
        self._tags[job.tag] = job.job_id
        chain = self.chains.get(_chain_of(job.tag))
        script = self.ctld.request(job.job_id).batch
        if chain is None:
            self._fail(f"job {job.job_id} is of a chain that Slurm cannot accept: {job.tag}")
        elif chain.request.batch and script and _within(script.text) != chain.request.batch.text:
            self._fail(f"{job.tag} runs another script than its owner submitted: {script.text!r}")

    def answered(self, call: Call, whole: bool) -> None:
        """Whether the answer arrived as Slurm sent it."""
        if call.command == "squeue" and "SQUEUE_FORMAT2" in call.environment and whole:
            self._fresh = True
            alive = ((tag, self._alive(job_id)) for tag, job_id in self._tags.items())
            self._seen = {tag: job for tag, job in alive if job}
            self._shown = {(job.job_id, job.limit) for job in self._seen.values()}
            self._admins = frozenset(self.ctld.held_by_admin)
        if call.command == "sinfo" and not whole:  # the queue that was seen is dropped with it
            self._fresh, self._shown = False, set()
        if call.command == "sacct" and not whole:
            self._accounting_failed.append(self.ctld.now)

    def foreign_touched(self, job_id: JobId) -> None:
        """A job that only has the number of a link was changed, signalled or cancelled."""
        self._fail(f"job {job_id} is no link, and was touched")

    def end_asked(self, chain_id: ChainId) -> None:
        """Its owner asks for the end of a chain."""
        self._asked_to_end.add(chain_id)

    def end_confirmed(self, chain_id: ChainId) -> None:
        """Mirage has confirmed the end of the chain to its owner."""
        self._cancelled.add(chain_id)

    def pause_asked(self, chain_id: ChainId) -> None:
        """A user asks that the chain pauses."""
        self._pausable.add(chain_id)

    def resume_asked(self, chain_id: ChainId) -> None:
        """A user asks that the chain continues."""
        self._gone_pending.pop(chain_id, None)

    def rejected(self, tag: str) -> None:
        """Slurm rejects a link for a reason that no retry can fix."""
        self._pausable.add(_chain_of(tag))

    def mark_replaced(self, tag: str) -> None:
        """A person replaces the comment of a link: one of unknown fate then looks like any other job."""
        self._pausable.add(_chain_of(tag))

    def successor_cancelled(self, chain_id: ChainId, job_id: JobId) -> None:
        """A person has cancelled the link for which Mirage waits."""
        if self.chains[chain_id].failures.cancelled.recovery is FailureAction.STOP:
            self._gone_pending[chain_id] = self.ctld.now, job_id

    def posted(self, answer: Future[str], command: Command, *, good: bool) -> None:
        """A user gives a command, which the next cycle has to answer."""
        self._posted.append(_Post(answer, command, good))

    # Asked by the scenario

    def check_supplied(self, records: Iterable[ChainRecord]) -> None:
        """While nothing fails: every active chain has a job, or gets one soon."""
        for record in records:
            chain_id = record.chain.chain_id
            if record.status is not ChainStatus.ACTIVE or any(self._alive(job.job_id) for job in self.of(record)):
                self._alone_since.pop(chain_id, None)
            elif self.ctld.now - self._alone_since.setdefault(chain_id, self.ctld.now) > self.patience:
                self._fail(
                    f"{chain_id} is lost: no job for {self.patience} s without a fault; {record.links[-2:]}"
                )

    def check_pauses(self, records: Iterable[ChainRecord]) -> None:
        """A chain pauses because of a person, a final rejection, or links that end immediately."""
        for record in records:
            if record.status is ChainStatus.PAUSED and not self._may_pause(record):
                self._fail(f"{record.chain.chain_id} is paused without cause: {record.reason}")

    def check_end(self, records: Sequence[ChainRecord], journal: Sequence[Entry]) -> None:
        """All chains have ended: for reasons that Slurm's accounting confirms, and the journal agrees."""
        for each in judged(records, journal, self):
            self._fail(each)
        for record in records:
            self._judge_steps(record)
            if record.chain.one_writer:
                self._judge_writers(record)
        for job_id in self._tags.values():
            if self._alive(job_id):
                self._fail(f"job {job_id} is still there although its chain is over")
        for chain_id in self.chains.keys() - {record.chain.chain_id for record in records}:
            self._fail(f"{chain_id} is not in the store any more")

    # The accounts of ``judgement``

    def of(self, record: ChainRecord) -> list[Job]:
        """Every job that Slurm ever took as one of this chain's, in order of links."""
        marked = record.chain.tag(0).removesuffix("0")
        mine = sorted((tag for tag in self._tags if tag.startswith(marked)), key=_index)
        return [self.ctld.last(self._tags[tag]) for tag in mine]

    def times_run(self, job: Job) -> int:
        """How often it started, by the controller's own history."""
        return len(self.ctld.runs(job.job_id))

    def may_lack(self, link: Link) -> bool:
        """It has every job."""
        del link
        return False

    def took_back(self, link: Link, job: Job) -> bool:
        """It restarts with the state it had."""
        del link, job
        return False

    def in_the_dark(self, job: Job) -> bool:
        """A controller that has forgotten the job, or an accounting that was asked without success after its
        end."""
        return self.ctld.lost(job.job_id) or any(when >= job.end for when in self._accounting_failed)

    def told_to_leave(self, job: Job) -> bool:
        """Whether Mirage's signal had come, and the job exited because of it."""
        return job.job_id in self.obeyed

    def cancelled(self, chain_id: ChainId) -> bool:
        """Whether its owner asked for its end, also where the daemon died before it could answer."""
        return chain_id in self._asked_to_end

    # How it judges

    def _judge_submission(self, tag: str) -> None:
        chain_id = _chain_of(tag)
        if not self.intended(tag):
            self._fail(f"{tag} is submitted although its intent is not stored")
        if self._resubmits_cancelled(chain_id):
            job_id = self._gone_pending[chain_id][1]
            self._fail(f"{tag} is submitted although job {job_id} was cancelled while it waited")
        if not self._fresh:
            self._fail(f"{tag} is submitted although this cycle has not seen the queue")
        seen = {_index(other): job for other, job in self._seen.items() if other.split(":")[1] == chain_id}
        running = [n for n, job in seen.items() if job.state is JobState.RUNNING]
        stays = [n for n, job in seen.items() if job.job_id not in self._told_to_end]
        staying = [n for n in running if n in stays]
        waiting = [n for n in stays if seen[n].state is JobState.PENDING and n > max(running, default=0)]
        if waiting:
            self._fail(f"{tag} is submitted although link {waiting[-1]} waits in the queue")
        if len(staying) > 1:
            self._fail(f"{tag} is submitted although links {staying} run")
        if chain_id in self._cancelled:
            self._fail(f"{tag} is submitted although its owner has cancelled the chain")

    def _resubmits_cancelled(self, chain_id: ChainId) -> bool:
        """Whether a person cancelled its pending link and accounting could show so, whatever the queue showed."""
        if chain_id not in self._gone_pending:
            return False
        job = self.ctld.last(self._gone_pending[chain_id][1])
        return self._fresh and not self.in_the_dark(job)

    def _judge_change(self, verb: str, job_id: JobId) -> None:
        """Jobs held by an administrator or their owner are left alone, unless the chain holds them."""
        chain = self.chains.get(_chain_of(self.ctld.request(job_id).tag))
        if job_id in self._admins:
            self._fail(f"scontrol {verb} of job {job_id}, which an administrator holds")
        if verb == "release" and chain is not None and chain.steering is not Steering.HOLD:
            self._fail(f"scontrol release of job {job_id}, which its owner holds")

    def _may_pause(self, record: ChainRecord) -> bool:
        if record.chain.chain_id in self._pausable:
            return True
        jobs = self.of(record)
        at_once = [
            run for job in jobs for run in self.ctld.runs(job.job_id) if run[1] - run[0] <= 60 + self.ctld.epilog
        ]
        cancelled = any(job.state is JobState.CANCELLED for job in jobs)
        return cancelled or len(at_once) >= _FAILED_STARTS

    def _judge_steps(self, record: ChainRecord) -> None:
        """By the scripts' output: a one-writer chain ran each step in order, none twice, and all if it is done."""
        chain_id = record.chain.chain_id
        done = record.status is ChainStatus.DONE and not self._unknowable(record)
        goal = self.scripts.goals.get(chain_id) if done else None
        if record.chain.one_writer:
            written = [(step.number, step.job_id) for step in self.scripts.steps[chain_id]]
            for fault in judge_step_numbers(chain_id, written, goal):
                self._fail(fault)

    def _unknowable(self, record: ChainRecord) -> bool:
        """Whether a script exited with 0 for a limit that was raised again before any cycle knew of it.

        It is the last job's, or that of the one before: the successor may have been pending already.
        """
        for job in self.of(record)[-2:]:
            told = self.scripts.exits.get(job.job_id)
            if told and told.limit > told.warned_of and (job.job_id, told.warned_of) not in self._known_limits:
                return True
        return False

    def _judge_writers(self, record: ChainRecord) -> None:
        """No two links of one writer run together, nor does one while another's nodes are cleaned up."""
        runs = sorted((*run, job.job_id) for job in self.of(record) for run in self.ctld.runs(job.job_id))
        for (_, end, first), (start, _, second) in pairwise(runs):
            if start < end and first != second:
                self._fail(f"{record.chain.chain_id}: jobs {first} and {second} of one writer run together")

    def _alive(self, job_id: JobId) -> Job | None:
        job = self.ctld.last(job_id)
        return None if job.state.finished or self.ctld.lost(job_id) else job

    def _fail(self, text: str) -> None:
        self.broken.append(f"at {self.ctld.now}: {text}")


def _chain_of(tag: str) -> ChainId:
    return ChainId(tag.split(":")[1])


def _index(tag: str) -> int:
    return int(tag.rpartition(":")[2])


def _within(text: str) -> str:
    """The script that a link runs once it has looked whether its chain is over."""
    end = re.search(r"<<'(END_OF_SCRIPT_\w+)'", text)
    return text[end.end() :].split("\n", 1)[1].split(f"{end[1]}\n", 1)[0] if end else text
