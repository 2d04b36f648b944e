"""The parts of the look-ahead, each against something that is right by theory or by a slow plain computation."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_trace import CLUSTER, DAY, HOUR

from mirage.domain.decision import Observation, RecentWaits
from mirage.domain.job import ABSENT, NEVER, JobRequest, JobState
from mirage.domain.jobtable import JobTable, Names, job_table
from mirage.domain.snapshot import Snapshot
from mirage.predictors import past_jobs
from mirage.predictors.futures import WEEK, Cancellations, PastArrivals, following, uniforms
from mirage.predictors.past_jobs import Level, Likeness, Past, RunTimes
from mirage.simulator.resume import Resumption

NOW = 40 * WEEK
SERVICE = JobRequest("service", "we", limit=DAY)


def past(table: JobTable, now: int = NOW) -> Past:
    return Past.of(Observation(now, Snapshot.unseen(now), None, SERVICE, RecentWaits.none(), history=table))


def jobs(rows: list[tuple[str, str, int, int, int]]) -> JobTable:
    """(user, name, limit, start, end); ``ABSENT`` for what has not happened."""
    users, names, limits, starts, ends = (list(column) for column in zip(*rows, strict=True))
    start, end, limit = (np.array(values, dtype=np.int64) for values in (starts, ends, limits))
    ran = (start != ABSENT) & (end != ABSENT)
    timed_out = ran & (end - start >= limit)
    done = np.where(timed_out, JobState.TIMEOUT, np.where(ran, JobState.COMPLETED, JobState.RUNNING))
    return job_table(
        len(rows),
        user=Names.encode(users),
        name=Names.encode(names),
        submit=np.where(start != ABSENT, start, NOW - DAY),
        start=start,
        end=end,
        limit=limit,
        nodes=np.ones(len(rows), dtype=np.int32),
        state=done.astype(np.int8),
    )


def like(table: JobTable, row: int) -> Likeness:
    found = Likeness.of_table(table)
    return Likeness(*(getattr(found, name)[[row]] for name in ("series", "user", "limit")))


def levels(count: int = 400) -> np.ndarray:
    return ((np.arange(count) + 0.5) / count)[:, None]


# Chance


def test_a_thing_has_its_number_whatever_is_asked_beside_it() -> None:
    alone = uniforms(7, np.array([3]), np.array([11]))
    beside = uniforms(7, np.arange(9), np.array([5, 11, 2]))
    assert alone[0, 0] == beside[3, 1]
    assert uniforms(8, np.array([3]), np.array([11]))[0, 0] != alone[0, 0]


def test_numbers_are_uniform_and_do_not_go_together() -> None:
    drawn = uniforms(0, np.arange(500), np.arange(400))
    assert drawn.min() > 0.0
    assert drawn.max() < 1.0
    assert np.histogram(drawn, bins=10)[0] == pytest.approx(20_000, rel=0.03)
    assert abs(np.corrcoef(drawn[:, 0], drawn[:, 1])[0, 1]) < 0.15
    assert abs(np.corrcoef(drawn[0], drawn[1])[0, 1]) < 0.15


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_jobs_of_a_group_go_alike_as_often_as_said(share: float) -> None:
    own, shared, whether = (uniforms(seed, np.arange(2_000), np.array([1])) for seed in range(3))
    assert (following(own, shared, whether, share) == shared).mean() == pytest.approx(share, abs=0.04)


# Run times


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(60, 9 * HOUR), st.booleans()), min_size=1, max_size=30),
    st.integers(0, 8 * HOUR),
    st.integers(1, 10),
)
def test_runs_are_longer_than_they_have_run_and_end_at_the_limit(
    runs: list[tuple[int, bool]], elapsed: int, hours: int
) -> None:
    rows = [
        ("ann", "job", 10 * HOUR, NOW - 2 * DAY, NOW - 2 * DAY + ran if done else ABSENT) for ran, done in runs
    ]
    table = jobs(rows)
    asked = like(table, 0)
    limited = Likeness(asked.series, asked.user, np.array([hours * HOUR]))
    drawn = RunTimes(past(table)).draw(limited, np.array([min(elapsed, hours * HOUR - 1)]), levels())
    assert (drawn > min(elapsed, hours * HOUR - 1)).all()
    assert (drawn <= hours * HOUR).all()


def kaplan_meier(times: list[int], ended: list[bool], at: int) -> float:
    """P(T > at), by the textbook's product over the distinct times of ends."""
    survival = 1.0
    for time in sorted({t for t, e in zip(times, ended, strict=True) if e and t <= at}):
        dying = sum(e and t == time for t, e in zip(times, ended, strict=True))
        survival *= 1.0 - dying / sum(t >= time for t in times)
    return survival


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 20), st.booleans()), min_size=2, max_size=25))
def test_jobs_that_still_run_count_as_kaplan_and_meier_have_it(runs: list[tuple[int, bool]]) -> None:
    """All alike in weight, one level only: the drawn share beyond each hour is the estimator's."""
    even = Level(prior=1e-12, memory=1e15, fading=1.0)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("SERIES", "USER", "CLASS"):
            patch.setattr(past_jobs, name, even)
        rows = [("ann", "job", 30 * HOUR, NOW - h * HOUR, NOW if done else ABSENT) for h, done in runs]
        table = jobs(rows)
        drawn = RunTimes(past(table)).draw(like(table, 0), np.array([0]), levels(2_000))
    times, ended = [h for h, _ in runs], [done for _, done in runs]
    if not any(ended):
        assert (drawn == 30 * HOUR).all()
        return
    for hour in (1, 5, 10, 15, 20):
        assert (drawn > hour * HOUR).mean() == pytest.approx(kaplan_meier(times, ended, hour), abs=0.002)


