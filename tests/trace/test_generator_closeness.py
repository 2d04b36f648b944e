"""The LS6 preset against what is published of the queue, and against its log where that is at hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from mirage.domain.job import ABSENT, JobState
from mirage.domain.jobtable import JobTable, Names, job_table
from mirage.trace.generator import compare, generate, statistics
from mirage.trace.generator.sessions import find_continuations, find_sessions

if TYPE_CHECKING:
    from pathlib import Path

SEEDS = range(4)

# Measured on the log that the Mirage authors published (github.com/zhaozhang/Mirage, data/ls6-a100.log,
# CC BY 4.0): all of it, to March 2023, 24,777 jobs; the preset is fitted to the part before March.
PUBLISHED = {
    "share of jobs that ask for 48 h": (0.24, 0.04),
    "their share of node-hours": (0.73, 0.08),
    "share of jobs that ran to a limit of 12 h or more": (0.069, 0.012),
}
TIMEOUT_HOURS = (0.55, 0.05)


@pytest.fixture(scope="module")
def tables() -> list[JobTable]:
    return [generate("ls6", seed) for seed in SEEDS]


def test_published_statistics(tables: list[JobTable]) -> None:
    for table in tables:
        found = dict(statistics(table, 48 * 3600))
        for name, (value, tolerance) in PUBLISHED.items():
            assert found[name] == pytest.approx(value, abs=tolerance), name
        assert found["share of the node-hours of jobs that ran to such a limit"] == pytest.approx(
            TIMEOUT_HOURS[0], abs=TIMEOUT_HOURS[1]
        )


def test_five_months_of_a_contended_queue(tables: list[JobTable]) -> None:
    """17,975 jobs of 300 users were submitted before March; 72 to 76 nodes were there in the new year."""
    assert np.mean([len(t) for t in tables]) == pytest.approx(17_975, rel=0.05)
    assert np.mean([len(np.unique(t.user.codes)) for t in tables]) == pytest.approx(300, rel=0.15)
    for month in ("January 2023", "February 2023"):
        load = [dict(statistics(t))[f"nodes of work offered in {month}"] for t in tables]
        assert 0.85 * 76 < np.mean(load) < 76


def small(rows: list[tuple[str, str, int, int, int, int, int]]) -> JobTable:
    """user, name, nodes, submit, start, end, limit (hours)."""
    user, name, nodes, *times = zip(*rows, strict=True)
    submit, start, end, limit = (np.array(t, dtype=np.int64) * 3600 for t in times)
    return job_table(
        len(rows),
        user=Names.encode(list(user)),
        name=Names.encode(list(name)),
        nodes=np.array(nodes, dtype=np.int32),
        submit=submit,
        start=start,
        end=end,
        limit=limit,
    )


def test_continuations_by_hand() -> None:
    table = small(
        [
            ("a", "run.1", 1, 0, 0, 24, 24),
            ("b", "run.1", 1, 1, 30, 40, 24),  # another user
            ("a", "run.2", 2, 2, 26, 40, 24),  # another size
            ("a", "run.3", 1, 20, 30, 54, 24),  # the successor, submitted before the end
            ("a", "run.4", 1, 127, 127, 151, 24),  # 73 h after
            ("a", "run.5", 1, 150, 152, 160, 24),  # overlaps nothing, follows run.4
            ("a", "run.6", 1, 161, 161, 162, 24),  # run.5 did not meet its limit
        ]
    )
    pairs = find_continuations(table)
    found = {(table.name[a], table.name[b]) for a, b in zip(pairs.predecessor, pairs.successor, strict=True)}
    assert found == {("run.1", "run.3"), ("run.4", "run.5")}


def test_batches_end_with_a_pause_of_more_than_an_hour() -> None:
    hours = [(0, "x"), (1, "x"), (1, "y"), (3, "x"), (4, "x")]
    table = small([("a", name, 1, hour, hour, hour, 2) for hour, name in hours])
    sessions = find_sessions(table)
    assert sessions.batch.tolist() == [0, 0, 1, 2, 2]
    assert sessions.size.tolist() == [2, 1, 2]
    assert sessions.first.tolist() == [0, 2, 3]


def ls6(folder: Path) -> JobTable:
    """The published part of the log before March 2023; names are kept as letters, without digits."""
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = parquet.read_table(folder / "traces" / "ls6_a100.parquet").to_pydict()
    letters = str.maketrans("0123456789", "abcdefghij")
    start = np.array([ABSENT if s is None else s for s in columns["start_s"]], dtype=np.int64)
    states = [JobState.CANCELLED if s == "CANCELLED_PENDING" else JobState[s] for s in columns["state"]]
    whole = {name: np.array(columns[name], dtype=np.int64) for name in ("submit_s", "end_s", "limit_s")}
    return job_table(
        len(start),
        user=Names.encode(columns["user"]),
        name=Names.encode([str(k).translate(letters) for k in columns["name_key"]]),
        nodes=np.array(columns["nodes"], dtype=np.int32),
        submit=whole["submit_s"],
        start=start,
        end=whole["end_s"],
        limit=whole["limit_s"],
        state=np.array(states, dtype=np.int8),
        origin=1_664_988_768,
    )


RELATIVE = {
    "jobs": 0.05,
    "jobs a day (median)": 0.15,
    "users": 0.15,
    "share of jobs of the ten busiest users": 0.25,
    "share of node-hours of the ten largest users": 0.25,
    "mean jobs in a batch": 0.05,
    "share of jobs that ask for 48 h": 0.06,
    "their share of node-hours": 0.08,
    "runtime / limit, 50 %": 0.05,
    "runtime / limit, 75 %": 0.05,
    "share of jobs that ran to their limit": 0.03,
    "share of jobs that ran to a limit of 12 h or more": 0.05,
    "share of the node-hours of jobs that ran to such a limit": 0.03,
    "share of jobs failed": 0.06,
    "share of jobs cancelled while pending": 0.05,
    "busiest hour of the day / mean": 0.2,
    "quietest hour of the day / mean": 0.3,
    "weekday / weekend day": 0.25,
    "nodes of work offered in December 2022": 0.12,
    "nodes of work offered in January 2023": 0.1,
    "nodes of work offered in February 2023": 0.1,
    "chains manually: pairs": 0.2,
}


@pytest.mark.shared
def test_close_to_the_real_log(shared: Path, tables: list[JobTable]) -> None:
    real = ls6(shared)
    rows = [compare(table, real) for table in tables]
    for columns in zip(*rows, strict=True):
        name, value = columns[0].statistic, columns[0].real
        mean = np.mean([c.generated for c in columns])
        if name in RELATIVE:
            assert mean == pytest.approx(value, rel=RELATIVE[name]), name
        elif name.startswith(("share of limits", "share of jobs of", "share of node-hours of jobs")):
            assert mean == pytest.approx(value, abs=0.03), name


@pytest.mark.shared
def test_the_statistics_agree_with_those_published(shared: Path) -> None:
    """The same definitions, on the part of the log before March."""
    real = ls6(shared)
    found = dict(statistics(real))
    assert found["users"] == 300
    assert found["share of jobs that ask for 48 h"] == pytest.approx(0.24, abs=0.03)
    pairs = find_continuations(real)
    # 1,193 pairs of 77 users in the whole log, to the end of March, by the full names
    assert 900 < len(pairs.predecessor) < 1193
    assert 70 < len(np.unique(real.user.codes[pairs.predecessor])) < 95
