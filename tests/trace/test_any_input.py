"""For any file content, a reader returns a table or reports the error in the file."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirage.domain.errors import MirageError, TraceError
from mirage.trace.readers import TraceFormat, import_bytes
from mirage.trace.result import Strictness

SACCT_HEADER = "JobID|Submit|Start|End|State|Timelimit|NNodes|AllocTRES|ReqMem|ReqGRES|ExitCode|Eligible|NodeList"
SACCT_CELLS = [
    *("1", "1_[2-4%1]", "1_[1,...]", "2+0", "3.batch", "Unknown", "None", "", "2023-02-01T10:00:00", "1675245600"),
    *(
        "2023-02-01T10:00:00Z",
        "9999-12-31T23:59:59",
        "2023-11-05T01:30:00",
        "COMPLETED",
        "PENDING",
        "CANCELLED by 1",
    ),
    *("UNLIMITED", "60", "-1", "1e9", "4Gn", "cpu=2,mem=4G,gres/gpu:x=2", "gpu:2", "0:15", "99999999999999999999"),
    *("\u0661", "\x00", "\x0b", "n[1-2]", "None assigned"),
]
SWF_CELLS = ["0", "1", "-1", "5", "-7", "1e3", "nan", "inf", "1.5", "999999999999999999999", "x", "0x1", "1_0", ""]
ANY_BYTES = st.one_of(st.binary(max_size=200), st.text(max_size=200).map(str.encode))


def read(data: bytes, kind: TraceFormat | None) -> None:
    """In both ways; lenient must not fail for a row."""
    with contextlib.suppress(MirageError):
        import_bytes(data, "f", kind, Strictness.STRICT, "America/New_York")
    try:
        result = import_bytes(data, "f", kind, Strictness.LENIENT, "America/New_York")
    except TraceError as error:
        if error.line > 2:
            raise AssertionError(f"lenient, but {error}") from error
        return
    counts = result.counts
    assert (
        len(result.table)
        == counts.jobs
        >= (counts.rows - counts.rejected - counts.steps - counts.partial - counts.repeated)
    )
    assert len(result.rejected) == counts.rejected


@pytest.mark.parametrize("kind", [*TraceFormat, None])
@given(data=ANY_BYTES)
def test_any_bytes(kind: TraceFormat | None, data: bytes) -> None:
    read(data, kind)


@given(data=st.binary(max_size=100))
def test_any_gzip_or_parquet_start(data: bytes) -> None:
    read(b"\x1f\x8b" + data, None)
    read(b"PAR1" + data + b"PAR1", None)


def rows(cells: list[str], count: int, separator: str) -> st.SearchStrategy[str]:
    cell = st.one_of(st.sampled_from(cells), st.text(max_size=5))
    row = st.one_of(st.lists(cell, min_size=count, max_size=count), st.lists(cell, max_size=count + 1))
    return st.lists(row.map(separator.join), max_size=5).map("\n".join)


@given(text=rows(SACCT_CELLS, 13, "|"))
def test_any_sacct_rows(text: str) -> None:
    read(f"{SACCT_HEADER}\n{text}".encode("utf-8", "surrogatepass"), None)


@given(text=rows(SWF_CELLS, 18, " "))
def test_any_swf_rows(text: str) -> None:
    read(f"; MaxProcs: 4\n; MaxNodes: 4\n{text}".encode("utf-8", "surrogatepass"), None)


@given(text=rows(SACCT_CELLS, 10, "\t"))
def test_any_published_log_rows(text: str) -> None:
    names = "JobID JobName UID Start Submit End Priority TimelimitR ExitCode NNodes"
    read(f"7\n{names}\n---\n{text}".encode("utf-8", "surrogatepass"), None)


@pytest.mark.parametrize("data", [b"", b"\n \n", b"hello\n", b"1\n2\n"])
def test_what_is_no_trace_is_refused(data: bytes) -> None:
    with pytest.raises(TraceError, match=r"empty|not recognised"):
        import_bytes(data, "notes.txt")


def test_an_unknown_format_lists_the_known() -> None:
    with pytest.raises(TraceError, match="sacct, swf, mirage, parquet"):
        import_bytes(b"x", "notes.txt", "csv")
