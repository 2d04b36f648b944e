"""Statistics against plain loops over the jobs, and against what is published of LS6."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirage.domain.job import ABSENT, JobState
from mirage.domain.jobtable import JobTable, Names, job_table
from mirage.trace.generator.sessions import find_pairs
from mirage.trace.readers import read_trace
from mirage.trace.stats import limit_label, occupancy, size_label, trace_stats

if TYPE_CHECKING:
    from pathlib import Path

HOUR = 3600


def table_of(rows: list[tuple[str, str, int, int, int, int, int]]) -> JobTable:
    """Rows of (user, name, nodes, submit, start, end, limit), times in hours."""
    user, name, *numbers = zip(*rows, strict=True) if rows else ((),) * 7
    nodes, submit, start, end, limit = (np.array(column, dtype=np.int64) for column in numbers)

    def seconds(hours: Any) -> Any:
        return np.where(hours == ABSENT, ABSENT, hours * HOUR)

    return job_table(
        len(rows),
        user=Names.encode(list(user)),
        name=Names.encode(list(name)),
        nodes=nodes.astype(np.int32),
        submit=seconds(submit),
        start=seconds(start),
        end=seconds(end),
        limit=seconds(limit),
        state=np.full(len(rows), JobState.COMPLETED, dtype=np.int8),
    )


ROWS = st.lists(
    st.tuples(
        st.sampled_from("ab"),
        st.sampled_from("xy"),
        st.integers(1, 3),
        st.integers(0, 200),
        st.integers(0, 30),
        st.integers(0, 60),
        st.sampled_from([1, 12, 24, 48]),
    ).map(lambda r: (*r[:4], r[3] + r[4], r[3] + r[4] + min(r[5], r[6]), r[6])),
    max_size=25,
)


def pairs_by_loop(table: JobTable) -> list[tuple[int, int]]:
    """For each job that met a long limit the next start of the same thing."""
    services: dict[tuple[str, str, int], list[int]] = {}
    for row in np.flatnonzero(table.start != ABSENT).tolist():
        services.setdefault(_service(table, row), []).append(row)
    return sorted(pair for rows in services.values() for pair in _linked(table, rows))


def _linked(table: JobTable, rows: list[int]) -> list[tuple[int, int]]:
    ordered = sorted(rows, key=lambda row: (int(table.start[row]), row))
    found = []
    for one, other in itertools.pairwise(ordered):
        limit, run = int(table.limit[one]), int(table.end[one] - table.start[one])
        near = abs(int(table.start[other] - table.end[one])) <= 72 * HOUR
        if limit >= 12 * HOUR and run >= 0.98 * limit and near:
            found.append((one, other))
    return found


def _service(table: JobTable, row: int) -> tuple[str, str, int]:
    return table.user[row], table.name[row], int(table.nodes[row])


@given(rows=ROWS)
def test_pairs_are_those_of_a_plain_loop(rows: list[tuple[str, str, int, int, int, int, int]]) -> None:
    table = table_of(rows)
    before, after = find_pairs(table)
    assert sorted(zip(before.tolist(), after.tolist(), strict=True)) == pairs_by_loop(table)


@given(rows=ROWS)
def test_occupancy_is_that_of_every_hour_counted(rows: list[tuple[str, str, int, int, int, int, int]]) -> None:
    table = table_of(rows)
    held = occupancy(table, table.nodes.astype(np.int64))
    counted = [0] * 400
    for nodes, start, end in zip(table.nodes.tolist(), table.start.tolist(), table.end.tolist(), strict=True):
        for hour in range(start // HOUR, end // HOUR):
            counted[hour] += nodes
    assert held.peak == max(counted)
    first = int(table.start.min()) // HOUR if rows else 0
    hourly = held.hourly().tolist()
    assert hourly == counted[first : first + len(hourly)]
    assert sum(hourly) == sum(counted)


def test_a_chain_with_a_late_user() -> None:
    stats = trace_stats(
        table_of(
            [
                ("ann", "serve", 1, 0, 0, 48, 48),
                ("ann", "serve", 1, 60, 64, 112, 48),  # 12 h late, then 4 h in the queue
                ("ann", "serve", 1, 100, 114, 120, 48),  # submitted ahead, and still 2 h of gap
                ("bob", "other", 1, 0, 0, 47, 48),
                ("bob", "other", 1, 48, 48, 50, 48),  # its predecessor did not meet its limit
            ]
        )
    ).chains
    assert (stats.pairs, stats.users, stats.overlapping, stats.gaps) == (2, 1, 0, 2)
    assert (stats.gap_mean, stats.gap_median) == (9, 9)
    assert (stats.late_mean, stats.queued_mean) == (6, 3)
    assert (stats.submitted_ahead, stats.submitted_after_an_hour) == (0.5, 0.5)


def test_waits_load_and_classes_of_a_small_trace() -> None:
    stats = trace_stats(
        table_of(
            [
                ("a", "x", 2, 0, 0, 10, 24),
                ("a", "x", 2, 0, 2, 10, 24),
                ("b", "y", 8, 0, 20, 30, 48),
                ("c", "z", 1, 5, ABSENT, 6, 1),
            ]
        ),
        capacity_nodes=10,
    )
    assert (stats.jobs, stats.users, stats.never_started) == (4, 3, 1)
    assert (stats.waits.jobs, stats.waits.mean, stats.waits.median) == (3, pytest.approx(22 / 3), 2)
    assert (stats.waits.up_to_2h, stats.waits.from_2h_to_12h) == (pytest.approx(2 / 3), 0)
    assert (stats.load.unit, stats.load.unit_hours, stats.load.peak) == ("nodes", 116, 8)
    assert stats.load.utilisation == pytest.approx(116 / 300)
    assert [(c.limit_above, c.limit_to, c.size_from, c.size_to, c.waits.jobs) for c in stats.wait_classes] == [
        (12 * HOUR, 24 * HOUR, 2, 3, 2),
        (24 * HOUR, 48 * HOUR, 8, 15, 1),
    ]
    assert [(s.label, s.jobs) for s in stats.states] == [("COMPLETED", 3), ("COMPLETED, never started", 1)]
    assert stats.arrivals == ()


def test_labels() -> None:
    assert [size_label(1, 2), size_label(4, 8), size_label(64, None)] == ["1", "4-7", "64+"]
    assert [limit_label(0, HOUR), limit_label(HOUR, 2 * HOUR), limit_label(48 * HOUR, None)] == [
        "<= 1 h",
        "1-2 h",
        "> 48 h",
    ]


def test_arrivals_start_on_monday() -> None:
    monday = 1_675_036_800  # 2023-01-30T00:00:00Z, a Monday
    table = job_table(3, submit=np.array([monday, monday + HOUR - 1, monday + 167 * HOUR]))
    arrivals = trace_stats(table).arrivals
    assert (arrivals[0], arrivals[167], sum(arrivals), len(arrivals)) == (2, 1, 3, 168)


@given(rows=ROWS)
def test_shares_add_up_and_the_document_is_json(rows: list[tuple[str, str, int, int, int, int, int]]) -> None:
    stats = trace_stats(table_of(rows), 4)
    json.dumps(stats.document(), allow_nan=False)
    for shares in (stats.states, stats.sizes, stats.limits):
        assert sum(share.jobs for share in shares) == stats.jobs
        assert sum(share.share_of_jobs for share in shares) == pytest.approx(1 if rows else 0)
    assert sum(c.waits.jobs for c in stats.wait_classes) == stats.waits.jobs


@pytest.mark.shared
def test_what_is_published_of_ls6_holds_on_its_first_five_months(shared: Path) -> None:
    """Figures of the whole log (six months): peak 80 nodes, 95 % of the hours at most 76."""
    table = read_trace(shared / "traces" / "ls6-a100-to-2023-02.log.gz").table
    stats = trace_stats(table)
    assert (stats.load.peak, round(stats.load.hourly_p95 or 0)) == (80, 76)
    jobs = list(
        zip(*(c.tolist() for c in (table.submit, table.start, table.end, table.nodes, table.limit)), strict=True)
    )
    ran = [job for job in jobs if job[1] != ABSENT]
    hours = sum((end - start) * nodes for _, start, end, nodes, _ in ran) / HOUR
    long = [job for job in jobs if job[4] == 48 * HOUR]
    long_hours = sum((end - start) * nodes for _, start, end, nodes, _ in long if start != ABSENT) / HOUR
    assert stats.load.unit_hours == pytest.approx(hours)
    assert stats.waits.mean == pytest.approx(sum(start - submit for submit, start, *_ in ran) / len(ran) / HOUR)
    assert 0.20 < len(long) / len(jobs) < 0.32  # 24 % of the whole log
    assert 0.68 < long_hours / hours < 0.88  # 73 % of the whole log
    assert stats.never_started == 2362


@pytest.mark.shared
def test_the_hand_made_chains_of_ls6(shared: Path) -> None:
    """The whole log has 1,193 pairs of 77 users, 60 % overlapping; mean gap 17.5 h, 12.1 h of it lateness."""
    table = read_trace(shared / "traces" / "ls6-a100-to-2023-02.log.gz").table
    chains = trace_stats(table).chains
    before, after = find_pairs(table)
    assert sorted(zip(before.tolist(), after.tolist(), strict=True)) == pairs_by_loop(table)
    assert 1193 * 0.65 < chains.pairs < 1193
    assert 60 < chains.users <= 77
    assert chains.overlapping / chains.pairs == pytest.approx(0.60, abs=0.05)
    assert chains.gap_mean == pytest.approx(17.5, abs=2)
    assert chains.late_mean == pytest.approx(12.1, abs=2)
    assert chains.queued_mean == pytest.approx(5.4, abs=2)
    assert chains.submitted_ahead == pytest.approx(0.13, abs=0.05)
    assert chains.submitted_after_an_hour == pytest.approx(0.68, abs=0.05)
