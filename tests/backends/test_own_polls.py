"""Polls of one's own links, on fakes: ``squeue`` is asked for the jobs of one user where that suffices."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fake_slurm.fake import FakeSlurm

from mirage.backends.cli import CliCluster
from mirage.backends.cli_actuator import CliActuator
from mirage.backends.execution import CommandRunner
from mirage.domain.job import BatchScript, JobRequest
from mirage.domain.link import LinkIdentity

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mirage.domain.job import JobId


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[FakeSlurm]:
    with FakeSlurm(tmp_path / "slurm") as running:
        yield running


def submitted(slurm: FakeSlurm, user: str, tag: str) -> JobId:
    """A job of this user's that waits or runs."""
    script = BatchScript("#!/bin/sh\nsleep infinity\n")
    request = JobRequest("svc", user, 3_600, partition="cpu", tag=tag, batch=script)
    return CliActuator(CommandRunner(slurm.environment(user)), user).submit(request)


def own_view(slurm: FakeSlurm) -> CliCluster:
    """As a daemon of alice's sees the cluster."""
    return CliCluster(CommandRunner(slurm.environment("alice")), slurm, "alice")


def test_a_poll_of_ones_own_links_leaves_the_jobs_of_others_out(slurm: FakeSlurm) -> None:
    tag = "mirage:c1:1"
    other, job_id = submitted(slurm, "bob", ""), submitted(slurm, "alice", tag)
    cluster, alices = own_view(slurm), {tag: LinkIdentity(tag, "alice")}
    slurm.calls.clear()
    seen = cluster.snapshot(queue=False, expected={tag: job_id}, identities=alices)
    (call,) = slurm.calls
    assert call.command == "squeue"
    assert {"--local", "--user=alice"} <= set(call.arguments)
    assert {job.job_id for job in seen.links.values()} == {job_id}
    assert len(seen.pending) == len(seen.running) == 0
    whole = cluster.snapshot(expected={tag: job_id}, identities=alices)
    assert {*whole.pending.job_id, *whole.running.job_id} >= {other, job_id}


@pytest.mark.parametrize("known", [{}, {"mirage:c1:1": LinkIdentity("mirage:c1:1", "bob")}])
def test_a_poll_shows_all_where_a_link_may_be_another_users(slurm: FakeSlurm, known: dict) -> None:
    job_id = submitted(slurm, "bob", "")
    slurm.calls.clear()
    own_view(slurm).snapshot(queue=False, expected={"mirage:c1:1": job_id}, identities=known)
    asked = [call for call in slurm.calls if call.command == "squeue"]
    assert not any(argument.startswith("--user") for call in asked for argument in call.arguments)
