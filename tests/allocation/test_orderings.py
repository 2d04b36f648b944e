"""Each ordering policy against its definition, written out task by task in plain numbers."""

from __future__ import annotations

import math
from statistics import fmean, median
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pool_strategies import NOTHING, one_speed, plain_pool, task_table

from mirage.allocation.ddl import registry
from mirage.allocation.ddl.encode import linear_scores
from mirage.domain.errors import ConfigError
from mirage.domain.jobtable import Names
from mirage.domain.pool import PoolView

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from mirage.domain.pool import TaskTable

NEVER = math.inf


@st.composite
def views(draw: st.DrawFn) -> PoolView:
    """Some time of a run, with tasks that have ended, run, were preempted, wait."""
    count = draw(st.integers(3, 10))

    def column(values: st.SearchStrategy[float]) -> list[float]:
        return draw(st.lists(values, min_size=count, max_size=count))

    work = column(st.integers(1, 20).map(float))
    unknown = column(st.sampled_from((1.0, 1.0, NOTHING)))
    tasks = task_table(
        work,
        submit=sorted(column(st.integers(0, 20).map(float))),
        devices=[int(devices) for devices in column(st.sampled_from((1, 1, 2, 4)))],
        expected=np.array(work) * np.array(unknown),
        restart=np.array(column(st.sampled_from((1.0, NOTHING)))),
        deadline=np.array(column(st.sampled_from((30.0, 50.0, NOTHING)))),
        cpus=np.array(column(st.integers(0, 4)), dtype=np.int32),
        tenant=Names.encode([str(name) for name in column(st.sampled_from(("a", "b", "")))]),
        model=Names.encode([str(name) for name in column(st.sampled_from(("bert", "dqn")))]),
    )
    states = draw(st.lists(st.sampled_from(("ended", "runs", "stopped", "waits")), min_size=count, max_size=count))
    return _standing(tasks, np.array(states), np.array(column(st.sampled_from((0.0, 0.25, 0.5)))))


def _standing(tasks: TaskTable, states: NDArray[np.str_], done: NDArray[np.float64]) -> PoolView:
    """Tasks in these states at 20 s, done in these parts; running ones can be preempted where they restart."""
    pool, count = plain_pool(2, 4), len(tasks)
    done = np.where(states == "ended", 1.0, np.where(states == "waits", 0.0, np.where(done > 0, done, 0.25)))
    runs, waits = states == "runs", np.isin(states, ("waits", "stopped"))
    waits[0] = not runs[0]
    done[0] = done[0] if runs[0] else 0.0
    return PoolView(
        now=20.0,
        pool=pool,
        tasks=tasks,
        speeds=one_speed(tasks, pool),
        pending=np.flatnonzero(waits | (runs & ~np.isnan(tasks.restart))).astype(np.int32),
        running=np.flatnonzero(runs).astype(np.int32),
        held_from=np.zeros(count + 1, dtype=np.int32),
        held=np.zeros(0, dtype=np.int32),
        task_node=np.where(runs & ~waits, 0, -1).astype(np.int32),
        free=np.array([1.0, 0.0] * 4),
        free_cpus=np.array([60, 20], dtype=np.int32),
        free_memory_mb=np.array([5, 7], dtype=np.int64),
        served=done * tasks.work,
        remaining=tasks.expected * (1 - done),
    )


def scores(name: str, view: PoolView) -> list[float]:
    return [float(score) for score in registry.ordering(name).score(view)]


def area(view: PoolView, task: int) -> float:
    return float(view.tasks.expected[task] * view.tasks.devices[task])


def or_last(value: float) -> float:
    return NEVER if math.isnan(value) else value


def guess(tasks: TaskTable, task: int) -> float:
    """The estimated run time, or the median of those of as many devices, or of all, or an hour."""
    if not math.isnan(tasks.expected[task]):
        return float(tasks.expected[task])
    rows = [t for t in range(len(tasks)) if not math.isnan(tasks.expected[t])]
    alike = [float(tasks.expected[t]) for t in rows if tasks.devices[t] == tasks.devices[task]]
    return median(alike or [float(tasks.expected[t]) for t in rows] or [3600.0])


@given(views())
def test_those_that_know_run_times(view: PoolView) -> None:
    tasks, pending = view.tasks, view.pending.tolist()
    left = {t: float(view.remaining[t]) for t in pending}
    assert scores("srtf", view) == [or_last(left[t]) for t in pending]
    assert scores("srsf", view) == [or_last(left[t] * int(tasks.devices[t])) for t in pending]
    assert scores("srsf:0.5", view) == pytest.approx([or_last(left[t] * tasks.devices[t] ** 0.5) for t in pending])
    assert scores("ssf", view) == [or_last(area(view, t)) for t in pending]
    assert scores("lpt", view) == [or_last(-area(view, t)) for t in pending]
    assert scores("edf", view) == [or_last(float(tasks.deadline[t])) for t in pending]


