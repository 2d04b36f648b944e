"""Waits: which jobs started between two snapshots, and the history of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stored_values import emptied, jobs

from mirage.domain.job import ABSENT, Job, JobId, JobState
from mirage.domain.jobtable import JobLabels, JobTraits, Names
from mirage.domain.snapshot import JobColumns, Snapshot
from mirage.store.waits import SqlWaitHistory, StartedJobs, started

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


def test_time_in_which_a_job_may_not_start_is_no_wait(store: Store) -> None:
    """Held, to begin later or dependent for an hour: any user can make that as long as they like."""
    jobs = seen(1_000, (1, 900, 990)).running.take(np.repeat(0, 4))
    jobs = replace(jobs, job_id=np.arange(4), submit=np.full(4, 1_000), start=np.full(4, 4_700))
    jobs = replace(jobs, eligible=np.array([4_600, ABSENT, 4_800, 1_000]), qos=np.full(4, -1))
    store.waits.add(started(seen(4_690), replace(seen(4_710), running=jobs)))
    assert store.waits.recent_waits(9).wait.tolist() == [100, 3_700, 3_700, 3_700]


# The history

ROWS = st.lists(st.tuples(st.integers(1, 6), st.integers(0, 5), st.integers(0, 50)), max_size=12).map(
    lambda rows: [(job, submit, submit + wait) for job, submit, wait in rows]
)


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=st.lists(ROWS, max_size=4), counts=st.lists(st.integers(1, 20), min_size=1, max_size=3))
def test_history_against_a_list(
    shared_store: Store, batches: list[list[tuple[int, int, int]]], counts: list[int]
) -> None:
    """The first report of a job and its submission counts; the latest starts are returned."""
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


# Classes

KINDS = ("none", "gpu:a100", "")
QUALITIES = ("normal", "high", "")


def classed(rows: list[tuple[int, int, int, int, int]]) -> StartedJobs:
    """Jobs of two partitions from (id, start, partition, GRES, QOS), the last three as numbers."""
    table = np.array(rows, dtype=np.int64).reshape(-1, 5)
    job_id, start, partition, gres, qos = table.T
    ones = np.ones(len(table), dtype=np.int64)
    kinds = Names.encode([KINDS[k] for k in gres.tolist()])
    qualities = Names.encode([QUALITIES[k] for k in qos.tolist()])
    traits = JobTraits(Names.absent(len(table)), qualities, kinds, np.where(gres == 1, 4, ABSENT))
    return StartedJobs(job_id, start * 0, start, ones, ones, partition, NAMES, traits)


CLASSED = st.lists(
    st.tuples(st.integers(1, 40), st.integers(0, 50), st.integers(0, 1), st.integers(0, 2), st.integers(0, 2)),
    max_size=60,
    unique_by=lambda row: row[0],
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=CLASSED, count=st.integers(1, 20), gres=st.sampled_from(KINDS[:2]), qos=st.sampled_from(QUALITIES[:2]))
def test_older_waits_of_the_class_come_before_the_last_ones(
    shared_store: Store, rows: list[tuple[int, int, int, int, int]], count: int, gres: str, qos: str
) -> None:
    history = SqlWaitHistory(emptied(shared_store).database)
    history.add(classed(rows))
    of_gpu = sorted((start, job, *rest) for job, start, partition, *rest in rows if partition == 1)
    last = of_gpu[-count:]
    before = last[0][0] if len(last) == count else -1
    older = [row for row in of_gpu if row[0] < before and (KINDS[row[2]], QUALITIES[row[3]]) == (gres, qos)]
    found = history.recent_waits(count, "gpu", gres, qos)
    assert found.start.tolist() == [row[0] for row in older + last]
    assert found.traits.gres.decode() == [KINDS[row[2]] for row in older + last]
    assert found.traits.qos.decode() == [QUALITIES[row[3]] for row in older + last]
    assert found.traits.gres_per_node.tolist() == [4 if row[2] == 1 else ABSENT for row in older + last]
    assert found.start.tolist() == history.recent_waits(count, "gpu", gres, qos).start.tolist()
    assert history.recent_waits(count, "cpu,gpu").start.tolist() == sorted(row[1] for row in rows)[-count:]


def test_texts_that_no_database_takes_lose_no_waits(store: Store) -> None:
    strange = Names.encode(["m\udcffl", "a\0b"])
    absent = JobTraits.unknown(2)
    store.waits.add(replace(jobs((1, 10, 20), (2, 10, 30)), traits=replace(absent, account=strange, qos=strange)))
    found = store.waits.recent_waits(10)
    assert found.start.tolist() == [20, 30]
    assert found.traits.account.decode() == ["m?l", "a\ufffdb"]


def test_memory_is_bounded_whatever_is_asked_for(store: Store) -> None:
    """Any partition, QOS and number of waits may be named, whether it exists or not."""
    store.waits.add(jobs(*((n, n, n + 1) for n in range(1, 9_001))))
    for count in range(8_920, 9_000):
        store.waits.recent_waits(count, "a100", "gpu", f"qos{count}")
        store.waits.recent_waits(count, f"no-{count}")
        assert sum(len(waits) for _, waits in store.waits._latest.values()) <= 520_000


def test_started_jobs_have_account_qos_and_gres() -> None:
    current = seen(1_060, (1, 10, 900), (3, 20, 1_040), (2, 20, 1_030))
    of_jobs = np.array([2, 1])
    gres = Names.encode(["gpu:v100", "none"]), np.array([4, 0])
    labels = JobLabels.of_texts(of_jobs, ["two", "one"], ["ml", "bio"], gres)
    found = started(seen(1_000, (1, 10, 900)), replace(current, labels=labels, qos_names=("normal", "high")))
    assert ids(found) == [3, 2]
    assert found.traits is not None
    assert found.traits.account.decode() == ["", "ml"]
    assert found.traits.qos.decode() == ["high", "high"]
    assert found.traits.gres.decode() == ["", "gpu:v100"]
    assert found.traits.gres_per_node.tolist() == [ABSENT, 4]


def test_link_bound_to_its_predecessors_nodes_tells_no_wait_of_the_queue(store: Store) -> None:
    """It ran as soon as these were free; a link that waited for any nodes did wait for the queue.

    Accounting, which knows nothing of that, does not bring it in later.
    """
    bound = Job(JobId(7), "svc", "a", "cpu", 1, 60, JobState.PENDING, 10, tag="mirage:svc:2", node_list="n1")
    free = replace(bound, job_id=JobId(8), tag="mirage:other:1", node_list="")
    foreign = replace(bound, job_id=JobId(9))
    before = replace(seen(1_000), links={job.tag: job for job in (bound, free)}, rivals=(foreign,))
    after = replace(seen(1_060, (7, 10, 1_030), (8, 10, 1_040), (9, 10, 1_050)), qos_names=("low", "normal"))
    found = started(before, after)
    assert ids(found) == [7, 8, 9]
    store.waits.add(found)
    store.waits.add(replace(found, eligible=found.submit))
    assert store.waits.recent_waits(10).start.tolist() == [1_040]


def test_jobs_are_left_out_with_all_their_columns(store: Store) -> None:
    rows = [(1, 10, 0, 1, 0), (2, 20, 1, 1, 1), (3, 30, 0, 1, 1)]
    left = classed(rows).without({2, 77})
    left.check()
    assert ids(left) == [1, 3]
    assert left.without(()) is left
    store.waits.add(left)