def test_the_series_outweighs_the_user_and_the_user_all_others() -> None:
    rows = [("bob", "other", DAY, NOW - 3 * DAY, NOW - 3 * DAY + HOUR)] * 60
    rows += [("ann", "short", DAY, NOW - 3 * DAY, NOW - 3 * DAY + 4 * HOUR)] * 40
    rows += [("ann", "long", DAY, NOW - 3 * DAY, NOW - 3 * DAY + 12 * HOUR)] * 40
    table = jobs(rows)
    model = RunTimes(past(table))

    def median(row: int, **changes: int) -> float:
        asked = like(table, row)
        series = np.array([changes.get("series", asked.series[0])])
        user = np.array([changes.get("user", asked.user[0])])
        drawn = model.draw(Likeness(series, user, asked.limit), np.array([0]), levels())
        return float(np.median(drawn)) / HOUR

    at = {name: table.name.decode().index(name) for name in ("other", "short", "long")}
    assert median(at["long"]) == 12
    assert median(at["short"]) == 4
    assert median(at["long"], series=-5) > 1  # the user's runs of another series
    assert median(at["long"], series=-5, user=-5) == 4  # 60, 40 and 40 runs of 1, 4 and 12 hours


def test_a_limit_reached_stands_for_the_limit_of_the_next() -> None:
    table = jobs([("ann", "job", 4 * HOUR, NOW - DAY, NOW - DAY + 4 * HOUR)] * 50)
    asked = like(table, 0)
    longer = Likeness(asked.series, asked.user, np.array([7 * HOUR]))
    assert np.median(RunTimes(past(table)).draw(longer, np.array([0]), levels())) == 7 * HOUR


# Cancellations


def test_run_times_are_the_same_however_few_mixtures_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """People choose how many time limits are in the queue."""
    known = jobs([("a", "x", hour * HOUR, hour * HOUR + 60 * hour, HOUR) for hour in range(1, 2_000)])
    many = 300
    waiting = Likeness(np.arange(many), np.zeros(many, dtype=np.int64), HOUR + np.arange(many))
    chance, elapsed = uniforms(1, np.arange(3), np.arange(many)), np.zeros(many, dtype=np.int64)
    expected = RunTimes(past(known)).draw(waiting, elapsed, chance)
    monkeypatch.setattr(past_jobs, "_MOST_KEPT", 10_000)
    few = RunTimes(past(known))
    tracemalloc.start()
    assert (few.draw(waiting, elapsed, chance) == expected).all()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 << 20