@given(views())
def test_formulas_of_time_and_size(view: PoolView) -> None:
    tasks, pending = view.tasks, view.pending.tolist()
    assert scores("wfp3", view) == pytest.approx(
        [-(((view.now - tasks.submit[t]) / guess(tasks, t)) ** 3) * tasks.devices[t] for t in pending]
    )
    assert scores("f1", view) == pytest.approx(
        [
            math.log10(guess(tasks, t)) * tasks.devices[t] + 870 * math.log10(max(tasks.submit[t], 1.0))
            for t in pending
        ]
    )


@given(views())
def test_tetris_weighs_alignment_against_what_is_left(view: PoolView) -> None:
    tasks, pending = view.tasks, view.pending.tolist()
    free_devices, free_cpus = sum(view.free) / 8, sum(view.free_cpus) / 128
    aligned, work = {}, {}
    for t in pending:
        devices, cpus = tasks.devices[t] / 8, tasks.cpus[t] / 128
        left = guess(tasks, t) if math.isnan(view.remaining[t]) else view.remaining[t]
        aligned[t], work[t] = devices * free_devices + cpus * free_cpus, left * (devices + cpus)
    mean_work = fmean(work.values()) if work else 0.0
    scale = fmean(aligned.values()) / mean_work if mean_work else 0.0
    assert scores("tetris", view) == pytest.approx([scale * work[t] - aligned[t] for t in pending])


@given(views())
def test_las_counts_what_was_attained_in_queues(view: PoolView) -> None:
    bounds = (4.0, 12.0)
    attained = [float(view.served[t] * view.tasks.devices[t]) for t in view.pending]
    queues = [float(sum(had >= bound for bound in bounds)) for had in attained]
    assert scores(f"las:{4 / 3600!r}:{12 / 3600!r}", view) == queues
    assert scores("las", view) == [0.0] * len(queues)


@given(views())
def test_drf_gives_to_the_poorest_tenant(view: PoolView) -> None:
    tasks = view.tasks
    had = {name: [0.0, 0.0] for name in ("a", "b", "")}
    waiting = view.pending.tolist()

    def give(task: int) -> None:
        had[tasks.tenant[task]][0] += tasks.devices[task] / 8
        had[tasks.tenant[task]][1] += tasks.cpus[task] / 128

    for task in set(view.running.tolist()) - set(waiting):
        give(task)
    order = np.argsort(scores("drf", view), kind="stable")
    for task in view.pending[order].tolist():
        first = {name: next(t for t in waiting if tasks.tenant[t] == name) for name in _tenants(tasks, waiting)}
        least = min(max(had[name]) for name in first)
        assert max(had[tasks.tenant[task]]) == pytest.approx(least)
        assert task == first[tasks.tenant[task]]
        waiting.remove(task)
        give(task)


def _tenants(tasks: TaskTable, rows: Sequence[int]) -> set[str]:
    return {tasks.tenant[task] for task in rows}


@given(views())
def test_qssf_knows_those_that_have_ended(view: PoolView) -> None:
    tasks, around = view.tasks, {*view.pending.tolist(), *view.running.tolist()}
    ended = [t for t in range(len(tasks)) if view.served[t] > 0 and t not in around]

    def mean_of(task: int) -> float:
        like = [
            [t for t in ended if tasks.devices[t] == tasks.devices[task]],
        ]
        like.append([t for t in like[0] if tasks.tenant[t] == tasks.tenant[task]])
        like.append([t for t in like[1] if tasks.model[t] == tasks.model[task]])
        best = next((those for those in reversed(like) if those), ended)
        return fmean(float(view.served[t]) for t in best) if best else 1.0

    expected = [mean_of(t) * int(tasks.devices[t]) for t in view.pending.tolist()]
    assert scores("qssf", view) == pytest.approx(expected)


@given(views(), st.sampled_from(sorted(registry.ORDERINGS)))
def test_what_is_said_to_be_static_or_linear_is_what_is_scored(view: PoolView, name: str) -> None:
    if name.endswith(":") or name == "searched":
        return
    ordering = registry.ordering(name)
    linear, static = linear_scores(ordering, view.tasks), ordering.static_scores(view.tasks)
    found, pending = ordering.score(view), view.pending
    assert not np.isnan(found).any()
    if linear is not None:
        known = ~np.isnan(view.remaining[pending])
        told = linear.base + linear.per_remaining * view.remaining + linear.per_served * view.served
        assert found[known] == pytest.approx(told[pending][known])
    if static is not None:
        fresh = view.served[pending] == 0
        assert found[fresh] == pytest.approx(static[pending][fresh])


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("las:10:1", "ascending device-hours above 0, such as 1:10, not '10:1'"),
        ("las:soon", "ascending device-hours above 0"),
        ("srsf:big", "the power of the devices must be a number, not 'big'"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(name: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        registry.ordering(name)
