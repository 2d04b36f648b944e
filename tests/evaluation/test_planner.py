"""Planners that are wrong on purpose are wrong in that and in nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from small_trace import CLUSTER, DAY, HOUR, trace

from mirage.domain.decision import Observation, RecentWaits, WaitForecast, Wants
from mirage.domain.errors import ConfigError
from mirage.domain.job import ABSENT, JobRequest, JobState
from mirage.domain.snapshot import Snapshot
from mirage.simulator.cluster import Association
from mirage.simulator.configuration.clusterfile import read_cluster
from mirage.training.evaluation.schedule import ERRORS, MONTH, MonthOld, aged, mistaken

LS6, _ = read_cluster("ls6")


def test_each_error_changes_what_it_says() -> None:
    assert mistaken(LS6, "") == LS6
    assert mistaken(LS6, "nodes+5%").node_count == 80
    assert mistaken(LS6, "nodes-5%").node_count == 72
    free = mistaken(LS6, "no-user-limit")
    assert free == replace(LS6, default_association=replace(LS6.default_association, max_jobs=-1))
    other = mistaken(LS6, "priorities")
    assert other == replace(LS6, priority=replace(LS6.priority, age=3_500, job_size=3_500))
    assert mistaken(LS6, "month-old") == LS6


def test_errors_that_are_not_known_or_change_nothing_are_refused() -> None:
    with pytest.raises(ConfigError, match="month-old"):
        mistaken(LS6, "nodes+50%")
    with pytest.raises(ConfigError, match="changes nothing"):
        mistaken(replace(CLUSTER, default_association=Association(account="")), "no-user-limit")


def test_a_month_ago_is_what_was_known_then() -> None:
    table = trace(days=60, load=0.5)
    ran = replace(table, start=table.submit + 2 * HOUR, end=table.submit + 2 * HOUR + table.runtime)
    middle = len(ran) // 3
    now = int(ran.start[middle] + ran.runtime[middle] // 2) + MONTH
    found = aged(ran, now)
    then = now - MONTH
    rows = [row for row in range(len(ran)) if ran.submit[row] <= then]
    assert len(found) == len(rows)
    for place, row in enumerate(rows):
        started, ended = ran.start[row] <= then, ran.end[row] <= then
        assert found.submit[place] == ran.submit[row] + MONTH
        assert found.start[place] == (ran.start[row] + MONTH if started else ABSENT)
        assert found.end[place] == (ran.end[row] + MONTH if ended else ABSENT)
        state = JobState.COMPLETED if ended else JobState.RUNNING if started else JobState.PENDING
        assert found.state[place] == state
    assert max(found.submit.max(), found.start.max(), found.end.max()) <= now
    assert {JobState.RUNNING, JobState.COMPLETED} <= {JobState(s) for s in np.unique(found.state)}


class Listener:
    name, wants = "listener", Wants(history=DAY)
    heard: Observation

    def predict(self, observation: Observation) -> WaitForecast:
        self.heard = observation
        return WaitForecast.point(0.0)


def test_only_the_past_is_old() -> None:
    table = trace(days=60)
    now = int(table.submit[-1])
    listener = Listener()
    old = MonthOld(listener)
    assert old.wants.history == DAY + MONTH
    request = JobRequest("service", "me", HOUR)
    old.predict(Observation(now, Snapshot.unseen(now), None, request, RecentWaits.none(), history=table))
    assert listener.heard.time == now
    assert listener.heard.history.submit.tolist() == (table.submit[table.submit <= now - MONTH] + MONTH).tolist()
    assert set(ERRORS) == {"nodes+5%", "nodes-5%", "no-user-limit", "priorities", "month-old"}
