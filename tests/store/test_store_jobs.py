"""The jobs of all users: as imported, and as the loop sees them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from mirage.domain.job import ABSENT, JobState
from mirage.domain.jobtable import JobTable, Names, job_table
from mirage.store.jobs import StoredJobs

if TYPE_CHECKING:
    import pytest

    from mirage.store.opening import Store

KEPT = ("submit", "eligible", "start", "end", "limit", "memory_mb", "nodes", "cpus", "state")
NAMES = ("user", "account", "partition", "qos", "name", "constraint")


def table(count: int, rng: np.random.Generator) -> JobTable:
    submit = np.sort(rng.integers(0, 1_000_000, count))
    start = np.where(rng.random(count) < 0.9, submit + rng.integers(0, 10_000, count), ABSENT)
    running = (start != ABSENT) & (rng.random(count) < 0.2)
    words = ["", "a", "b\N{SNOWMAN}", "run-7"]
    names = {name: Names.encode([words[k] for k in rng.integers(0, 4, count)]) for name in NAMES}
    return job_table(
        count,
        job_id=rng.permutation(count).astype(np.str_),
        submit=submit,
        eligible=submit + 1,
        start=start,
        end=np.where(running, ABSENT, np.maximum(start, submit) + 5),
        limit=rng.integers(60, 2**40, count),
        memory_mb=rng.integers(0, 2**40, count),
        nodes=rng.integers(1, 100, count).astype(np.int32),
        cpus=rng.integers(1, 100, count).astype(np.int32),
        state=np.where(running, JobState.RUNNING, JobState.COMPLETED).astype(np.int8),
        gres=rng.integers(0, 3, (count, 2)).astype(np.int32),
        gres_names=("gpu:a100", "npu"),
        **names,
    )


def same(found: JobTable, expected: JobTable) -> bool:
    columns = all(np.array_equal(getattr(found, name), getattr(expected, name)) for name in KEPT)
    texts = all(getattr(found, name).decode() == getattr(expected, name).decode() for name in NAMES)
    gres = np.array_equal(found.gres, expected.gres) and found.gres_names == expected.gres_names
    return columns and texts and gres and found.job_id.tolist() == expected.job_id.tolist()


def in_order(jobs: JobTable) -> JobTable:
    return jobs.take(np.lexsort([jobs.job_id.astype(np.int64), jobs.submit]))


def test_jobs_come_back_as_they_were(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mirage.store.jobs._BATCH", 300)
    jobs = table(1_000, np.random.default_rng(1))
    store.jobs.add(jobs)
    assert same(store.jobs.read(0), in_order(jobs))
    late = jobs.take(np.flatnonzero(jobs.submit >= 500_000))
    assert same(store.jobs.read(500_000), in_order(late))
    assert len(store.jobs.read(1_000_000)) == 0


def test_of_too_many_jobs_the_last_submitted_are_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """One job array is many jobs of one second."""
    monkeypatch.setattr("mirage.store.jobs.MOST_READ", 600)
    jobs = table(1_000, np.random.default_rng(4))
    jobs = in_order(replace(jobs, submit=np.sort(np.maximum(jobs.submit, 500_000))))
    store.jobs.add(jobs)
    assert same(store.jobs.read(0), jobs.take(np.arange(400, 1_000)))


def test_a_job_told_of_again_has_gone_on(store: Store) -> None:
    jobs = table(50, np.random.default_rng(2))
    store.jobs.add(replace(jobs, end=np.full(50, ABSENT), state=np.full(50, JobState.RUNNING, dtype=np.int8)))
    store.jobs.add(jobs)
    assert same(store.jobs.read(0), in_order(jobs))


def test_components_of_heterogeneous_jobs_are_left_out(store: Store) -> None:
    jobs = table(3, np.random.default_rng(3))
    store.jobs.add(replace(jobs, job_id=np.array(["12", "13+1", "14"])))
    assert sorted(store.jobs.read(0).job_id.tolist()) == ["12", "14"]


class At:
    def __init__(self, time: int) -> None:
        self.time = time

    def now(self) -> int:
        return self.time


def test_the_loop_sees_what_is_added_once_it_was_taken_in(store: Store) -> None:
    jobs = in_order(table(200, np.random.default_rng(4)))
    store.jobs.add(jobs.take(np.arange(150)))
    clock = At(1_000_000)
    memory = StoredJobs(store.jobs, clock)
    memory.refresh()
    assert len(memory.jobs(1_000_000)) == 150
    store.jobs.add(jobs.take(np.arange(150, 200)))
    assert len(memory.jobs(1_000_000)) == 150, "no database query within a cycle"
    memory.refresh()
    assert same(memory.jobs(1_000_000), jobs)
    assert same(memory.jobs(400_000), jobs.take(np.flatnonzero(jobs.submit >= 600_000)))
    clock.time += 300_000
    assert same(memory.jobs(1_000_000), jobs.take(np.flatnonzero(jobs.submit >= 300_000)))


def test_a_longer_span_is_read_when_it_is_asked_for(store: Store) -> None:
    jobs = in_order(table(100, np.random.default_rng(5)))
    store.jobs.add(jobs)
    memory = StoredJobs(store.jobs, At(1_000_000))
    assert len(memory.jobs(10)) == int((jobs.submit >= 999_990).sum())
    assert same(memory.jobs(1_000_000), jobs)


def test_jobs_go_at_their_age(store: Store) -> None:
    from mirage.store.opening import Retention

    jobs = table(100, np.random.default_rng(6))
    store.jobs.add(jobs)
    old = int((jobs.submit < 700_000).sum())
    assert store.prune(Retention(jobs=300_000), 1_000_000)["jobs"] == old
    assert len(store.jobs.read(0)) == 100 - old
