"""An Operator's rights reach no job: the daemon does not do for an owner what Slurm denies to that owner."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING

import pytest
from fake_slurm.fake import FakeSlurm

from mirage.backends.cli_actuator import CliActuator
from mirage.backends.execution import CommandRunner
from mirage.backends.operator import OperatorActuator
from mirage.domain.errors import NotPermitted, UnknownJob
from mirage.domain.job import BatchScript, JobChange, JobId, JobRequest, SignalReach

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

REQUEST = JobRequest(
    "svc", "alice", 3_600, partition="cpu", held=True, tag="mirage:svc:1", batch=BatchScript("#!/bin/sh\n")
)


class Operated:
    """A Slurm on which ``mirage`` is Operator and alice has jobs."""

    def __init__(self, slurm: FakeSlurm) -> None:
        self.slurm = slurm
        self.alice = CliActuator(CommandRunner(slurm.environment("alice")), "alice")
        self.root = CommandRunner(slurm.environment("root"))
        self.operator = OperatorActuator(CommandRunner(slurm.environment("mirage")))

    def job(self, **changes: object) -> JobId:
        return self.alice.submit(replace(REQUEST, **changes))  # type: ignore[arg-type]

    def acts(self) -> list[list[str]]:
        """The changes that the Operator made."""
        by_mirage = (call for call in self.slurm.calls if call.user == "mirage")
        return [[call.command, *call.arguments] for call in by_mirage if call.command in ("scontrol", "scancel")]


@pytest.fixture
def operated(tmp_path: Path) -> Iterator[Operated]:
    with FakeSlurm(tmp_path, operators=("mirage",)) as slurm:
        yield Operated(slurm)


@pytest.mark.parametrize("nice", [-1, -5, -2_000_000_000])
def test_nice_below_zero_is_denied(operated: Operated, nice: int) -> None:
    job_id = operated.job()
    with pytest.raises(NotPermitted):
        operated.operator.update(job_id, "alice", JobChange(nice=nice))
    assert operated.acts() == []


def test_a_links_owner_gets_hold_release_and_nice(operated: Operated) -> None:
    job_id = operated.job()
    operated.operator.update(job_id, "alice", JobChange(nice=40, held=False))
    job = operated.slurm.job(job_id)
    assert (job.held, job.nice) == (False, 40)


def test_a_held_job_can_be_released_by_its_owner(operated: Operated) -> None:
    waiting = operated.job(held=False, begin=operated.slurm.now() + 3_600)
    operated.operator.update(waiting, "alice", JobChange(held=True))
    assert operated.slurm.job(waiting).held
    operated.alice.update(waiting, "alice", JobChange(held=False))
    assert not operated.slurm.job(waiting).held


@pytest.mark.parametrize("held", [True, False])
def test_an_admin_hold_stands(operated: Operated, held: bool) -> None:
    """An Operator's ``release`` would end it, an Operator's ``uhold`` would make it one that the owner can end."""
    job_id = operated.job()
    operated.root.run(["scontrol", "hold", str(job_id)])
    with pytest.raises(NotPermitted):
        operated.operator.update(job_id, "alice", JobChange(held=held))
    assert operated.acts() == []
    assert job_id in operated.slurm.held_by_admin


@pytest.mark.parametrize("state", ["SPECIAL_EXIT", "REQUEUE_HOLD", "RESV_DEL_HOLD", "REQUEUED"])
def test_an_admin_hold_after_a_requeue_stands(operated: Operated, state: str) -> None:
    """Slurm calls the state of such a job by another word, which its owner can bring about."""
    job_id = operated.job()
    operated.root.run(["scontrol", "hold", str(job_id)])
    operated.slurm.words[job_id] = state
    for change in (JobChange(held=True), JobChange(held=False)):
        with pytest.raises(NotPermitted):
            operated.operator.update(job_id, "alice", change)
    assert operated.acts() == []
    assert job_id in operated.slurm.held_by_admin


@pytest.mark.parametrize("reason", ["launch failed requeued held", "launch_failed_requeued_held"])
def test_hold_of_a_failed_launch_is_released_as_its_owner_could(operated: Operated, reason: str) -> None:
    job_id = operated.job()
    operated.slurm.reasons[job_id] = reason
    operated.operator.update(job_id, "alice", JobChange(held=False))
    assert not operated.slurm.job(job_id).held


def test_a_free_job_is_not_released_again(operated: Operated) -> None:
    """Releasing it would revert a priority that an administrator has set."""
    job_id = operated.job(held=False, begin=operated.slurm.now() + 3_600)
    operated.operator.update(job_id, "alice", JobChange(held=False))
    assert operated.acts() == []


def test_only_links_of_the_owner_are_touched(operated: Operated) -> None:
    link, other = operated.job(), operated.job(tag="")
    for job_id, owner in ((link, "bob"), (other, "alice")):
        with pytest.raises(NotPermitted):
            operated.operator.cancel(job_id, owner)
        with pytest.raises(NotPermitted):
            operated.operator.update(job_id, owner, JobChange(held=False))
        with pytest.raises(NotPermitted):
            operated.operator.signal(job_id, owner, "TERM", reach=SignalReach.ALL)
    with pytest.raises(UnknownJob):
        operated.operator.cancel(JobId(999), "alice")
    assert operated.acts() == []


def test_a_change_names_nothing_else_that_slurm_guards() -> None:
    """Priority, QOS, partition, account, reservation, time limit and features have no way to the Operator."""
    assert {field.name for field in fields(JobChange)} == {"held", "nice", "begin", "node_list", "dependencies"}
