"""Limits on one job: rejected at submission, from outside and from a trace alike (EnforcePartLimits)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mirage.domain.errors import SubmissionRejected, TraceError
from mirage.domain.job import JobRequest
from mirage.domain.jobtable import JobTable, Names, job_table
from mirage.simulator.cluster import (
    Association,
    ClusterConfig,
    NodeGroup,
    Partition,
    PriorityWeights,
    Qos,
    SchedulerParameters,
    TresLimit,
)
from mirage.simulator.simulation import Simulation

NAMES = ("n1", "n2", "n3", "n4")
PLAIN = ClusterConfig("c", (NodeGroup(NAMES, cpus=2),), (Partition("p", NAMES, exclusive=True, max_time=9000),))
ANN = (Association("a", max_wall=3600), Association("a", "ann"))
SHORT = (Qos("short", max_wall=1800),)
NARROW = (Qos("narrow", max_tres_per_job=TresLimit((("node", 2),))),)


@pytest.mark.parametrize(
    ("config", "request_", "reason"),
    [
        (PLAIN, JobRequest("j", "ann", 9001), "PartitionTimeLimit"),
        (PLAIN, JobRequest("j", "ann", 60, nodes=5), "PartitionNodeLimit"),
        (
            replace(PLAIN, associations=ANN),
            JobRequest("j", "ann", 3601, account="a"),
            "AssocMaxWallDurationPerJobLimit",
        ),
        (replace(PLAIN, qos=SHORT), JobRequest("j", "ann", 1801, qos="short"), "QOSMaxWallDurationPerJobLimit"),
        (replace(PLAIN, qos=NARROW), JobRequest("j", "ann", 60, nodes=3, qos="narrow"), "QOSMaxTRESPerJob"),
        (replace(PLAIN, qos=SHORT), JobRequest("j", "ann", 60, qos="other"), "InvalidQOS"),
        (replace(PLAIN, enforce_associations=True), JobRequest("j", "ann", 60), "InvalidAccount"),
    ],
)
def test_impossible_jobs_are_refused_and_counted(config: ClusterConfig, request_: JobRequest, reason: str) -> None:
    with pytest.raises(SubmissionRejected) as refused:
        Simulation(config, start=0).submit(request_, 10)
    assert refused.value.reason == reason
    if not config.enforce_associations:
        fitting = JobRequest("j", "ann", 60)
        assert Simulation(config, _table(request_, fitting, request_)).rejected == {reason: 2}
    with pytest.raises(TraceError, match=f"rejects all 2 jobs .{reason} 2"):
        Simulation(config, _table(request_, request_))


def _table(*requests: JobRequest) -> JobTable:
    count = len(requests)
    return job_table(
        count,
        submit=np.zeros(count, dtype=np.int64),
        start=np.zeros(count, dtype=np.int64),
        end=np.full(count, 5),
        limit=np.array([request.limit for request in requests]),
        nodes=np.array([request.nodes for request in requests], dtype=np.int32),
        user=Names.encode([request.user for request in requests]),
        account=Names.encode([request.account for request in requests]),
        qos=Names.encode([request.qos for request in requests]),
    )


def test_a_capped_job_is_overtaken_while_nothing_else_happens() -> None:
    """PriorityMaxAge: the old job's age counts no further, the other's does, and it starts as soon as it leads.

    The old job waits for all nodes; the other fits on the free one, but runs past the old job's planned start.
    Old: 1000 from second 1001 on. Other: 300 + (t - 900), above 1000 from the period that begins at 1800.
    """
    config = replace(
        PLAIN,
        qos=(Qos("up", priority=1),),
        priority=PriorityWeights(age=1000, qos=300, max_age=1000, calc_period=300),
        scheduler=SchedulerParameters(bf_window=30_000, bf_interval=30),
    )
    sim = Simulation(config, start=0)
    sim.submit(JobRequest("long", "ann", 9000, nodes=3), 9000)
    sim.run_until(1)
    old = sim.submit(JobRequest("old", "bob", 9000, nodes=4), 100)
    sim.run_until(900)
    other = sim.submit(JobRequest("other", "cat", 9000, qos="up"), 100)
    sim.run_until(8000)
    assert 1800 <= sim.job(other).start <= 1860
    assert sim.job(old).start == -1
