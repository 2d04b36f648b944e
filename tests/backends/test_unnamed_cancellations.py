"""Accounting does not name who cancelled a job: a slurmctld that was started again, or one that lost the job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from backends.contract import HOUR
from backends.test_cli import FakeWorld
from fake_slurm.fake import FakeSlurm

from mirage.backends.cli import CliLinkAccounting
from mirage.backends.execution import CommandRunner
from mirage.domain.job import JobState
from mirage.slurm.job_state import parse_end

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mirage.domain.job import Job


@pytest.fixture
def world(tmp_path: Path) -> Iterator[FakeWorld]:
    with FakeSlurm(tmp_path / "slurm", canceller="") as running:
        yield FakeWorld(running)


def cancelled_unseen(world: FakeWorld, *, pending: bool, started_after: int) -> Job:
    """A link's job that is cancelled, and not in the queue any more as it is looked for."""
    if pending:
        world.fill()
    request, job_id = world.submit()
    world.until(request, JobState.PENDING if pending else JobState.RUNNING)
    world.actuator.cancel(job_id, world.facts.user)
    cancelled = world.slurm.now()
    world.slurm.told["scontrol", "config"] = f"BOOT_TIME               = {cancelled + started_after}\n"
    world.slurm.advance(HOUR)
    assert request.tag
    return world.cluster.snapshot(expected={request.tag: job_id}).links[request.tag]


@pytest.mark.parametrize("pending", [False, True])
def test_a_job_that_ended_before_slurmctld_was_started_was_cancelled(world: FakeWorld, pending: bool) -> None:
    assert cancelled_unseen(world, pending=pending, started_after=600).state is JobState.CANCELLED


@pytest.mark.parametrize("pending", [False, True])
def test_a_job_that_ended_as_slurmctld_was_started_was_lost(world: FakeWorld, pending: bool) -> None:
    assert cancelled_unseen(world, pending=pending, started_after=-600).state is JobState.NODE_FAIL


def test_a_job_that_a_signal_ended_was_cancelled() -> None:
    """A cancelled job in Slurm 22.05.8 after slurmctld was started again: CANCELLED, exit code 0:15."""
    assert parse_end("CANCELLED", 128 + 15) is JobState.CANCELLED
    assert parse_end("CANCELLED", 0) is JobState.NODE_FAIL


@pytest.mark.parametrize(
    ("canceller", "ran", "state"),
    [
        ("0", 0, JobState.BOOT_FAIL),
        ("0", 2, JobState.BOOT_FAIL),
        ("root", 2, JobState.BOOT_FAIL),
        ("0", 300, JobState.CANCELLED),
        ("1001", 2, JobState.CANCELLED),
    ],
)
@pytest.mark.parametrize("forgotten", [False, True])
def test_a_job_that_root_cancels_as_it_starts_was_not_launched(
    tmp_path: Path, canceller: str, ran: int, state: JobState, forgotten: bool
) -> None:
    """Slurm cancels in root's name where a prolog fails and the job may not be requeued, one writer's.

    Until slurmctld forgets the job, the queue says that it was cancelled, and not by whom.
    """
    with FakeSlurm(tmp_path / "slurm", canceller=f" by {canceller}") as running:
        world = FakeWorld(running)
        request, job_id = world.submit()
        world.until(request, JobState.RUNNING)
        world.slurm.advance(max(0, ran - (world.slurm.now() - world.until(request, JobState.RUNNING).start)))
        world.actuator.cancel(job_id, world.facts.user)
        world.slurm.advance(HOUR if forgotten else 40)
        assert request.tag
        job = world.cluster.snapshot(expected={request.tag: job_id}).links[request.tag]
        assert (job.state, job.end - job.start >= ran) == (state, True)


def test_a_restored_database_learns_that_a_link_was_cancelled(world: FakeWorld) -> None:
    job_id = cancelled_unseen(world, pending=False, started_after=600).job_id
    accounting = CliLinkAccounting(CommandRunner(world.slurm.environment("alice")))
    found = accounting.past_links(0, world.slurm.now(), {job_id})
    assert found is not None
    assert [job.state for job in found.jobs] == [JobState.CANCELLED]
