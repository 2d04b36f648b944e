"""Actions of people: other time limits, holds, limits of users, drained nodes, edited scripts, garbage."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from chaos.episodes import Episodes
from fake_slurm.answers import answer_call
from fake_slurm.fake import Call

from mirage.domain.chain import Chain, ChainId, ChainStatus
from mirage.domain.command import AddChain, CancelChain, PauseChain, ResumeChain
from mirage.domain.job import JobState

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mirage.domain.command import Command
    from mirage.domain.job import Job

OWNERS = ("alice", "bob")
SCRIPT = "job.sh"
"""The script of a chain, in its directory."""
SUBMIT_LIMITS = ("AssocMaxSubmitJobLimit", "QOSMaxSubmitJobPerUserLimit")
NO_SUCH_CHAIN = ChainId("no-such-chain")
LONGEST = 3_600
"""Seconds for which anything lasts at most."""


@dataclass
class People(Episodes):
    """Actions of people, drawn at random; ``clear`` reverts all that can be reverted."""

    posts: int = 0
    drained_for_good: set[str] = field(default_factory=set)
    """One node at most: its owner wants it back only after the round."""

    def plan(self, deeds: Sequence[Callable[[People], None]], begin: int, until: int, count: int) -> None:
        """Draw ``count`` actions between ``begin`` and ``until``."""
        self.draw(dict.fromkeys(deeds, 1.0), begin, until, count)

    def clear(self) -> None:
        """The user who has stopped something lets it continue."""
        self.end_all()

    # Time limits

    def limit_lowered(self) -> None:
        """To a minute or two from now: often within the time for which the job was promised a warning."""
        if job := self._link(JobState.RUNNING, JobState.PENDING):
            ran = (self.ctld.now - job.start) // 60 if job.state is JobState.RUNNING else 10
            self._limit(job, 60 * (ran + int(self.rng.integers(-1, 3))))

    def limit_raised(self) -> None:
        """Often just after the job was warned of its limit, while it saves its state."""
        if job := self._warned() or self._link(JobState.RUNNING, JobState.PENDING):
            self._limit(job, job.limit + 60 * int(self.rng.integers(1, 20)))

    def limit_raised_again(self) -> None:
        """Lowered, and raised when the job has been warned of the lower limit."""
        if job := self._link(JobState.RUNNING):
            former, ran = job.limit, (self.ctld.now - job.start) // 60
            self._limit(job, min(former, 60 * (ran + 5)))
            self.ctld.at(self.ctld.now + int(self.rng.integers(60, 300)), lambda: self._raise(job, former))

    # Holds

    def held_by_admin(self) -> None:
        self._hold("root", "the administrator")

    def held_by_owner(self) -> None:
        self._hold("", "its owner")

    def released(self) -> None:
        """Also one that Mirage holds until its predecessor's end is near."""
        held = [job for job in self._links(JobState.PENDING) if job.held]
        if job := self._one_of(held):
            self._command("root", "scontrol", "release", str(job.job_id))
            self._happens(f"job {job.job_id} ({job.tag}) is released manually")

    # Jobs

    def requeued(self) -> None:
        if job := self._link(JobState.RUNNING):
            self.ctld.requeue(job.job_id)
            self._happens(f"job {job.job_id} ({job.tag}) is requeued manually")

    def successor_cancelled(self) -> None:
        """One that Mirage waits for: what it does then is the chain's policy."""
        awaited = [
            (record, record.waiting.job_id)
            for record in self._records()
            if record.waiting and record.status is ChainStatus.ACTIVE
        ]
        pending = {job.job_id: job for job in self._links(JobState.PENDING) if not self.ctld.runs(job.job_id)}
        found = [(record, pending[job_id]) for record, job_id in awaited if job_id in pending]
        if job := self._one_of([job for _, job in found]):
            chain_id = next(record.chain.chain_id for record, each in found if each is job)
            self._command(job.user, "scancel", str(job.job_id))
            self._happens(f"job {job.job_id} ({job.tag}) is cancelled while it waits")
            self.oracle.successor_cancelled(chain_id, job.job_id)

    # Users, nodes and the disk

    def submissions_limited(self) -> None:
        user, most = OWNERS[int(self.rng.integers(2))], int(self.rng.integers(0, 3))
        self.ctld.submit_limits[user] = (most, SUBMIT_LIMITS[int(self.rng.integers(2))])
        lift = self.ctld.submit_limits.pop
        self._for(self._while(LONGEST), f"{user} may have {most} jobs", lambda: lift(user, None))

    def node_drained(self) -> None:
        """For a while; one of them for longer than anything waits."""
        nodes = self.ctld.nodes
        node = nodes[int(self.rng.integers(len(nodes)))]
        if node in self.drained_for_good:
            return
        self.ctld.node_drain(node)
        if not self.drained_for_good and self.rng.random() < 0.5:
            self.drained_for_good.add(node)
            self._happens(f"{node} is drained for good")
        else:
            self._for(self._while(LONGEST), f"{node} is drained", lambda: self.ctld.node_resume(node))

    def store_read_only(self) -> None:
        """The state directory is full, or was mounted read-only."""
        self.daemon.read_only = True
        self._for(self._while(LONGEST), "the state is read-only", lambda: setattr(self.daemon, "read_only", False))

    def script_edited(self) -> None:
        """Links run what was submitted, whatever becomes of the file."""
        chain = self._chain()
        script = Path(chain.request.batch.directory, SCRIPT) if chain.request.batch else None
        if script is None or not script.exists():
            return
        if self.rng.random() < 0.5:
            script.unlink()
            self._happens(f"the script of {chain.chain_id} is deleted")
        else:
            script.write_text("#!/bin/sh\nexit 1\n")
            self._happens(f"the script of {chain.chain_id} is overwritten")

    # Commands

    def garbage_posted(self) -> None:
        """Commands of other users arrive among it: each gets a separate answer."""
        if not self.daemon.runs:
            return
        self.posts += 1
        chain = self._chain()
        good = ResumeChain(chain.chain_id, "chaos") if self._active(chain.chain_id) else None
        for bad in self._garbage(chain):
            self._post(bad, good=False)
            if good is not None:
                self._post(good, good=True)
                self.oracle.resume_asked(chain.chain_id)
        self._post(AddChain(self._hopeless(chain), "carol"), good=True)
        self._happens("carol posts garbage")

    def _garbage(self, chain: Chain) -> list[Command]:
        known = [each for each in self._records() if each.chain.chain_id == chain.chain_id]
        taken: list[Command] = [AddChain(chain, "carol")] if known else []
        return [
            *taken,
            AddChain(replace(chain, chain_id=ChainId("g"), predictor="fixed:" + "9" * 5_000), "carol"),
            PauseChain(NO_SUCH_CHAIN, "carol"),
            ResumeChain(ChainId("\x00\ud800"), "carol"),
            CancelChain(ChainId("x" * 100_000), "carol"),
        ]

    def _hopeless(self, chain: Chain) -> Chain:
        """One that Slurm will never accept."""
        request = replace(chain.request, partition="no-such-partition", nice=-2_000_000_000)
        return replace(chain, chain_id=ChainId(f"g{self.posts}"), owner="carol", request=request)

    def _post(self, command: Command, *, good: bool) -> None:
        if answer := self.daemon.ask(command):
            self.oracle.posted(answer, command, good=good)

    # How

    def _links(self, *states: JobState) -> list[Job]:
        return [job for job in self.ctld.live() if self.ctld.request(job.job_id).tag and job.state in states]

    def _link(self, *states: JobState) -> Job | None:
        return self._one_of(self._links(*states))

    def _warned(self) -> Job | None:
        return self._one_of([job for job in self._links(JobState.RUNNING) if self.ctld.warned(job.job_id)])

    def _limit(self, job: Job, seconds: int) -> None:
        limit = max(60, seconds)
        self.ctld.set_limit(job.job_id, limit)
        self._happens(f"the limit of job {job.job_id} ({job.tag}) is {limit // 60} min, was {job.limit // 60} min")

    def _raise(self, job: Job, limit: int) -> None:
        now = self.ctld.last(job.job_id)
        if now.state is JobState.RUNNING and now.limit < limit:
            self._limit(now, limit)

    def _hold(self, by: str, name: str) -> None:
        """An administrator's hold is more than a user's: the owner cannot release it."""
        pending = self._links(JobState.PENDING)
        if job := self._one_of([job for job in pending if not job.held or (by and not self._is_admins(job))]):
            self._command(by or job.user, "scontrol", "hold", str(job.job_id))
            self._for(self._while(LONGEST), f"job {job.job_id} is held by {name}", lambda: self._release(job))

    def _is_admins(self, job: Job) -> bool:
        return job.job_id in self.ctld.held_by_admin

    def _release(self, job: Job) -> None:
        now = self.ctld.last(job.job_id)
        if now.held and not now.state.finished and not self.ctld.lost(job.job_id):
            self._command("root", "scontrol", "release", str(job.job_id))

    def _command(self, user: str, *words: str) -> None:
        call = Call(words[0], list(words[1:]), {}, "", user)
        answer = answer_call(self.daemon.line.slurm, call)  # type: ignore[arg-type]
        assert not answer.status, answer

    def _chain(self) -> Chain:
        names = sorted(self.oracle.chains)
        return self.oracle.chains[names[int(self.rng.integers(len(names)))]]

    def _active(self, chain_id: ChainId) -> bool:
        return any(
            record.chain.chain_id == chain_id and record.status is ChainStatus.ACTIVE for record in self._records()
        )


DEEDS: tuple[Callable[[People], None], ...] = (
    People.limit_lowered,
    People.limit_raised,
    People.limit_raised_again,
    People.held_by_admin,
    People.held_by_owner,
    People.released,
    People.requeued,
    People.successor_cancelled,
    People.submissions_limited,
    People.node_drained,
    People.store_read_only,
    People.script_edited,
    People.garbage_posted,
)
"""All that people do."""
