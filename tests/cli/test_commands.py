"""The command line as a user meets it: what it prints, how it fails, what it loads."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from mirage.cli.main import app, main
from mirage.domain.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

RUN = CliRunner()
HEAVY = ("numba", "llvmlite", "pyarrow", "matplotlib", "jinja2", "pydantic")


def answer(*arguments: str) -> str:
    result = RUN.invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_help_loads_nothing_heavy() -> None:
    code = "import sys, mirage.cli.main; print([m for m in sys.argv[1:] if m in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code, *HEAVY], check=True, capture_output=True, text=True)
    assert loaded.stdout.strip() == "[]"


def test_every_command_helps() -> None:
    for command in ("demo", "replay", "simulate", "trace", "train", "models", "evaluate", "plugins", "bench"):
        assert command in answer("--help")
        assert "Usage" in answer(command, "--help")


def test_plugins_lists_the_baselines() -> None:
    names = json.loads(answer("plugins", "--json"))["predictors"]
    assert {"reactive", "fixed", "average", "quantile", "slurm", "lookahead", "ensemble"} <= set(names)


def test_simulate_gives_the_same_figures_twice() -> None:
    asked = ("simulate", "generated:demo:3", "--cluster", "demo", "--json")
    first = json.loads(answer(*asked))
    assert first == json.loads(answer(*asked))
    assert first["jobs"] == first["started"] + first["rejected"] + first["never_started"]
    assert 0 < first["utilisation"] <= 1


def test_simulate_on_a_pool(tmp_path: Path) -> None:
    """Two jobs of four CPUs on four: the second waits for the first, manually."""
    row = "{id} {submit} -1 100 4 -1 -1 4 100 -1 1 1 1 1 1 1 -1 -1"
    trace = tmp_path / "two.swf"
    trace.write_text("; MaxProcs: 4\n" + row.format(id=1, submit=0) + "\n" + row.format(id=2, submit=10) + "\n")
    figures = json.loads(answer("simulate", str(trace), "--json"))
    assert figures["mean_wait"] == 45.0
    assert figures["span"] == 200
    assert figures["utilisation"] == 1.0


def test_the_schedule_is_written_and_read_again(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="parquet needs the extra 'parquet'")
    schedule = tmp_path / "schedule.parquet"
    answer("simulate", "generated:demo:3", "--cluster", "demo", "--schedule", str(schedule))
    stats = json.loads(answer("trace", "stats", str(schedule), "--json"))
    assert stats["jobs"] > 300


@pytest.mark.parametrize(
    ("code", "arguments", "words"),
    [
        (1, ("simulate", "nowhere.swf", "--cluster", "ls6"), "nowhere.swf"),
        (2, ("simulate", "generated:demo:1", "--cluster", "lsx"), "presets"),
        (2, ("simulate", "generated:demo:1"), "--cluster"),
        (1, ("simulate", "generated:demo:1", "--cluster", "ls6"), "rejects all"),
        (
            1,
            ("replay", "generated:demo:1", "--cluster", "ls6", "--start", "2025-01-08", "--end", "2025-01-09"),
            "rejects all",
        ),
        (2, ("simulate", "generated:demo:1", "--cluster", "demo", "--scheduling", "best"), "slurm, easy, fifo"),
        (2, ("simulate", "generated:demo:1", "--processors", "9", "--scheduling", "slurm"), "partitions"),
        (2, ("bench", "everything"), "simulator"),
    ],
)
def test_a_mistake_is_one_line(
    code: int,
    arguments: tuple[str, ...],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["mirage", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == code
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("mirage: ")
    assert words in lines[0]


def test_the_choices_of_an_option_are_named() -> None:
    with pytest.raises(ConfigError, match="slurm, easy, fifo"):
        RUN.invoke(
            app, ["simulate", "generated:demo:1", "--cluster", "demo", "--scheduling", "x"], catch_exceptions=False
        )


def test_demo_writes_its_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib", reason="the report needs the extra 'report'")
    monkeypatch.chdir(tmp_path)
    shown = answer("demo", "--report")
    assert "reactive" in shown
    assert "oracle" in shown
    page = (tmp_path / "demo-out" / "report.html").read_text()
    assert page.lower().startswith("<!doctype html>")
    document = json.loads((tmp_path / "demo-out" / "replay.json").read_text())
    assert document["metrics"]["episodes"] == 19
