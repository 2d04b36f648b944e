"""The window of the last day of the queue: contents, frequency, and unchanged copies."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mirage.domain.snapshot import JobColumns, PartitionState, Snapshot
from mirage.features.summary import COLUMNS, LENGTH, SPACING, QueueWindows, summarise

EMPTY = JobColumns.none()


def snapshot(time: int, idle: int = 3) -> Snapshot:
    return Snapshot(time, EMPTY, EMPTY, (PartitionState("p", 9, idle, 9 - idle, 0),), (), ("p",), ())


@given(st.integers(0, 10**9), st.lists(st.integers(1, 2_000), max_size=300))
def test_one_row_in_each_interval_of_the_grid_the_first_that_comes(begin: int, gaps: list[int]) -> None:
    times = np.cumsum([begin, *gaps])
    windows = QueueWindows()
    for time in times:
        windows.add(snapshot(int(time)))
    first_in_interval = [t for k, t in enumerate(times) if not k or t // SPACING != times[k - 1] // SPACING]
    window = windows.of("p")
    assert window is not None
    assert window.times.tolist() == first_in_interval[-LENGTH:]
    assert window.rows.shape == (len(window), len(COLUMNS))


def test_rows_are_the_summaries_of_each_partition_and_of_all() -> None:
    windows, seen = QueueWindows(), snapshot(600, idle=4)
    windows.add(seen)
    for name in ("", "p"):
        window = windows.of(name)
        assert window is not None
        assert (window.rows[0] == summarise(seen, name)).all()
    assert windows.of("elsewhere") is None


def test_stale_and_queueless_snapshots_leave_no_row() -> None:
    windows = QueueWindows()
    windows.add(replace(snapshot(0), stale_since=0))
    windows.add(Snapshot(600, EMPTY, EMPTY, (), (), (), ()))
    assert windows.of("p") is None


def test_copies_go_their_own_ways_and_windows_given_away_never_change() -> None:
    windows = QueueWindows()
    windows.add(snapshot(0))
    given_away, twin = windows.of("p"), windows.copy()
    twin.add(snapshot(600))
    assert given_away is not None
    assert len(given_away) == 1
    for each, rows in ((windows, 1), (twin, 2)):
        window = each.of("p")
        assert window is not None
        assert len(window) == rows
