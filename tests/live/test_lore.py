"""What a real Slurm reports of itself beyond its queue: all jobs, standings, configuration."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import pytest

from mirage.backends.cli import past_jobs
from mirage.backends.execution import CommandRunner
from mirage.backends.owner_limits import CliStandings
from mirage.backends.rest import RestCluster
from mirage.backends.restclient import Credentials, RestAddress, RestClient
from mirage.bootstrap.backends import copied_from_slurm, described_by_slurm
from mirage.domain.decision import NO_LIMIT
from mirage.domain.job import JobRequest, JobState
from mirage.simulator.configuration.clusterfile import load_cluster

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from slurm_testbed import Testbed

    from mirage.domain.jobtable import JobTable

HOUR = 3_600


@pytest.fixture
def commands(privileged_testbed: Testbed) -> CommandRunner:
    return CommandRunner(privileged_testbed.plain_environment("alice"))


def test_standings_are_known_and_limits_count_what_runs(
    privileged_testbed: Testbed, commands: CommandRunner
) -> None:
    testbed = privileged_testbed
    submit = ["sbatch", "--parsable", "-A", "limited", "-p", "cpu", "-t60", "-o/dev/null", "--wrap=sleep 600"]
    job_id = testbed.run("alice", submit).stdout.strip()
    shown = ["squeue", "-h", "-j", job_id, "-o", "%T"]
    testbed.wait_until(lambda: testbed.run("alice", shown).stdout.strip() == "RUNNING", 60, "the job")
    standings = CliStandings(commands, testbed)
    assert standings.refresh() == "fair shares, limits and reservations are available"
    limited = standings.standing(JobRequest("svc", "alice", HOUR, partition="cpu", account="limited"))
    usual = standings.standing(JobRequest("svc", "alice", HOUR, partition="cpu"))
    assert (limited.jobs_left, usual.jobs_left) == (0, NO_LIMIT), "MaxJobs is 1 in that account"
    assert not math.isnan(limited.fair_share)
    assert not math.isnan(usual.fair_share)


@pytest.fixture(params=["sacct", "slurmrestd"])
def past(
    request: pytest.FixtureRequest, privileged_testbed: Testbed, commands: CommandRunner, tmp_path: Path
) -> Callable[[int, int], JobTable]:
    """Who is asked for the jobs between two times."""
    if request.param == "sacct":
        return partial(past_jobs, commands)
    token = tmp_path / "alice.jwt"
    token.write_text(privileged_testbed.token("alice"))
    client = RestClient(RestAddress.parse(privileged_testbed.rest), Credentials("alice", str(token)), timeout=30)
    return RestCluster(client, privileged_testbed).past_jobs


def test_all_jobs_of_the_past_are_told_with_what_they_had(
    privileged_testbed: Testbed, past: Callable[[int, int], JobTable]
) -> None:
    testbed, before = privileged_testbed, int(privileged_testbed.now()) - 60
    submit = ["sbatch", "--parsable", "-p", "cpu", "-N2", "-t60", "-J", "run-7", "-o/dev/null", "--wrap=true"]
    job_id = testbed.run("bob", submit).stdout.strip()

    def ended() -> bool:
        table = past(before, int(testbed.now()) + HOUR)
        return job_id in table.job_id and table.state[table.job_id == job_id][0] == JobState.COMPLETED

    testbed.wait_until(ended, 60, "the job's end in the accounting")
    table = past(before, int(testbed.now()) + HOUR)
    (row,) = (int(k) for k in (table.job_id == job_id).nonzero()[0])
    assert (table.user[row], table.name[row], table.partition[row]) == ("bob", "run-7", "cpu")
    assert (table.account[row], table.nodes[row], table.limit[row]) == ("research", 2, HOUR)
    assert table.submit[row] <= table.start[row] <= table.end[row]
    assert table.cpus[row] >= 2
    assert job_id not in past(before - HOUR, before).job_id


def test_the_cluster_is_as_its_own_slurm_conf_says(
    privileged_testbed: Testbed, commands: CommandRunner, tmp_path: Path
) -> None:
    found = described_by_slurm("", commands)
    assert found.node_count == len(privileged_testbed.nodes)
    assert next(row.max_jobs for row in found.associations if (row.account, row.user) == ("limited", "alice")) == 1
    assert load_cluster(copied_from_slurm("", commands, tmp_path)).partitions == found.partitions