def waiting(cancelled: int, started: int, hours: float) -> JobTable:
    """Jobs of one user that were cancelled, and jobs that started, with their waits."""
    count = cancelled + started
    left = np.full(count, NOW - DAY + int(hours * HOUR), dtype=np.int64)
    gone = np.arange(count) < cancelled
    return job_table(
        count,
        user=Names.encode(["ann"] * count),
        submit=np.full(count, NOW - DAY, dtype=np.int64),
        start=np.where(gone, ABSENT, left),
        end=left,
        limit=np.full(count, HOUR, dtype=np.int64),
        state=np.where(gone, JobState.CANCELLED, JobState.COMPLETED).astype(np.int8),
    )


def test_where_nobody_cancels_nothing_is_cancelled() -> None:
    table = waiting(0, 50, 0.5)
    drawn = Cancellations(past(table)).draw(like(table, 0).user, np.array([NOW]), NOW, levels())
    assert (drawn == NEVER).all()


def test_cancellations_come_at_the_rate_seen() -> None:
    """500 of 1000 jobs within the half hour that each waited: one an hour; of new jobs 1 - 1/e in the first."""
    table = waiting(500, 500, 0.5)
    drawn = Cancellations(past(table)).draw(like(table, 0).user, np.array([NOW]), NOW, levels(1_000))
    assert (drawn < NOW + HOUR).mean() == pytest.approx(1 - np.exp(-1), abs=0.01)
    assert (drawn >= NOW).all()


# Arrivals


def weekly(weeks: int) -> JobTable:
    """One job at every full hour of Monday's first half (the epoch's weeks), for some weeks before NOW."""
    hours = [NOW - week * WEEK + hour * HOUR for week in range(1, weeks + 1) for hour in range(12)]
    return jobs([("ann", f"job-{k}", HOUR, time, time + 60) for k, time in enumerate(sorted(hours))])


def drawn_submissions(weeks: int, until: int, future: int) -> np.ndarray:
    arrivals = PastArrivals(past(weekly(weeks), NOW - 1), Resumption(CLUSTER).coming(weekly(weeks)), 0)
    return arrivals.rows(arrivals.draw(future, until)).jobs["submit"]


@pytest.mark.parametrize("future", range(5))
def test_what_comes_every_week_at_an_hour_comes_then(future: int) -> None:
    expected = [NOW + k * WEEK + hour * HOUR for k in range(2) for hour in range(12)]
    assert drawn_submissions(5, NOW + 2 * WEEK - 1, future).tolist() == expected


def test_other_weeks_give_other_futures() -> None:
    rng = np.random.default_rng(0)
    times = np.sort(rng.integers(NOW - 6 * WEEK, NOW, 600)).tolist()
    table = jobs([("ann", "job", HOUR, time, time + 60) for time in times])
    arrivals = PastArrivals(past(table), Resumption(CLUSTER).coming(table), 0)
    found = {tuple(arrivals.rows(arrivals.draw(f, NOW + 3 * DAY)).jobs["submit"].tolist()) for f in range(20)}
    assert len(found) >= 15
    for submissions in found:
        assert list(submissions) == sorted(submissions)
        assert submissions[0] > NOW
        assert submissions[-1] <= NOW + 3 * DAY


def test_less_than_a_week_is_too_little() -> None:
    table = jobs([("ann", "job", HOUR, NOW - 3 * DAY, NOW - 2 * DAY)])
    with pytest.raises(ValueError, match="less than a week"):
        PastArrivals(past(table), Resumption(CLUSTER).coming(table), 0)


def test_our_own_links_are_not_part_of_the_load() -> None:
    rows = [("we", "service", DAY, NOW - WEEK, ABSENT), ("we", "other", DAY, NOW - WEEK, ABSENT)]
    assert past(jobs(rows)).table.name.decode() == ["other"]


def test_nothing_known_of_the_past_is_said() -> None:
    with pytest.raises(ValueError, match="no jobs of the past"):
        past(job_table(0))
