"""``mirage replay`` from the command line, on a drawn trace and a cluster preset."""

from __future__ import annotations

import json

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from mirage.cli.arguments import load_trace, parse_instant
from mirage.cli.replay import replay_command
from mirage.cli.run_output import check_writable
from mirage.domain.errors import ConfigError, MirageError

app = typer.Typer()
app.command()(replay_command)


def run(*options: str, trace: str = "generated:ls6:1"):
    arguments = [trace, "--cluster", "ls6", "--start", "2022-11-10", "--end", "2022-11-10T12:00", "--every", "6h"]
    return CliRunner().invoke(app, [*arguments, "--workers", "1", *options])


def test_everything_as_one_document(tmp_path) -> None:
    page = tmp_path / "report.html"
    result = run("--predictor", "reactive, fixed:6h", "--json", "--html", str(page))
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["policies"] == ["reactive", "fixed:6h"]
    assert len(document["outcomes"]) == 6
    assert document["trace"] == "generated:ls6:1"
    assert {row["policy"] for row in document["metrics"]["rows"]} == {"reactive", "fixed:6h"}
    assert "generated:ls6:1" in page.read_text()


def test_a_table_on_stdout_and_the_document_in_a_file(tmp_path) -> None:
    out = tmp_path / "out.json"
    result = run("--predictor", "reactive", "-o", str(out))
    assert result.exit_code == 0, result.output
    assert "reactive" in result.stdout
    assert json.loads(out.read_text())["outcomes"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--predictor", "magic"], "magic"),
        (["--predictor", "fixed:"], "fixed"),
        (["--limit", "soon"], "soon"),
        (["--start", "yesterday"], "--start"),
        (["--start", "9" * 30], "--start"),
        (["--start", "1999-01-01"], "--start"),
        (["-o", "/nowhere/at/all.json"], "--output"),
        (["--html", "/"], "--html"),
        (["--nodes", "77"], "Node"),
        (["--cluster", "no-such-cluster"], "no-such-cluster"),
    ],
)
def test_mistakes_are_named_before_the_work(options: list[str], words: str) -> None:
    result = run(*options)
    assert isinstance(result.exception, MirageError), result.output
    assert words in str(result.exception)


@given(st.text(max_size=25))
def test_any_text_is_an_instant_or_a_clear_error(text: str) -> None:
    try:
        assert isinstance(parse_instant(text, "--start"), int)
    except ConfigError as error:
        assert "--start" in str(error)  # noqa: PT017 (most texts are fine errors; some are times)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("1970-01-02", 86_400),
        ("1970-01-01T01:00", 3_600),
        ("1970-01-01T01:00:00+01:00", 0),
        ("12345", 12_345),
    ],
)
def test_instants(text: str, seconds: int) -> None:
    assert parse_instant(text, "--start") == seconds


def test_where_files_may_go(tmp_path) -> None:
    for good in ("", "-", str(tmp_path / "new.json")):
        check_writable("--json", good)
    with pytest.raises(ConfigError, match="is a directory"):
        check_writable("--json", str(tmp_path))


@pytest.mark.parametrize(
    "name", ["generated:ls6:x", "generated:no-such-preset:1", "generated:", "/no/such/file.swf"]
)
def test_a_trace_that_is_not_there(name: str) -> None:
    with pytest.raises(MirageError):
        load_trace(name)
