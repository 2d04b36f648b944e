"""A daemon's data from Slurm's commands and a replay's data from the simulator become the same features."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from fake_slurm.fake import NOON, FakeSlurm

from mirage.backends.cli import CliCluster
from mirage.backends.cli_actuator import CliActuator
from mirage.backends.execution import CommandRunner
from mirage.backends.simulated import SimulatedCluster
from mirage.control.observations import ObservationBuilder
from mirage.domain.job import BatchScript, JobRequest
from mirage.domain.jobtable import JobTable, Names, job_table
from mirage.features.schema import encode, schema, schema_names

if TYPE_CHECKING:
    from pathlib import Path

HOUR = 3_600


def load(seed: int = 5, count: int = 400) -> JobTable:
    """Jobs on both partitions of the fake cluster, three days before noon to two after."""
    rng = np.random.default_rng(seed)
    submit = NOON - 72 * HOUR + np.sort(rng.integers(0, 120 * HOUR, count))
    limit = rng.choice([1, 4, 12, 48], count) * HOUR
    return job_table(
        count,
        user=Names.encode([f"u{k}" for k in rng.integers(0, 12, count)]),
        partition=Names.encode(rng.choice(["cpu", "v100"], count, p=[0.7, 0.3]).tolist()),
        submit=submit,
        start=submit,
        end=submit + np.maximum(60, (limit * rng.beta(1, 2, count)).astype(np.int64)),
        limit=limit,
        nodes=rng.choice([1, 1, 2], count).astype(np.int32),
        state=np.full(count, 3, dtype=np.int8),
        source="load",
    )


@pytest.mark.parametrize("partition", ["cpu", "v100"])
def test_slurms_text_and_the_simulator_give_equal_features(tmp_path: Path, partition: str) -> None:
    predecessor = JobRequest(
        "svc",
        "alice",
        30 * HOUR,
        1,
        partition,
        tag="mirage:svc:1",
        batch=BatchScript("#!/bin/sh\n", directory="/"),
    )
    successor = replace(predecessor, tag="mirage:svc:2")
    with FakeSlurm(tmp_path, background=load()) as slurm:
        commands = CommandRunner(slurm.environment("alice"))
        actuator = CliActuator(commands, "alice")
        simulated = SimulatedCluster(slurm.simulation)
        live = ObservationBuilder(simulated, actuator, standings=simulated)
        replayed = ObservationBuilder(simulated, simulated, standings=simulated)
        cluster = CliCluster(commands, slurm)
        job_id = actuator.submit(predecessor)
        busy = 0
        for hour in range(14):
            slurm.advance(HOUR)
            if hour == 5:
                slurm.node("cpu-002", "drain")
                slurm.node("v100-001", "down")
            seen = cluster.snapshot(expected={predecessor.tag: job_id})
            known = replace(simulated.snapshot(), links={predecessor.tag: slurm.job(job_id)})
            for name in schema_names():
                wants = schema(name).wants
                vectors = []
                for observer, snapshot in ((live, seen), (replayed, known)):
                    observer.seen(snapshot, wants)
                    link = snapshot.link(predecessor.tag, "alice")
                    vectors.append(encode(schema(name), observer.observe(snapshot, link, successor, wants)))
                different = np.flatnonzero(vectors[0] != vectors[1])
                assert not len(different), [schema(name).names[k] for k in different]
            busy += len(seen.pending)
        assert busy > 50, "the cluster of this test must be contended"
