"""``mirage train`` and ``mirage models`` as processes, on a drawn trace and a small cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

SPAN = ("--start", "2025-01-07", "--end", "2025-01-13", "--every", "6h", "--grid", "1h")


@pytest.fixture(scope="module")
def place(installed: str, tmp_path_factory: pytest.TempPathFactory):
    """A directory, and ``mirage`` run in it: (exit code, stdout, stderr)."""
    folder = tmp_path_factory.mktemp("train")

    def mirage(*arguments: str) -> tuple[int, str, str]:
        environment = {**os.environ, "PYTHONPATH": installed, "STATE_DIRECTORY": str(folder / "state")}
        command = [sys.executable, "-m", "mirage", *arguments]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    return folder, mirage


@pytest.fixture(scope="module")
def trained(place) -> Path:
    folder, mirage = place
    options = ("--trace", "generated:demo:1", "--cluster", "demo", "--nodes", "1", "--limit", "4h", *SPAN)
    code, out, err = mirage("train", "xgboost", *options, "-o", "model", "--tables", "tables", "--json")
    assert code == 0, err
    assert json.loads(out)["plugin"] == "xgboost"
    return folder / "model"


def test_what_was_trained_replays(place, trained) -> None:
    """By the name that a user gives, in a process that has it from the directory alone."""
    _, mirage = place
    span = ("--start", "2025-01-14", "--end", "2025-01-14T12:00", "--every", "6h")
    command = ("replay", "generated:demo:1", "--cluster", "demo", "--limit", "12h", *span, "--workers", "1")
    code, out, err = mirage(*command, "--predictor", f"reactive,xgboost:{trained}", "--json")
    assert code == 0, err
    rows = {row["policy"] for row in json.loads(out)["metrics"]["rows"]}
    assert rows == {"reactive", f"xgboost:{trained}"}


def test_finished_tables_are_used_again(place, trained) -> None:
    folder, mirage = place
    (table,) = (folder / "tables").iterdir()
    before = {path: path.stat().st_mtime_ns for path in table.iterdir()}
    options = ("--trace", "generated:demo:1", "--cluster", "demo", "--nodes", "1", "--limit", "4h", *SPAN)
    code, out, err = mirage("train", "xgboost", *options, "-o", "again", "--tables", "tables")
    assert code == 0, err
    assert "mirage models promote again" in out
    assert before == {path: path.stat().st_mtime_ns for path in table.iterdir()}
    assert (folder / "again/model.onnx").read_bytes() == (trained / "model.onnx").read_bytes()


def test_models_are_promoted_and_rolled_back(place, trained) -> None:
    folder, mirage = place
    kept = ("--models", str(folder / "state/models"))
    assert mirage("models", "list", *kept)[1].startswith("no models")
    first = json.loads(mirage("models", "promote", str(trained), "--json")[1])["version"]
    other = folder / "other"
    other.mkdir()
    for path in trained.iterdir():
        (other / path.name).write_bytes(path.read_bytes())
    manifest = json.loads((other / "manifest.json").read_text())
    (other / "manifest.json").write_text(json.dumps(manifest | {"seeds": [9]}))
    second = json.loads(mirage("models", "promote", str(other), "--json")[1])["version"]
    listed = json.loads(mirage("models", "list", "--json", *kept)[1])["models"]
    assert {(one["version"], one["current"]) for one in listed} == {(first, False), (second, True)}
    table = mirage("models", "list", *kept)[1]
    assert first in table, "not cut where the output is no terminal"
    assert second in table
    code, out, _ = mirage("models", "rollback", "xgboost", *kept)
    assert code == 0
    assert first in out
    code, _, err = mirage("models", "rollback", "xgboost", *kept)
    assert code == 1
    assert "no earlier version" in err


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (("train", "crystal-ball"), "is not installed; those that can be trained:"),
        (("train", "reactive"), "needs no training"),
        (("train", "xgboost", "--validate-from", "2023-01-01"), "--validate-from: must lie between"),
        (("train", "xgboost", "--nodes", "1,x"), "--nodes: invalid value '1,x'"),
        (("train", "xgboost", "--schema", "v0"), "paper-v1"),
        (("train", "xgboost", "--grid", "7m"), "multiple of 600"),
    ],
)
def test_a_wrong_order_is_one_line(place, changes: tuple[str, ...], words: str) -> None:
    _, mirage = place
    order = ("--trace", "generated:demo:1", "--cluster", "demo", "--nodes", "1", *SPAN, "-o", "never")
    code, _, err = mirage(*changes[:2], *order, *changes[2:])
    assert code == 2
    assert err.startswith("mirage: ")
    assert words in err
    assert err.count("\n") == 1


def test_a_predictor_that_is_not_trained_says_how(place) -> None:
    _, mirage = place
    span = ("--start", "2025-01-14", "--end", "2025-01-14", "--every", "6h")
    code, _, err = mirage("replay", "generated:demo:1", "--cluster", "demo", *span, "--predictor", "random-forest")
    assert code == 2
    assert "mirage train random-forest" in err
