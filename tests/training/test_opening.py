"""An episode's data on the queue's last day as it begins, against simulations run for each row alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from small_trace import CLUSTER, DAY, HOUR, plan, trace

from mirage.backends.simulated import SimulatedCluster
from mirage.domain.job import JobState
from mirage.features.summary import summarise
from mirage.replay.episodes import Background
from mirage.simulator.cluster import Association
from mirage.simulator.simulation import Simulation

BEGIN = 1_000_000 + 6 * DAY + 123
CHAIN = plan(nodes=6).chain()
"""Six nodes of six: the first link waits, and the queue is watched meanwhile."""


@pytest.fixture(scope="module")
def background() -> Background:
    background = Background(trace(), CLUSTER, watched=True)
    background.run_until(BEGIN)
    return background


def test_rows_are_the_queue_at_every_ten_minutes_of_the_last_day(background: Background) -> None:
    opening = background.open(CHAIN)
    assert opening is not None
    start = opening.cluster.now()
    assert start > BEGIN + HOUR, "the first link of this test must wait"
    window = opening.windows.of("batch")
    assert window is not None
    last = start // 600 * 600
    assert window.times.tolist() == list(range(last - 143 * 600, last + 1, 600))
    for k in (0, 60, int(np.searchsorted(window.times, BEGIN)) - 1, 143):
        alone = Simulation(CLUSTER, trace())
        if window.times[k] > BEGIN:
            alone.run_until(BEGIN)
            alone.submit(CHAIN.link_request(1), DAY, JobState.TIMEOUT)
        alone.run_until(int(window.times[k]))
        assert (summarise(SimulatedCluster(alone).snapshot(), "batch") == window.rows[k]).all()


def test_the_window_does_not_depend_on_the_steps_that_led_there(background: Background) -> None:
    steps = Background(trace(), CLUSTER, watched=True)
    for time in range(BEGIN - 3 * DAY, BEGIN, 7 * HOUR):
        steps.run_until(time)
    steps.run_until(BEGIN)
    found = [each.open(CHAIN) for each in (background, steps)]
    windows = [opening.windows.of("batch") for opening in found if opening is not None]
    assert len(windows) == 2
    assert all(window is not None for window in windows)
    assert np.array_equal(windows[0].times, windows[1].times)
    assert np.array_equal(windows[0].rows, windows[1].rows)


def test_a_queue_that_is_not_watched_has_no_window() -> None:
    background = Background(trace(), CLUSTER, watched=False)
    background.run_until(BEGIN)
    opening = background.open(CHAIN)
    assert opening is not None
    assert opening.windows.of("batch") is None


def test_an_opening_leaves_the_background_as_it_was(background: Background) -> None:
    before = background.simulation.columns()[0].job_id.tolist()
    background.open(CHAIN)
    assert background.simulation.now == BEGIN
    assert background.simulation.columns()[0].job_id.tolist() == before


def test_whoever_ran_is_welcome_and_so_is_the_service_on_a_cluster_that_knows_neither() -> None:
    """A cluster whose accounting enforces associations: people of the trace may have left since."""
    known = (Association("lab"), Association("lab", "u0"))
    strict = Background(trace(), replace(CLUSTER, enforce_associations=True, associations=known), watched=False)
    free = Background(trace(), replace(CLUSTER, associations=known), watched=False)
    begun = []
    for background in (strict, free):
        background.run_until(BEGIN)
        opening = background.open(CHAIN)
        assert opening is not None
        begun.append((opening.cluster.now(), len(opening.cluster.snapshot().pending)))
    assert begun[0] == begun[1]
