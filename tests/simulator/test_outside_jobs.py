"""A job that is submitted from outside is treated as the same job of the trace would be."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_clusters import HOUR, T0, ask, cluster, weights

from mirage.domain.job import JobState
from mirage.domain.jobtable import JobTable, Names, job_table
from mirage.simulator.simulation import Simulation

NODES = 3
PRIORITIES = {
    "first come, first served": weights(),
    "age": weights(age=1_000),
    "age that soon counts no further": weights(age=1_000, max_age=600),
}
Shape = tuple[int, int, int]
"""Nodes, limit and run time of a job."""


def table(submit: list[int], shapes: list[Shape]) -> JobTable:
    nodes, limit, runtime = (np.array(column, dtype=np.int64) for column in zip(*shapes, strict=True))
    return job_table(
        len(submit),
        job_id=np.array([str(number) for number in range(101, 101 + len(submit))]),
        user=Names.encode(["ann"] * len(submit)),
        submit=T0 + np.array(submit, dtype=np.int64),
        start=T0 + np.array(submit, dtype=np.int64),
        end=T0 + np.array(submit, dtype=np.int64) + runtime,
        limit=limit,
        nodes=nodes.astype(np.int32),
        state=np.full(len(submit), JobState.COMPLETED, dtype=np.int8),
    )


shapes = st.tuples(st.integers(1, NODES), st.sampled_from([HOUR, 4 * HOUR]), st.integers(600, HOUR))


@pytest.mark.parametrize("name", PRIORITIES)
@settings(max_examples=40, deadline=None)
@given(
    jobs=st.lists(
        st.tuples(st.integers(0, 4 * HOUR), shapes), min_size=2, max_size=14, unique_by=lambda job: job[0]
    ),
    which=st.integers(0, 13),
)
def test_job_from_outside_starts_as_one_of_the_trace(name: str, jobs: list[tuple[int, Shape]], which: int) -> None:
    config = cluster(NODES, priority=PRIORITIES[name])
    jobs.sort()
    which %= len(jobs)
    submit, (nodes, limit, runtime) = jobs[which]
    whole = Simulation(config, table(*map(list, zip(*jobs, strict=True))), start=T0)
    rest = [job for place, job in enumerate(jobs) if place != which]
    apart = Simulation(config, table(*map(list, zip(*rest, strict=True))), start=T0)
    apart.run_until(T0 + submit)
    own = apart.submit(ask("ann", nodes, limit), runtime)
    for sim in (whole, apart):
        sim.run_until(T0 + 30 * 24 * HOUR)
        sim.check()
    expected = whole.schedule()["start"].tolist()
    assert apart.job(own).start == expected.pop(which)
    assert apart.schedule()["start"].tolist() == expected
