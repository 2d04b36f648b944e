"""What-if runs: counterfactual starts against runs made one by one; copies in threads against copies alone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from mirage.domain.job import JobRequest
from mirage.simulator.configuration.clusterfile import load_cluster
from mirage.simulator.kernel.layout import NEVER
from mirage.simulator.simulation import LOOK_AHEAD, Simulation
from mirage.trace.generator import generate

DAY = 86_400
SERVICE = JobRequest("service", "nobody-else", limit=DAY, nodes=2)


@pytest.fixture(scope="module")
def busy() -> Simulation:
    trace = generate("demo", 1)
    return Simulation(load_cluster("demo"), trace, start=int(trace.submit[0]) + 4 * DAY)


@pytest.fixture(scope="module")
def times(busy: Simulation) -> np.ndarray:
    return busy.now + np.arange(0, 2 * DAY, 7200)


def one_by_one(busy: Simulation, times: np.ndarray) -> list[int]:
    """Each submit time in a separate copy, submitted as a user would."""
    found = []
    for time in times.tolist():
        world = busy.copy()
        world.run_until(time)
        number = world.submit(SERVICE, DAY)
        world.run_until(time + LOOK_AHEAD)
        start = world.job(number).start
        found.append(start if start >= 0 else int(NEVER))
    return found


def test_start_times_are_those_of_runs_made_one_by_one(busy: Simulation, times: np.ndarray) -> None:
    assert busy.start_times(SERVICE, DAY, times).tolist() == one_by_one(busy, times)


def test_start_times_do_not_change_the_simulation(busy: Simulation, times: np.ndarray) -> None:
    before = (busy.now, busy.columns()[0].job_id.tolist())
    busy.start_times(SERVICE, DAY, times)
    busy.estimate_start(SERVICE)
    busy.planned_starts()
    assert (busy.now, busy.columns()[0].job_id.tolist()) == before


@pytest.mark.parametrize("threads", [2, 5])
def test_threads_change_nothing(busy: Simulation, times: np.ndarray, threads: int) -> None:
    parts = np.array_split(times, threads)
    with ThreadPoolExecutor(threads) as pool:
        found = pool.map(lambda part: busy.copy().start_times(SERVICE, DAY, part), parts)
        assert np.concatenate(list(found)).tolist() == busy.start_times(SERVICE, DAY, times).tolist()


def test_copies_run_in_threads_as_they_run_alone(busy: Simulation) -> None:
    alone, beside = [busy.copy() for _ in range(4)], [busy.copy() for _ in range(4)]
    for k, (a, b) in enumerate(zip(alone, beside, strict=True)):
        for world in (a, b):
            for _ in range(k):
                world.submit(SERVICE, DAY)
    until = busy.now + 3 * DAY
    for world in alone:
        world.run_until(until)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda world: world.run_until(until), beside))
    for a, b in zip(alone, beside, strict=True):
        a.check()
        assert a.columns()[1].job_id.tolist() == b.columns()[1].job_id.tolist()
        assert a.columns()[1].start.tolist() == b.columns()[1].start.tolist()
