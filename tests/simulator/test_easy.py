"""EASY and FIFO on one pool: against a slow reference, published figures and the C++ peer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_easy import bounded_slowdown, pool_starts

from mirage.bench.references import compiler, run_peer
from mirage.simulator.run import simulate_pool

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

CAPACITY = 8


@dataclass(frozen=True, slots=True)
class Columns:
    submit: NDArray[np.int64]
    runtime: NDArray[np.int64]
    request: NDArray[np.int64]
    procs: NDArray[np.int64]

    def starts(self, capacity: int, *, backfill: bool = True) -> NDArray[np.int64]:
        return simulate_pool(
            self.submit, self.runtime, self.request, self.procs, capacity=capacity, backfill=backfill
        )

    def expected(self, capacity: int, *, backfill: bool = True) -> list[int]:
        columns = (self.submit, self.runtime, self.request, self.procs)
        return pool_starts(*(c.tolist() for c in columns), capacity=capacity, backfill=backfill)

    def figures(self, starts: NDArray[np.int64]) -> tuple[float, float]:
        """Mean wait and mean bounded slowdown (10 s)."""
        wait = starts - self.submit
        ran = np.minimum(self.runtime, np.where(self.request > 0, self.request, self.runtime))
        slowdown = [bounded_slowdown(w, r) for w, r in zip(wait.tolist(), ran.tolist(), strict=True)]
        return float(wait.mean()), float(np.mean(slowdown))


def columns(rows: list[tuple[int, int, int, int]]) -> Columns:
    """From rows of (submit, runtime, request, CPUs)."""
    table = np.array(rows, dtype=np.int64).reshape(-1, 4)
    return Columns(*(np.ascontiguousarray(table[:, i]) for i in range(4)))


@st.composite
def workloads(draw: st.DrawFn, span: int, longest: int) -> Columns:
    """Jobs in order of submission; short spans and run times bring many simultaneous events."""
    times = st.integers(0, span)
    lasting = st.integers(0, longest)
    row = st.tuples(times, lasting, st.integers(-1, longest + 3), st.integers(1, CAPACITY))
    return columns(sorted(draw(st.lists(row, max_size=40)), key=lambda job: job[0]))


@settings(max_examples=300, deadline=None)
@given(workload=workloads(span=12, longest=6), backfill=st.booleans())
def test_equals_the_reference_where_events_coincide(workload: Columns, backfill: bool) -> None:
    got = workload.starts(CAPACITY, backfill=backfill)
    assert got.tolist() == workload.expected(CAPACITY, backfill=backfill)


@settings(max_examples=200, deadline=None)
@given(workload=workloads(span=2000, longest=900), backfill=st.booleans())
def test_equals_the_reference_where_events_spread(workload: Columns, backfill: bool) -> None:
    got = workload.starts(CAPACITY, backfill=backfill)
    assert got.tolist() == workload.expected(CAPACITY, backfill=backfill)


@settings(max_examples=100, deadline=None)
@given(workload=workloads(span=40, longest=20))
def test_head_of_the_queue_is_never_delayed_by_backfill_when_requests_are_exact(workload: Columns) -> None:
    exact = Columns(workload.submit, workload.runtime, workload.runtime, workload.procs)
    easy, fifo = exact.starts(CAPACITY), exact.starts(CAPACITY, backfill=False)
    first_to_wait = np.flatnonzero(fifo > exact.submit)
    if len(first_to_wait):
        assert easy[first_to_wait[0]] <= fifo[first_to_wait[0]]


def test_a_job_that_ends_by_the_shadow_time_goes_ahead_of_the_head() -> None:
    jobs = columns([(0, 10, 10, 6), (1, 5, 5, 8), (2, 8, 8, 2)])
    assert jobs.starts(CAPACITY).tolist() == [0, 10, 2]


def test_a_job_that_would_delay_the_head_waits() -> None:
    jobs = columns([(0, 10, 10, 6), (1, 5, 5, 8), (2, 8, 9, 2)])
    assert jobs.starts(CAPACITY).tolist() == [0, 10, 15]


def test_extra_processors_are_given_once() -> None:
    """The head needs 5 of 8 at 10: 3 are extra; two long jobs of 2 may not both take them."""
    jobs = columns([(0, 10, 10, 4), (1, 5, 5, 5), (2, 50, 50, 2), (2, 50, 50, 2), (2, 50, 50, 1)])
    assert jobs.starts(CAPACITY).tolist() == [0, 10, 2, 15, 2]


def test_runs_end_at_the_request() -> None:
    jobs = columns([(0, 100, 10, 8), (1, 5, 5, 8)])
    assert jobs.starts(CAPACITY).tolist() == [0, 10]


def test_an_absent_request_is_the_run_time() -> None:
    jobs = columns([(0, 10, -1, 6), (1, 5, 0, 8), (2, 8, -1, 2)])
    assert jobs.starts(CAPACITY).tolist() == [0, 10, 2]


def test_fifo_never_overtakes() -> None:
    jobs = columns([(0, 10, 10, 6), (1, 5, 5, 8), (2, 1, 1, 1)])
    assert jobs.starts(CAPACITY, backfill=False).tolist() == [0, 10, 15]


def test_an_empty_trace_has_no_starts() -> None:
    assert len(columns([]).starts(CAPACITY)) == 0


KTH_PROCESSORS = 100
PUBLISHED = {
    28_481: (6834.6, 92.69, 71.7224),  # predictsim and a C++ program; clairvoyant: Gaussier et al., SC'15
    27_992: (
        6351.49,
        86.3712,
        71.5233,
    ),  # the archive's cleaned log: 489 jobs fewer, by tests/simulator/reference_easy
}
"""Jobs in the KTH-SP2 log -> EASY's mean wait (s), mean bounded slowdown, and the latter when clairvoyant."""


