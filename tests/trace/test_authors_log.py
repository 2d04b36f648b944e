"""The logs published with Mirage."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from mirage.domain.errors import TraceError
from mirage.domain.job import ABSENT, JobState
from mirage.trace.readers import import_bytes, read_trace
from mirage.trace.result import Strictness

if TYPE_CHECKING:
    from pathlib import Path

    from mirage.trace.result import ImportResult

NAMES = "JobID JobName UID Start Submit End Priority TimelimitR ExitCode NNodes"
HEAD = f"  {NAMES.replace(' ', '   ')}\n{' '.join(['--------'] * 10)}\n"
ROWS = [
    "1\trun.10\t00007\t2022-11-05T13:00:00\t2022-11-05T12:00:00\t2022-11-07T12:00:10\t1234\t2880\t0:0\t2",
    "2\ta b|c\t00008\t2022-11-05T12:30:00\t2022-11-05T12:10:00\t2022-11-05T12:30:00\t1200\t60\t0:0\t1",
    "3\tx\t00008\t2022-11-05T12:40:00\t2022-11-05T12:20:00\t2022-11-05T12:50:00\t1200\t60\t1:0\t1",
    "4\tx\t00008\t2022-11-06T01:50:00\t2022-11-06T01:45:00\t2022-11-06T01:10:00\t1200\t60\t0:0\t1",
]


def read(rows: list[str], strictness: Strictness = Strictness.STRICT) -> ImportResult:
    return import_bytes(f"{len(rows) + 2}\n{HEAD}{chr(10).join(rows)}\n".encode(), "ls6.log", None, strictness)


def test_rows_become_jobs() -> None:
    table = read(ROWS).table
    assert table.job_id.tolist() == ["1", "2", "3", "4"]
    assert table.submit[0] == 1_667_667_600  # 12:00 CDT = 17:00Z
    assert table.runtime[0] == 48 * 3600 + 10  # 47 h on the clock: it was set back meanwhile
    assert table.name.decode() == ["run.10", "a b|c", "x", "x"]
    assert table.user.decode() == ["00007", "00008", "00008", "00008"]
    assert table.limit.tolist() == [172_800, 3600, 3600, 3600]
    assert table.nodes.tolist() == [2, 1, 1, 1]
    assert table.gres_names == ()


def test_states_follow_from_times_and_exit_codes() -> None:
    table = read(ROWS).table
    states = [JobState(s) for s in table.state.tolist()]
    assert states == [JobState.TIMEOUT, JobState.CANCELLED, JobState.FAILED, JobState.COMPLETED]
    assert table.start[1] == ABSENT


def test_the_hour_that_comes_twice_is_read_in_order() -> None:
    result = read(ROWS)
    assert result.table.runtime[3] == 20 * 60
    assert any("hour that came twice" in note and note.endswith(": 3") for note in result.table.notes)


def test_an_hour_that_never_was_is_a_fault() -> None:
    row = ROWS[0].replace("2022-11-05T13:00:00", "2023-03-12T02:30:00").replace("2022-11-07", "2023-03-14")
    with pytest.raises(TraceError, match="does not exist in America/Chicago"):
        read([row])


def test_the_malformed_row_is_named_and_the_rest_kept() -> None:
    broken = [ROWS[0], "5\tx\t00008\t2022-11-06", ROWS[2]]
    with pytest.raises(TraceError, match="4 tab-separated fields where the header has 10") as caught:
        read(broken)
    assert caught.value.line == 5
    result = read(broken, Strictness.LENIENT)
    assert (len(result.table), [r.line for r in result.rejected]) == (2, [5])


def test_a_header_without_a_field_is_refused() -> None:
    text = f"3\n{HEAD.replace('NNodes', 'Nodes')}{ROWS[0]}\n"
    with pytest.raises(TraceError, match="NNodes: is not exactly once"):
        import_bytes(text.encode(), "ls6.log")


@pytest.mark.shared
def test_the_published_log_agrees_with_the_published_table(shared: Path) -> None:
    log = read_trace(shared / "traces" / "ls6-a100-to-2023-02.log.gz").table
    table = read_trace(shared / "traces" / "ls6_a100.parquet").table
    zero = 1_664_988_768  # 2022-10-05T16:52:48Z, as the traces' README says
    assert log.job_id.tolist() == table.job_id.tolist()
    for column in ("submit", "start", "end"):
        ours = getattr(log, column)
        assert np.where(ours == ABSENT, ABSENT, ours - zero).tolist() == getattr(table, column).tolist()
    for column in ("limit", "nodes", "state", "priority"):
        assert getattr(log, column).tolist() == getattr(table, column).tolist()
    assert [f"u{user}" for user in log.user.decode()] == table.user.decode()
