"""Bounds of a hostile trace: memory and CPU of the machine, and the reader's terminal."""

from __future__ import annotations

import gzip
import io
import json
import resource
from typing import TYPE_CHECKING

import numpy as np
import pytest
from typer.testing import CliRunner

from mirage.cli.main import app
from mirage.domain.errors import TraceError
from mirage.trace import readers
from mirage.trace.readers import import_bytes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

arrow = pytest.importorskip("pyarrow")
files = pytest.importorskip("pyarrow.parquet")

ROWS = 4_000_000
ESCAPE = "\x1b]0;owned\x07\x1b[2J"


def packed_table() -> bytes:
    """Some kilobytes that hold millions of rows."""
    zeros = arrow.array(np.zeros(ROWS, dtype=np.int64))
    out = io.BytesIO()
    files.write_table(arrow.table({"submit": zeros, "start": zeros, "end": zeros}), out, compression="zstd")
    return out.getvalue()


def packed_log() -> bytes:
    return gzip.compress(b"1 0 0 9 1 -1 -1 1 9 -1 1 1 1 -1 1 1 -1 -1\n" * (ROWS // 4))


@pytest.mark.parametrize("make", [packed_table, packed_log])
def test_a_trace_takes_no_more_than_its_share_of_memory(
    monkeypatch: pytest.MonkeyPatch, make: Callable[[], bytes]
) -> None:
    data, before = make(), resource.getrlimit(resource.RLIMIT_DATA)
    assert len(data) < 1 << 20
    monkeypatch.setattr(readers, "_SHARE", 1 << 40)
    with pytest.raises(TraceError, match=r"^bomb: out of memory"):
        import_bytes(data, "bomb")
    assert resource.getrlimit(resource.RLIMIT_DATA) == before


def test_a_smaller_limit_of_before_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bounds that the daemon gives its replays."""
    before, small = resource.getrlimit(resource.RLIMIT_DATA), 1 << 40
    monkeypatch.setattr(readers, "_limit", lambda: small + 1)
    resource.setrlimit(resource.RLIMIT_DATA, (small, before[1]))
    try:
        with readers.within_free_memory("trace"):
            assert resource.getrlimit(resource.RLIMIT_DATA)[0] == small
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


@pytest.mark.parametrize(
    "command", [["trace", "stats"], ["trace", "import", "-o", "out.parquet"], ["simulate", "--processors", "99"]]
)
def test_texts_of_a_trace_do_not_command_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    hour = np.arange(1, 13) * 3_600
    names = arrow.array([f"{ESCAPE}{name}" for name in "abcdefabcdef"])
    columns = {"submit": hour, "start": hour + 60, "end": hour + 120, "cpus": np.ones(12, dtype=int)}
    table = arrow.table(columns | {"user": names, "partition": names, "name": names})
    about = {"source": f"{ESCAPE}src", "notes": [f"{ESCAPE}note\nmirage: ok"]}
    files.write_table(table.replace_schema_metadata({b"mirage.jobtable": json.dumps(about)}), "evil.parquet")
    said = CliRunner().invoke(app, [*command, "evil.parquet"])
    assert "?]0;owned??[2J" in said.output
    assert "\x1b" not in said.output
    assert "\x07" not in said.output
    assert "mirage: ok" not in said.output.splitlines()
