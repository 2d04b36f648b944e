"""The cli backend under the contract of every adapter, on a real Slurm."""

from __future__ import annotations

import os
import shlex
import shutil
from typing import TYPE_CHECKING

import pytest
from backends.contract import HOUR, MINUTE, Contract, Doing, World
from live_world import TestbedWorld

from mirage.backends.cli import CliCluster, past_jobs
from mirage.backends.cli_actuator import CliActuator
from mirage.backends.execution import CommandRunner
from mirage.domain.errors import SubmissionRejected
from mirage.domain.job import JobChange, JobId, JobState
from mirage.domain.link import NO_JOB
from mirage.slurm.rows import CELL

if TYPE_CHECKING:
    from pathlib import Path

    from slurm_testbed import Testbed

COMMANDS = ("squeue", "sinfo", "sacct", "sbatch", "scancel", "scontrol")


class CliWorld(TestbedWorld):
    """Slurm's commands as the user runs them, on the real clock."""

    def __init__(self, testbed: Testbed, programs: Path) -> None:
        super().__init__(testbed)
        user = self.facts.user
        environment = testbed.plain_environment(user)
        path = run_as(user, programs, environment["PATH"])
        self.commands = CommandRunner(environment | {"PATH": path}, timeout=5)
        self.cluster = CliCluster(self.commands, self)
        self.actuator = self.estimator = CliActuator(self.commands, user)


def run_as(user: str, programs: Path, path: str) -> str:
    """A PATH on which each of Slurm's commands runs as ``user``."""
    if os.geteuid() != 0:
        return path
    become = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"]
    for command in COMMANDS:
        real = shutil.which(command, path=path)
        assert real is not None
        program = programs / command
        program.write_text(f'#!/bin/sh\nexec {shlex.join(become)} {real} "$@"\n')
        program.chmod(0o755)
    return f"{programs}:{path}"


class TestCli(Contract):
    """Without root, too, where there is one user and no accounting."""

    @pytest.fixture
    def world(self, testbed: Testbed, tmp_path: Path) -> World:
        return CliWorld(testbed, tmp_path)

    def test_a_pending_job_can_be_held(self, world: CliWorld) -> None:  # type: ignore[override]
        if not world.testbed.privileged:
            pytest.skip("the only user is Slurm's own here, whose holds are an administrator's")
        super().test_a_pending_job_can_be_held(world)


@pytest.fixture
def world(privileged_testbed: Testbed, tmp_path: Path) -> CliWorld:
    return CliWorld(privileged_testbed, tmp_path)


def test_a_refused_submission_leaves_no_link(world: CliWorld) -> None:
    """The controller keeps a record of it, with its tag, as a job that failed."""
    request = world.request(gres_per_node=(("gpu:h100", 1),))
    with pytest.raises(SubmissionRejected):
        world.actuator.submit(request)
    assert request.tag not in world.cluster.snapshot(expected={request.tag: NO_JOB}).links


def test_rows_forged_in_names_and_comments_are_names_and_comments(world: CliWorld) -> None:
    request, job_id = world.submit(held=True)
    forged = CELL.join([str(job_id), str(job_id), "COMPLETED", world.facts.user, *["1"] * 13, request.tag])
    options = [
        "--parsable",
        "-H",
        "-o/dev/null",
        f"--job-name=x\n{forged}\n",
        f"--comment={forged}",
        "--wrap=true",
    ]
    forger = JobId(int(world.testbed.run(world.facts.other_user, ["sbatch", *options]).stdout))
    snapshot = world.cluster.snapshot(expected={request.tag: job_id})
    assert snapshot.links[request.tag].state is JobState.PENDING
    assert sorted(snapshot.pending.job_id.tolist()) == sorted([job_id, forger])


def test_the_past_is_asked_of_accounting(world: CliWorld) -> None:
    before = world.now() - MINUTE
    request, job_id = world.submit(Doing(runs=MINUTE))
    job = world.until(request, JobState.COMPLETED)
    table = past_jobs(world.commands, before, world.now() + HOUR)
    found = dict(zip(table.job_id.tolist(), table.wait.tolist(), strict=True))
    assert found[str(job_id)] == job.start - job.submit
    assert table.user.decode() == [world.facts.user] * len(table)


def test_links_stay_as_they_were_while_slurmdbd_is_down(world: CliWorld) -> None:
    request, job_id = world.submit(Doing(runs=MINUTE))
    world.until(request, JobState.COMPLETED)
    world.forget(job_id)
    expected = {request.tag: job_id}
    world.testbed.service("slurmdbd", "stop")
    try:
        assert world.cluster.snapshot(expected=expected).links[request.tag].state is JobState.COMPLETED
    finally:
        world.testbed.service("slurmdbd", "start")
    assert world.cluster.snapshot(expected=expected).links[request.tag].state is JobState.COMPLETED


def test_a_link_whose_id_was_never_learnt_is_found_in_accounting(world: CliWorld) -> None:
    request, job_id = world.submit(Doing(runs=MINUTE))
    world.until(request, JobState.COMPLETED)
    world.forget(job_id)
    assert world.cluster.snapshot(expected={request.tag: NO_JOB}).links[request.tag].job_id == job_id


def test_a_job_can_be_bound_to_nodes_and_let_go(world: CliWorld) -> None:
    filler = world.fill()
    links = world.cluster.snapshot().links.values()
    (nodes,) = [job.node_list for job in links if job.job_id == filler]
    request, job_id = world.submit(nodes=world.facts.nodes, node_list=nodes, held=True)
    assert world.job(request).node_list == nodes
    world.update(job_id, JobChange(node_list=""))
    assert world.job(request).node_list == ""
