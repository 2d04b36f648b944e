"""Parquet: Mirage's own files keep everything; plain ones are read by their columns' names."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirage.domain.errors import MissingExtra, TraceError
from mirage.domain.job import ABSENT, JobState
from mirage.domain.jobtable import JobTable, Names, job_table
from mirage.trace.parquet import write_table
from mirage.trace.readers import import_bytes, read_trace
from mirage.trace.result import Strictness

if TYPE_CHECKING:
    from pathlib import Path

    from mirage.trace.result import ImportResult

arrow = pytest.importorskip("pyarrow")
files = pytest.importorskip("pyarrow.parquet")


def file_of(**columns: list[Any]) -> bytes:
    sink = arrow.BufferOutputStream()
    files.write_table(arrow.table(columns), sink)
    return bytes(sink.getvalue())


def read(data: bytes, strictness: Strictness = Strictness.STRICT) -> ImportResult:
    return import_bytes(data, "jobs.parquet", None, strictness)


def plain(column: Any) -> Any:
    """A column as lists, whatever its encoding."""
    if isinstance(column, Names):
        return column.decode()
    return column.tolist() if isinstance(column, np.ndarray) else column


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6)


@st.composite
def tables(draw: st.DrawFn) -> JobTable:
    """Tables whose rows do not contradict themselves."""
    count = draw(st.integers(0, 6))

    def numbers(low: int, high: int) -> Any:
        return np.array(draw(st.lists(st.integers(low, high), min_size=count, max_size=count)), dtype=np.int64)

    def texts() -> Any:
        return Names.encode(draw(st.lists(TEXT, min_size=count, max_size=count)))

    submit = numbers(0, 2_000_000_000)
    start = np.where(numbers(0, 3) > 0, submit + numbers(0, 10**6), ABSENT)
    end = np.maximum(start, submit) + numbers(0, 10**6)
    gres = np.stack([numbers(0, 8), numbers(0, 8)], axis=1).astype(np.int32)
    return job_table(
        count,
        job_id=np.array([f"{n}_1" for n in numbers(1, 10**9)], dtype=np.str_),
        **{name: texts() for name in ("user", "account", "partition", "qos", "name", "constraint", "node_list")},
        submit=submit,
        eligible=numbers(-1, 10**9),
        start=start,
        end=end,
        limit=np.where(numbers(0, 3) > 0, numbers(1, 10**7), ABSENT),
        nodes=numbers(1, 10**4).astype(np.int32),
        cpus=numbers(-1, 10**6).astype(np.int32),
        memory_mb=numbers(-1, 10**9),
        priority=numbers(-1, 2**32),
        exit_code=numbers(0, 255).astype(np.int32),
        state=numbers(3, 11).astype(np.int8),
        gres=gres,
        gres_names=("gpu:a100", "npu"),
        source="made up",
        origin=draw(st.integers(0, 2**31)),
        notes=("one", "two"),
    )


@given(table=tables())
def test_a_table_survives_the_file(tmp_path_factory: pytest.TempPathFactory, table: JobTable) -> None:
    path = tmp_path_factory.mktemp("tables") / "t.parquet"
    write_table(table, path)
    again = read_trace(path).table
    for field in fields(JobTable):
        assert plain(getattr(again, field.name)) == plain(getattr(table, field.name)), field.name


def test_plain_columns_are_found_by_name() -> None:
    table = read(
        file_of(
            job_id=["a", "b", "c"],
            user=["u1", None, "u1"],
            submit_s=[0, 5, 9],
            start_s=[3, None, 20],
            end_s=[10, 8, None],
            limit_s=[60, 60, None],
            nodes=[1, 2, None],
            gpus=[3, None, 0],
            state=["TIMEOUT", "CANCELLED_PENDING", None],
            name_key=[0, 1, 0],
        )
    ).table
    assert table.job_id.tolist() == ["a", "b", "c"]
    assert table.user.decode() == ["u1", "", "u1"]
    assert table.start.tolist() == [3, ABSENT, 20]
    assert table.limit.tolist() == [60, 60, ABSENT]
    assert table.nodes.tolist() == [1, 2, ABSENT]
    assert (table.gres_names, table.gres.tolist()) == (("gpu",), [[3], [0], [0]])
    assert [JobState(s) for s in table.state.tolist()] == [JobState.TIMEOUT, JobState.CANCELLED, JobState.RUNNING]
    assert table.name.decode() == ["0", "1", "0"]


def test_run_times_without_starts_are_said() -> None:
    table = read(file_of(submit_s=[0, 5], run_s=[10, 20], state=["PASS", "KILLED"])).table
    assert (table.start.tolist(), table.end.tolist()) == ([0, 5], [10, 25])
    assert any("waits mean nothing" in note for note in table.notes)


def test_timestamps_are_instants() -> None:
    stamps = arrow.array([1_675_245_600_000], arrow.timestamp("ms"))
    assert read(file_of(submit=stamps)).table.submit.tolist() == [1_675_245_600]


@pytest.mark.parametrize(
    ("columns", "line", "field"),
    [
        ({"submit": [0, 5], "start": [1, 2]}, 2, "start"),
        ({"submit": [0, None]}, 2, "submit"),
        ({"submit": [0, 5], "nodes": [1, -4]}, 2, "nodes"),
        ({"submit": [0, 5], "cpus": [1, 1 << 40]}, 2, "cpus"),
        ({"submit": [0, 5], "state": ["COMPLETED", "ODD"], "end": [1, 6]}, 2, "state"),
        ({"submit": ["x", "y"]}, 0, "submit"),
        ({"submit": [0.5, 1.0]}, 0, "submit"),
        ({"nothing": [1]}, 0, "submit"),
    ],
)
def test_bad_rows_and_columns_are_named(columns: dict[str, list[Any]], line: int, field: str) -> None:
    with pytest.raises(TraceError) as caught:
        read(file_of(**columns))
    assert (caught.value.path, caught.value.line, caught.value.field) == ("jobs.parquet", line, field)


def test_without_pyarrow_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(MissingExtra, match=r"mirage-slurm\[parquet\]"):
        read(b"PAR1 and so on")


def test_an_unwritable_place_is_said(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot be written"):
        write_table(job_table(0), tmp_path / "no" / "folder.parquet")


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "jobs", "never_started"),
    [
        ("curie_2012", 295_055, 10_028),
        ("hpc2n", 202_876, 1),
        ("ls6_a100", 17_975, 2362),
        ("helios_15k", 15_000, 0),
    ],
)
def test_published_tables_are_read_whole(shared: Path, name: str, jobs: int, never_started: int) -> None:
    result = read_trace(shared / "traces" / f"{name}.parquet")
    assert (len(result.table), len(result.rejected)) == (jobs, 0)
    assert int((result.table.start == ABSENT).sum()) == never_started


THREADS = """
import os, sys
from pathlib import Path
from mirage.datafiles import Frame, pyarrow

pyarrow()
threads = lambda: len(os.listdir("/proc/self/task"))
before, data = threads(), Path(sys.argv[1]).read_bytes()
assert Frame(data, "jobs").numbers(("submit",)).size == 3
print(threads() - before)
"""


def test_a_file_is_read_by_no_other_thread(tmp_path: Path) -> None:
    """A thread that still uses the file at the exit of Python aborts the process, even after its output."""
    (tmp_path / "jobs.parquet").write_bytes(file_of(submit=[1, 2, 3], user=["a", "b", "c"]))
    command = [sys.executable, "-c", THREADS, str(tmp_path / "jobs.parquet")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "0\n"