@pytest.fixture(scope="module")
def kth(shared: Path) -> Columns:
    """The KTH-SP2 log: fields 2 (submit), 4 (run), 9 (requested time) and 8 (requested CPUs) of SWF."""
    log = shared / "traces" / "KTH-SP2-1996-2.1-cln.swf.gz"
    if not log.is_file():
        pytest.skip(f"published trace not found: {log}")
    fields = np.loadtxt(log, comments=";", usecols=(1, 3, 8, 7), dtype=np.int64)
    return Columns(*(np.ascontiguousarray(fields[:, i]) for i in range(4)))


@pytest.mark.shared
def test_easy_on_kth_gives_the_published_figures(kth: Columns) -> None:
    mean_wait, slowdown, _ = PUBLISHED[len(kth.submit)]
    assert kth.figures(kth.starts(KTH_PROCESSORS)) == pytest.approx((mean_wait, slowdown), rel=1e-3)


@pytest.mark.shared
def test_clairvoyant_easy_on_kth_gives_the_published_figure(kth: Columns) -> None:
    known = Columns(kth.submit, kth.runtime, np.minimum(kth.runtime, kth.request), kth.procs)
    assert known.figures(known.starts(KTH_PROCESSORS))[1] == pytest.approx(PUBLISHED[len(kth.submit)][2], rel=1e-5)


@pytest.mark.shared
def test_easy_on_kth_equals_the_reference_start_by_start(kth: Columns) -> None:
    assert kth.starts(KTH_PROCESSORS).tolist() == kth.expected(KTH_PROCESSORS)


@pytest.mark.skipif(compiler() is None, reason="no g++ here")
def test_the_peer_simulates_the_same_schedule() -> None:
    random = np.random.default_rng(7)
    count = 3000
    request = random.integers(1, 400, count)
    jobs = Columns(
        np.sort(random.integers(0, 40_000, count)),
        np.minimum(random.integers(0, 400, count), request),
        request,
        random.integers(1, CAPACITY + 1, count),
    )
    peer = run_peer(jobs.submit, jobs.runtime, jobs.request, jobs.procs, capacity=CAPACITY, repetitions=1)
    assert peer is not None
    assert peer.jobs == count
    starts = np.array(jobs.expected(CAPACITY))
    assert (peer.mean_wait, peer.mean_bounded_slowdown) == pytest.approx(jobs.figures(starts), rel=1e-9)
