"""A controller that has lost its state gives job IDs again: its chains continue, and the new jobs are left
alone."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest
from fake_slurm.answers import answer_call
from fake_slurm.fake import HOUR, Call, FakeSlurm
from fakes import MIN, FakeCluster, chain

from mirage.backends.cli import CliCluster
from mirage.backends.cli_actuator import CliActuator
from mirage.backends.execution import CommandOutput
from mirage.backends.links_only import LinkGuard
from mirage.backends.user_side import identify
from mirage.control.commands import CommandQueue
from mirage.control.dependencies import LoopDependencies, LoopSettings
from mirage.control.guard import Guards, PredictorGuard
from mirage.control.loop import ControlLoop
from mirage.control.stores import MemoryJournal, MemoryStore
from mirage.domain.chain import ChainRecord, ChainStatus, DoneCondition
from mirage.domain.command import CancelChain
from mirage.domain.errors import ClusterUnavailable
from mirage.domain.job import BatchScript, JobId, JobRequest, JobState
from mirage.domain.link import LinkState
from mirage.predictors.registry import build_predictor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


@dataclass(frozen=True)
class Shell:
    """Slurm's commands as alice runs them, answered within this process."""

    slurm: FakeSlurm
    environment: dict[str, str] = field(default_factory=dict)

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        environment: Mapping[str, str] | None = None,
        launch: object = None,
    ) -> CommandOutput:
        del launch
        if argv[0] == "sacct" and self.slurm.accounting_down:
            raise ClusterUnavailable("sacct: connection refused")
        call = Call(argv[0], list(argv[1:]), dict(environment or {}), stdin.decode(), "alice")
        answer = answer_call(self.slurm, call)  # type: ignore[arg-type]
        return CommandOutput(answer.status, answer.out, answer.err)


class Site:
    """One chain of alice's in mode ``own``; ``restart`` keeps the stored chains alone."""

    def __init__(self, slurm: FakeSlurm) -> None:
        self.slurm = slurm
        batch = BatchScript("#!/bin/sh\nsleep infinity\n")
        service = replace(chain(), request=JobRequest("svc", "", HOUR, batch=batch), done=DoneCondition())
        self.store = MemoryStore(ChainRecord(service))
        self.restart()

    def restart(self) -> None:
        self.journal = self.store.journal = MemoryJournal()
        self.commands = CommandQueue()
        shell: Any = Shell(self.slurm)
        self.actuator, unused = CliActuator(shell, "alice"), FakeCluster()
        guard = LinkGuard(CliCluster(shell, self.slurm), self.actuator, lambda job_id, _: identify(shell, job_id))
        outside = LoopDependencies(
            guard, guard, self.actuator, unused, self.slurm, self.store, self.journal, unused, self.commands
        )
        always = PredictorGuard(build_predictor("reactive"), build_predictor("reactive"))
        self.loop = ControlLoop(outside, Guards(always), LoopSettings())

    def cycle(self, seconds: int = MIN) -> ChainRecord:
        self.slurm.advance(seconds)
        self.loop.cycle()
        self.record.check()
        return self.record

    @property
    def record(self) -> ChainRecord:
        (record,) = self.store.load()
        return record

    def own_job(self, name: str, minutes: int) -> JobId:
        script = BatchScript(f"#!/bin/sh\n#FAKE runs={minutes * 60} exit=0\n")
        return self.actuator.submit(JobRequest(name, "alice", HOUR, batch=script))

    def lose_state(self) -> JobId:
        """The controller loses its state, and jobs of alice's own get the numbers; the one with the link's."""
        (link,) = [link for link in self.record.live if link.job_id]
        self.slurm.lose_state()
        while (job_id := self.own_job("own16", 20)) < link.job_id:
            assert len(self.slurm.jobs()) < 100
        assert job_id == link.job_id
        return job_id


@pytest.fixture(params=[True, False], ids=["comments kept", "no comments"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Site:
    site = Site(FakeSlurm(tmp_path, comments_accounted=request.param))
    site.own_job("before", 1)
    while not (site.record.head and site.record.head.running):
        site.cycle()
    return site


@pytest.mark.parametrize("away", [False, True], ids=["at once", "restarted"])
def test_reused_id_of_a_job_without_mark_ends_no_chain(site: Site, away: bool) -> None:
    """The reported case: a job of the owner's with the number of a link ends with 0, and the chain was done."""
    job_id = site.lose_state()
    if away:
        site.restart()
    for _ in range(40):
        record = site.cycle()
    first, *later = record.links
    assert (first.state, first.job_state) == (LinkState.ENDED, JobState.NODE_FAIL)
    assert site.slurm.job(job_id).state is JobState.COMPLETED
    assert record.status is ChainStatus.ACTIVE
    (second,) = later
    assert second.running
    assert second.job_id != job_id
    assert site.slurm.job(second.job_id).tag == second.tag


def test_reused_id_of_a_job_without_mark_is_never_acted_on(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    job_id = site.lose_state()
    site.commands.put(CancelChain(site.record.chain.chain_id, "alice"))
    for _ in range(12):
        site.cycle()
    assert site.record.status is ChainStatus.STOPPED
    assert not site.record.live
    assert site.slurm.job(job_id).state is JobState.RUNNING
    assert sum("event=job_id_reused" in message for message in caplog.messages) == 1


@pytest.mark.parametrize("away", [False, True], ids=["at once", "restarted"])
def test_reused_id_is_not_cancelled_while_accounting_is_away(site: Site, away: bool) -> None:
    """The state of the link is unknown, and its job ID is the only handle for an action."""
    job_id = site.lose_state()
    site.slurm.accounting_down = True
    if away:
        site.restart()
    site.commands.put(CancelChain(site.record.chain.chain_id, "alice"))
    for _ in range(5):
        site.cycle()
    assert site.slurm.job(job_id).state is JobState.RUNNING


def test_link_with_an_edited_comment_stays_the_link_and_can_be_cancelled(site: Site) -> None:
    (link,) = site.record.live
    assert link.job_submit == site.slurm.job(link.job_id).submit
    site.slurm.set_comment(link.job_id, "mine: do not touch")
    site.restart()
    assert site.cycle().links == (link,)
    site.commands.put(CancelChain(site.record.chain.chain_id, "alice"))
    site.cycle()
    assert site.slurm.job(link.job_id).state is JobState.CANCELLED


def test_link_that_left_no_comment_in_accounting_is_found_by_its_submit_time(site: Site) -> None:
    (link,) = site.record.live
    site.slurm.simulation.cancel(link.job_id)
    site.slurm.advance(site.slurm.min_job_age + MIN)
    site.restart()
    assert site.cycle().links[0].job_state is JobState.CANCELLED
