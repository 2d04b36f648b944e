"""Waits: which jobs started between two snapshots, and the history of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stored_values import emptied, jobs

from mirage.domain.snapshot import JobColumns, Snapshot
from mirage.store.waithistory import SqlWaitHistory
from mirage.store.waits import StartedJobs, started

if TYPE_CHECKING:
    from mirage.store.opening import Store

NAMES = ("cpu", "gpu")


def seen(time: int, *running: tuple[int, int, int]) -> Snapshot:
    """A snapshot of running jobs (id, submit, start)."""
    table = np.array(running, dtype=np.int64).reshape(-1, 3)
    one = np.ones(len(table), dtype=np.int64)
    columns = JobColumns(
        table[:, 0], one, one, one, one * 2, one * 60, table[:, 1], table[:, 1], table[:, 2], one, one
    )
    return replace(Snapshot.unseen(time), running=columns, partition_names=NAMES, stale_since=-1)


def ids(found: StartedJobs) -> list[int]:
    return [int(job) for job in found.job_id]


def test_a_job_that_runs_now_and_did_not_has_started() -> None:
    found = started(seen(1_000, (1, 10, 900)), seen(1_060, (1, 10, 900), (2, 20, 1_030)))
    assert ids(found) == [2]
    assert (found.submit.tolist(), found.start.tolist(), found.nodes.tolist()) == ([20], [1_030], [2])
    assert [found.partition_names[code] for code in found.partition] == ["gpu"]


def test_a_requeued_job_that_started_again_has_started() -> None:
    assert ids(started(seen(1_000, (1, 10, 900)), seen(1_060, (1, 910, 1_030)))) == [1]


def test_nothing_starts_by_being_looked_at_for_the_first_time() -> None:
    queue = [(n, 10, n * 100) for n in range(1, 100)]
    assert ids(started(Snapshot.unseen(1_000_000), seen(1_000_000, *queue))) == []
    assert ids(started(seen(1_000_000), seen(1_000_060, *queue))) == []


def test_a_job_whose_start_slurms_clock_puts_a_little_earlier_is_seen() -> None:
    assert ids(started(seen(1_000), seen(1_060, (1, 10, 995)))) == [1]


def test_stale_snapshots_show_no_start_but_the_next_one_shows_those_of_the_gap() -> None:
    before, stale = seen(1_000, (1, 10, 900)), replace(seen(1_000, (1, 10, 900)), stale_since=1_000)
    after = seen(1_600, (1, 10, 900), (2, 20, 1_200))
    assert ids(started(before, replace(after, stale_since=1_600))) == []
    assert ids(started(stale, after)) == [2]


def test_what_cannot_be_is_left_out() -> None:
    assert ids(started(seen(1_000), seen(1_060, (1, 1_050, 1_040), (2, -1, 1_030)))) == []


RUNNING = st.lists(
    st.tuples(st.integers(1, 12), st.integers(0, 60), st.integers(0, 60)), unique_by=lambda job: job[0]
).map(lambda rows: [(job, submit, submit + wait) for job, submit, wait in rows])


@given(RUNNING, RUNNING)
def test_started_is_the_difference_of_two_sets(
    before: list[tuple[int, int, int]], after: list[tuple[int, int, int]]
) -> None:
    found = started(seen(100, *before), seen(130, *after))
    known = {(job, start) for job, _, start in before}
    assert ids(found) == [job for job, _, start in after if (job, start) not in known]


# The history

ROWS = st.lists(st.tuples(st.integers(1, 6), st.integers(0, 5), st.integers(0, 50)), max_size=12).map(
    lambda rows: [(job, submit, submit + wait) for job, submit, wait in rows]
)


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=st.lists(ROWS, max_size=4), counts=st.lists(st.integers(1, 20), min_size=1, max_size=3))
def test_history_against_a_list(
    shared_store: Store, batches: list[list[tuple[int, int, int]]], counts: list[int]
) -> None:
    """The first time that a job and its submission are told counts; the latest starts are given."""
    history = SqlWaitHistory(emptied(shared_store).database)
    known: dict[tuple[int, int], int] = {}
    for batch in batches:
        history.add(jobs(*batch))
        for job, submit, start in batch:
            known.setdefault((job, submit), start)
        in_order = sorted((start, job, submit) for (job, submit), start in known.items())
        for count in counts:
            found = history.recent_waits(count)
            assert found.start.tolist() == [start for start, _, _ in in_order[-count:]]
            assert found.wait.tolist() == [start - submit for start, _, submit in in_order[-count:]]
    reread = SqlWaitHistory(shared_store.database).recent_waits(100)
    assert len(reread) == len(known)


def test_nothing_known(store: Store) -> None:
    found = store.waits.recent_waits(100)
    assert len(found) == len(found.wait) == len(found.nodes) == len(found.limit) == 0
    assert found.wait.dtype == np.int64


def test_seeding_from_accounting_and_watching_do_not_count_twice(store: Store) -> None:
    """More jobs than one batch, half of them seen live before."""
    table = [(n, n, n + 30) for n in range(1, 25_001)]
    store.waits.add(jobs(*table[12_500:]))
    store.waits.add(jobs(*table))
    found = store.waits.recent_waits(100_000)
    assert found.start.tolist() == [n + 30 for n in range(1, 25_001)]
    assert set(found.wait.tolist()) == {30}
    assert set(found.limit.tolist()) == {3_600}


def test_impossible_jobs_are_refused_whole(store: Store) -> None:
    with pytest.raises(ValueError, match="job 2 starts before it was submitted"):
        store.waits.add(jobs((1, 10, 20), (2, 30, 20)))
    assert len(store.waits.recent_waits(10)) == 0
    uneven = replace(jobs((1, 10, 20)), nodes=np.ones(2, dtype=np.int64))
    with pytest.raises(ValueError, match="differ in length"):
        store.waits.add(uneven)
