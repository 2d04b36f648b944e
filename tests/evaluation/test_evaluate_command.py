"""``mirage evaluate`` as a process: from a trace to the comparison, stopped and continued."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from small_trace import DAY
from test_waits import TABLE

from mirage.trace.parquet import write_table

if TYPE_CHECKING:
    from pathlib import Path

CLUSTER = """
[cluster]
name = "small"
[[nodes]]
names = "n[0-5]"
cpus = 4
[[partitions]]
name = "batch"
nodes = "ALL"
max_time = "2-00:00:00"
exclusive = true
default = true
[priority]
age = 1000
"""
FIRST = int(TABLE.submit[0])


def days(number: float) -> str:
    return str(FIRST + int(number * DAY))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("evaluation")
    (folder / "small.toml").write_text(CLUSTER)
    write_table(replace(TABLE, source="small"), folder / "small.parquet")
    return folder


def run(place: Path, installed: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mirage", "evaluate", *words]
    environment = os.environ | {"PYTHONPATH": installed, "COLUMNS": "250"}
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=place, check=False)


SPANS = ("--train-from", days(3), "--validate-from", days(12), "--test-from", days(22), "--test-to", days(24))
OPTIONS = (
    *("small.parquet", "--cluster", "small.toml", "--nodes", "2", *SPANS, "--limit", "12h", "--every", "12h"),
    *(
        "--methods",
        "reactive,little,quantile,lookahead,ensemble:quantile+little,oracle",
        "--planner-error",
        "nodes-5%,month-old",
    ),
    *("--seeds", "2", "--grid", "3h", "-o", "out", "--workers", "1", "--html"),
)


def test_from_a_trace_to_the_comparison(place: Path, installed: str) -> None:
    first = run(place, installed, *OPTIONS, "--json")
    assert first.returncode == 0, first.stderr
    assert "training little seed 1" in first.stderr
    document = json.loads(first.stdout)
    assert document == json.loads((place / "out" / "report.json").read_text())
    rows = {(row["method"]["name"], row["method"]["error"]): row for row in document["rows"]}
    assert list(rows) == [
        ("reactive", ""),
        ("little", ""),
        ("quantile", ""),
        ("lookahead", ""),
        ("lookahead", "nodes-5%"),
        ("lookahead", "month-old"),
        ("ensemble:quantile+little", ""),
        ("oracle", ""),
    ]
    assert rows["ensemble:quantile+little", ""]["seeds"] == 2, "one of each seed of its member"
    assert first.stderr.count("training little seed 1") == 1
    little = rows["little", ""]
    assert little["seeds"] == 2
    distance = little["distance"]  # of two seeds, which may do the same
    assert distance["least"] <= distance["mean"]["value"] <= distance["most"]
    assert little["calibration"]["coverage"] is not None
    assert little["training_s"] > 0
    assert rows["oracle", ""]["gap_closed"]["mean"]["value"] == pytest.approx(1)
    assert rows["oracle", ""]["distance"]["mean"]["value"] == min(
        row["distance"]["mean"]["value"] for row in rows.values()
    )
    table = [line for line in (place / "out" / "report.md").read_text().splitlines() if line.startswith("|")]
    assert {line.replace("\\|", "").count("|") for line in table} == {15}
    for name in ("report.md", "report.html"):
        assert "lookahead, nodes-5%" in (place / "out" / name).read_text()

    (place / "out" / "models" / "little" / "took.json").unlink()
    again = run(place, installed, *OPTIONS)
    assert again.returncode == 0, again.stderr
    assert "played" not in again.stderr
    assert "training" not in again.stderr
    assert "lookahead, month-old" in again.stdout
    assert json.loads((place / "out" / "report.json").read_text())["rows"][0] == document["rows"][0]


def test_recorded_waits(place: Path, installed: str) -> None:
    words = ("waits", "small.parquet", "--cluster", "small.toml", "--lookahead-jobs", "3", "--most", "100")
    found = run(place, installed, *words, "--seeds", "1", "-o", "waits", "--json")
    assert found.returncode == 0, found.stderr
    (told,) = json.loads(found.stdout)["traces"]
    assert [one["method"] for one in told["planned"]] == [
        "mean",
        "quantile of class",
        "boosted trees",
        "look-ahead",
    ]
    assert "look-ahead" in (place / "waits" / "waits.md").read_text()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--methods", "magic"), "magic"),
        (("--planner-error", "nodes+1%"), "nodes-5%"),
        (("--train-from", ""), "--train-from"),
        (("--train-from", days(0)), "--train-from"),
        (("--validate-from", days(30)), "--validate-from"),
        (("--test-from", days(300), "--test-to", days(301)), "--test-from"),
        (("--test-to", days(20)), "--test-to"),
        (("--nodes", "two"), "--nodes"),
        (("--cluster-nodes", "0"), "--cluster-nodes"),
        (("--schema", "v9"), "v9"),
    ],
)
def test_mistakes_are_one_line(place: Path, installed: str, words: tuple[str, ...], told: str) -> None:
    found = run(place, installed, *OPTIONS, "-o", "nothing", *words)
    assert found.returncode == 2
    assert told in found.stderr
    assert len(found.stderr.splitlines()) == 1
    assert not (place / "nothing").exists()
