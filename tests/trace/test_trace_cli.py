"""``mirage trace import``, ``stats`` and ``generate`` as a user meets them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from mirage.cli.trace import trace_app
from mirage.domain.errors import ConfigError, TraceError
from mirage.trace.readers import read_trace

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

pytest.importorskip("pyarrow")

DUMP = """JobID|User|JobName|Submit|Start|End|State|Timelimit|NNodes
1|ann|[red]train|2023-02-01T10:00:00|2023-02-01T11:00:00|2023-02-02T11:00:00|TIMEOUT|1-00:00:00|2
1.batch|||2023-02-01T11:00:00|2023-02-01T11:00:00|2023-02-02T11:00:00|COMPLETED||2
2|bob|x|2023-02-01T12:00:00|2023-02-01T11:00:00|2023-02-02T11:00:00|TIMEOUT|1-00:00:00|2
"""


def run(*arguments: object) -> Result:
    return CliRunner().invoke(trace_app, [str(a) for a in arguments])


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    path = tmp_path / "dump.txt"
    path.write_text(DUMP, encoding="utf-8")
    return path


def test_import_accounts_for_every_row(dump: Path, tmp_path: Path) -> None:
    out = tmp_path / "jobs.parquet"
    result = run("import", dump, "-o", out, "--lenient", "--format", "sacct", "--tz", "Europe/Berlin")
    assert result.exit_code == 0, result.output
    assert "3 rows, 1 jobs, 1 rejected, 1 steps" in result.output
    assert "line 4: Start: is 3600 s before the job was submitted" in result.output
    assert "Europe/Berlin" in result.output
    assert read_trace(out).table.name.decode() == ["[red]train"]


def test_import_is_strict_unless_told_otherwise(dump: Path, tmp_path: Path) -> None:
    result = run("import", dump, "-o", tmp_path / "jobs.parquet")
    assert isinstance(result.exception, TraceError)
    assert result.exception.line == 4
    assert not (tmp_path / "jobs.parquet").exists()


def test_import_does_not_replace_the_trace_that_it_reads(dump: Path, tmp_path: Path) -> None:
    (tmp_path / "same").symlink_to(dump)
    for output in (dump, tmp_path / "same"):
        assert isinstance(run("import", dump, "-o", output, "--lenient").exception, ConfigError)
    assert dump.read_text(encoding="utf-8") == DUMP


def test_statistics_of_a_trace_with_a_time_in_milliseconds_end_at_once(tmp_path: Path) -> None:
    """They have a figure for each hour, of which there would be half a billion."""
    times = enumerate((17 * 10**8, 17 * 10**11), 1)
    rows = [f"{k} {at} 10 100 4 -1 -1 4 200 -1 1 1 1 -1 1 -1 -1 -1" for k, at in times]
    trace = tmp_path / "ms.swf"
    trace.write_text("\n".join(["; UnixStartTime: 0", "; MaxNodes: 16", "; MaxProcs: 16", *rows, ""]))
    assert isinstance(run("stats", trace).exception, TraceError)


def test_import_says_what_it_cannot_do(dump: Path, tmp_path: Path) -> None:
    out = tmp_path / "jobs.parquet"
    assert isinstance(run("import", tmp_path / "none.txt", "-o", out).exception, TraceError)
    assert isinstance(run("import", dump, "-o", tmp_path / "no" / "out.parquet").exception, ConfigError)
    assert isinstance(run("import", dump, "-o", out, "--format", "csv").exception, ConfigError)


def test_import_of_no_jobs_is_an_error_and_writes_nothing(tmp_path: Path) -> None:
    empty, unnamed, out = tmp_path / "empty.txt", tmp_path / "unnamed.txt", tmp_path / "jobs.parquet"
    empty.write_text("JobID|Submit|Start|End|State|TimelimitRaw|NNodes\n")
    unnamed.write_text("JobIDRaw|Submit|Start|End|State|TimelimitRaw|NNodes\n1|x|x|x|COMPLETED|60|1\n")
    for source, word in ((empty, "no jobs"), (unnamed, "JobID")):
        error = run("import", source, "-o", out).exception
        assert isinstance(error, TraceError)
        assert word in str(error)
        assert not out.exists()


def test_import_as_json(dump: Path, tmp_path: Path) -> None:
    document = json.loads(run("import", dump, "-o", tmp_path / "j.parquet", "--lenient", "--json").stdout)
    assert document["counts"] == {"rows": 3, "jobs": 1, "rejected": 1, "steps": 1, "partial": 0, "repeated": 0}
    assert document["rejected"][0]["line"] == 4


def test_stats_of_a_dump(dump: Path) -> None:
    document = json.loads(run("stats", dump, "--json", "--capacity", 4).stdout)
    assert (document["jobs"], document["users"], document["rejected_rows"]) == (1, 1, 1)
    assert document["waits"]["mean"] == 1
    assert document["load"]["capacity"] == 4
    shown = run("stats", dump)
    assert shown.exit_code == 0, shown.output
    assert "1 invalid rows left out" in shown.output
    assert "12-24" in shown.output


def test_generated_traces_can_be_read_and_are_the_same_for_a_seed(tmp_path: Path) -> None:
    one, two = tmp_path / "one.parquet", tmp_path / "two.parquet"
    for out in (one, two):
        result = run("generate", "--like", "ls6", "--seed", 7, "--jobs", 200, "-o", out)
        assert result.exit_code == 0, result.output
    tables = [read_trace(path).table for path in (one, two)]
    assert len(tables[0]) == 200
    assert tables[0].submit.tolist() == tables[1].submit.tolist()
    assert run("stats", one).exit_code == 0


def test_an_unknown_model_is_refused(tmp_path: Path) -> None:
    result = run("generate", "--like", "atlantis", "-o", tmp_path / "x.parquet")
    assert isinstance(result.exception, ConfigError)
