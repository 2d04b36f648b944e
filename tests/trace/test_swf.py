"""Standard Workload Format: the example of the format, errors, and the KTH log."""

from __future__ import annotations

import gzip
import tracemalloc
from typing import TYPE_CHECKING

import pytest

from mirage import datafiles
from mirage.domain.errors import TraceError
from mirage.domain.job import ABSENT, JobState
from mirage.trace.readers import import_bytes, read_trace
from mirage.trace.result import Strictness

if TYPE_CHECKING:
    from pathlib import Path

    from mirage.trace.result import ImportResult

HEADER = "; Version: 2.2\n; Computer: Test\n; UnixStartTime: 843480031\n; MaxNodes: 64\n; MaxProcs: 128\n;\n"
ROWS = [
    #  job submit wait run alloc cpu mem req limit rmem status user group exe queue part prec think
    "1   0     10  100  4    -1  -1  8   3600  2048 1      12   3     5   1     2    -1   -1",
    "2   5     20  0    -1   -1  -1  2   60    -1   5      13   -1    -1  1     2    -1   -1",
    "3   7     -1  50   2    -1  -1  -1  -1    -1   0      13   -1    -1  1     2     1   60",
    "4   8      0  50   2    1.5 -1  2   600   -1   2      13   -1    -1  1     2    -1   -1",
]


def read(text: str, strictness: Strictness = Strictness.STRICT) -> ImportResult:
    return import_bytes(text.encode(), "log.swf", None, strictness)


def test_rows_become_jobs() -> None:
    result = read(HEADER + "\n".join(ROWS))
    table = result.table
    assert (result.counts.rows, result.counts.jobs, result.counts.partial) == (4, 3, 1)
    assert table.origin == 843_480_031
    assert table.submit.tolist() == [0, 5, 7]
    assert table.start.tolist() == [10, ABSENT, 7]
    assert table.end.tolist() == [110, 25, 57]
    assert table.limit.tolist() == [3600, 60, ABSENT]
    assert table.cpus.tolist() == [8, 2, 2]
    assert table.nodes.tolist() == [ABSENT] * 3
    assert table.memory_mb.tolist() == [16, ABSENT, ABSENT]
    assert [JobState(s) for s in table.state.tolist()] == [JobState.COMPLETED, JobState.CANCELLED, JobState.FAILED]
    assert table.user.decode() == ["12", "13", "13"]
    assert table.account.decode() == ["3", "", ""]
    assert table.partition.decode() == ["2", "2", "2"]


def test_the_header_is_kept() -> None:
    header = read(HEADER + ROWS[0]).header
    assert (header.number("MaxProcs"), header.number("MaxJobs"), header.get("Computer")) == (128, ABSENT, "Test")


def test_the_notes_say_what_was_assumed() -> None:
    notes = "\n".join(read(HEADER + "\n".join(ROWS)).table.notes)
    for said in (
        "other CPUs",
        "without a wait time",
        "name a preceding job (not used): 1",
        "no nodes",
        "1996-09-23T12:00:31Z",
    ):
        assert said in notes


def test_one_processor_a_node_gives_the_nodes() -> None:
    assert read("; MaxNodes: 128\n; MaxProcs: 128\n" + ROWS[0]).table.nodes.tolist() == [8]


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("1 2 3", "3 fields where the format has 18"),
        (ROWS[0].replace("3600", "soon"), "requested time: 'soon': expected a number"),
        (ROWS[0].replace("100 ", "100.5"), "run time: 100.5: expected a whole number"),
        (ROWS[0].replace("3600", "1e400"), "requested time"),
        (ROWS[0].replace("-1  -1  8", "-1  -1  nan"), "requested processors"),
        (ROWS[0].replace(" 1      12", " 9      12"), "status: 9 is not one of"),
        (ROWS[0].replace("1   0 ", "1  -5 "), "submit time: is negative"),
        (ROWS[0].replace("1   0 ", "1  -1 "), "submit time: missing"),
        (ROWS[0].replace("100 ", "-1 "), "run time: missing, but the job is COMPLETED"),
    ],
)
def test_a_bad_row_names_its_place(row: str, problem: str) -> None:
    with pytest.raises(TraceError, match=problem) as caught:
        read(HEADER + ROWS[1] + "\n" + row + "\n")
    assert caught.value.line == 8
    kept = read(HEADER + ROWS[1] + "\n" + row + "\n", Strictness.LENIENT)
    assert (len(kept.table), len(kept.rejected), kept.rejected[0].line) == (1, 1, 8)


def test_gzip_is_unpacked_and_damage_is_said() -> None:
    data = gzip.compress((HEADER + ROWS[0]).encode())
    assert len(import_bytes(data, "log.swf.gz").table) == 1
    with pytest.raises(TraceError, match="damaged gzip"):
        import_bytes(data[:-12], "log.swf.gz")


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("before", [0, 1, 2_500])
def test_line_that_is_too_long_is_named(monkeypatch: pytest.MonkeyPatch, packed: bool, before: int) -> None:
    monkeypatch.setattr(datafiles, "LONGEST_LINE", 300)
    monkeypatch.setattr(datafiles, "_PART", 1_000)
    good = b"; " + b"x" * 297 + b"\n"
    data = good * before + b"1" * 301 + b"\n" + good
    with pytest.raises(TraceError, match=f"^log:{before + 1}: the line is longer than 300 bytes"):
        import_bytes(gzip.compress(data) if packed else data, "log")


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("part", [1, 7, 299, 300, 301, 1_000])
def test_line_of_the_longest_length_is_read(monkeypatch: pytest.MonkeyPatch, packed: bool, part: int) -> None:
    monkeypatch.setattr(datafiles, "LONGEST_LINE", 300)
    monkeypatch.setattr(datafiles, "_PART", part)
    data = (b"; " + b"x" * 298 + b"\n") * 10 + ROWS[0].encode()
    assert len(import_bytes(gzip.compress(data) if packed else data, "log").table) == 1


def test_archive_of_one_endless_line_takes_little_memory() -> None:
    data = gzip.compress(b"1" * (200 << 20), 1)
    tracemalloc.start()
    try:
        with pytest.raises(TraceError, match=r"^log:1: the line is longer"):
            import_bytes(data, "log")
        assert tracemalloc.get_traced_memory()[1] < 20 << 20
    finally:
        tracemalloc.stop()


def test_archive_that_holds_too_much_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datafiles, "LARGEST_UNPACKED", 3_000_000)
    with pytest.raises(TraceError, match="the archive holds more than 3000000 bytes"):
        import_bytes(gzip.compress(b"; a\n" * 1_000_000), "log")


def test_a_log_of_comments_only_is_an_empty_table() -> None:
    assert len(read(HEADER).table) == 0


@pytest.mark.shared
def test_the_kth_log_agrees_with_a_plain_reading_of_it(shared: Path) -> None:
    path = shared / "traces" / "KTH-SP2-1996-2.1-cln.swf.gz"
    result = read_trace(path)
    with gzip.open(path, "rt") as file:
        rows = [[int(x) for x in line.split()] for line in file if not line.startswith(";")]
    table = result.table
    assert result.header.number("MaxProcs") == 100
    assert [(r[1], r[1] + r[2], r[1] + r[2] + r[3], r[7], r[8]) for r in rows] == list(
        zip(*(c.tolist() for c in (table.submit, table.start, table.end, table.cpus, table.limit)), strict=True)
    )
