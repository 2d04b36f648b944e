"""A command line that cannot be right ends with 2, says what on stderr, and prints and makes nothing."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from mirage.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

SHORT = {
    "EVALUATE": "evaluate generated:demo:1 --cluster demo -o out --test-from 2023-01-01 --test-to 2023-01-02",
    "REPLAY": "replay generated:demo:1 --cluster demo --start 2030-02-01 --end 2030-02-03",
    "PLAYED": "replay generated:demo:1 --cluster demo --start 2025-01-14 --end 2025-01-14 --every 6h",
    "TASKS": "allocation replay x --format muri --pool 2x2",
}
WRONG = """
PLAYED --predictor nope
PLAYED --predictor reactive,fixed:x
PLAYED --predictor random-forest
PLAYED --predictor reactive --partition nope
PLAYED --predictor reactive --nodes 9999
bench foo
bench daemon --size 1,2
bench daemon --size x
bench peers --peer foo
bench predictors --models /nowhere
bench fidelity --recordings /nowhere
bench allocation --muri /nowhere
simulate
simulate generated:demo:x --cluster demo
simulate generated:nope --cluster demo
simulate generated:demo:1
simulate generated:demo:1 --cluster nope
simulate generated:demo:1 --cluster demo --scheduling nope
simulate generated:demo:1 --processors 8 --scheduling slurm
simulate generated:demo:1 --cluster demo --json out.json
simulate generated:demo:1 --cluster demo --json -
simulate generated:demo:1 --cluster demo --json out.txt
simulate generated:demo:1 --cluster demo --json=out
simulate generated:demo:1 --cluster demo -o /nowhere/x
simulate generated:demo:1 --cluster demo --processors -1
replay generated:demo:1 --cluster demo --start x --end 2023-02-01
replay generated:demo:1 --cluster demo --start 2023-02-01 --end nope
replay generated:demo:1 --cluster demo
replay generated:demo:1 --cluster demo --start 2023-02-02 --end 2023-02-01
replay generated:demo:1 --cluster demo --start 2023-02-01 --end 2023-02-03 --limit x
replay generated:demo:1 --cluster demo --start 2023-02-01 --end 2023-02-03 --every 4
replay generated:demo:1 --cluster demo --start 2023-02-01 --end 2023-02-03 --tick nope
REPLAY --predictor nope
REPLAY --links 1
REPLAY --partition nope
replay generated:demo:1 --cluster nope --start 2030-02-01 --end 2030-02-03
REPLAY --json out.json
REPLAY --overlap-price nan
train nope --trace generated:demo:1 --cluster demo -o out --start 2030-02-01 --end 2030-02-03
train reactive --trace generated:demo:1 --cluster demo -o out --start 2030-02-01 --end 2030-02-03
evaluate generated:demo:1 --cluster demo -o out --test-from x --test-to 2023-01-01 --methods reactive
EVALUATE --methods nope
EVALUATE --methods reactive --nodes x
EVALUATE --methods reactive --every x
EVALUATE --methods reactive --limit x
EVALUATE --methods xgboost
EVALUATE --methods reactive --schema nope
EVALUATE --methods reactive --partition nope
trace import nothere -o /nowhere/x
trace import /etc/hostname -o x.parquet --format nope
trace import /etc/hostname -o x.parquet --tz nope
trace generate -o x.parquet --like nope
trace generate -o /nowhere/x.parquet
trace stats x --capacity -1
allocation replay x --format nope --pool 2x2
allocation replay x --format muri --pool nope
TASKS --ordering nope
TASKS --placer nope
TASKS --compare nope
TASKS --compare a+b
TASKS --seeds x
TASKS --seeds 0,1
TASKS --speeds nope
TASKS --json o.json
TASKS --json --markdown -
TASKS --quantum nan
allocation pack --nodes x --pods y --placer nope
allocation pack --nodes x --pods y --seeds nope
allocation pack --nodes x --pods y --json out
allocation train x --pool nope -o out
allocation train x --pool 2x2 -o out --without nope
allocation requests replay nope
allocation requests replay light --policy nope
allocation requests replay light --compare nope
allocation requests replay light --seeds nope
allocation requests replay light --json out.json
allocation requests train light -o out --agent nope
allocation requests train nope -o out
allocation run x --engine nope
allocation run x --move
allocation serve x --engine nope
allocation front x --listen nope
allocation load nope --model m
allocation costs build -o c --networks nope
allocation costs build -o c --arrays nope
allocation costs show nope
allocation costs merge nope -o c
allocation costs profile /nowhere --unit cpu=threads:1 -o c
allocation costs profile /etc/hostname --unit nope -o c
tokens create --expires nope
tokens create --scope god
chains -t nope
chains -o nope
chains -S nope
queue -t nope
queue -o nope
queue -S nope
predict -t nope
predict -N 0
chain show
chain explain x --last 0
explain x 0
demo --rate x
demo --out
models promote
models shadow --since nope
models shadow --since 31d
models shadow --socket x --config y
models list --socket x --models y
models rollback xgboost --socket x --config y
models promote DIR --socket x
db back-up
agent --nope
nope
doctor --nope
submit --nope
submit --links 0
submit --links=x --wrap true
submit --handover=foo --wrap true
submit --array=1-3 --wrap true
submit --total-time=5 --wrap true
submit --predictor=fixed --wrap true
submit --aim=nope --wrap true
submit --steering=nope --wrap true
submit --chain=x --wrap true
evaluate waits generated:demo:1 generated:demo:2 --cluster demo
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory, and no daemon."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("MIRAGE_", "SBATCH_", "SLURM_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("MIRAGE_SOCKET", str(tmp_path / "none.sock"))
    return tmp_path


def ends(monkeypatch: pytest.MonkeyPatch, line: str) -> int:
    first, *rest = shlex.split(line)
    monkeypatch.setattr(sys, "argv", ["mirage", *shlex.split(SHORT.get(first, first)), *rest])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert isinstance(stopped.value.code, int)
    return stopped.value.code


@pytest.mark.parametrize("line", WRONG.strip().splitlines())
def test_wrong_command_lines_end_with_two(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], line: str
) -> None:
    code = ends(monkeypatch, line)
    told = capsys.readouterr()
    assert (code, told.out, bool(told.err.strip())) == (2, "", True), told
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("line", ["simulate generated:demo:1 --json x.json --cluster demo", "TASKS --json=x"])
def test_file_behind_json_names_the_option_for_files(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], line: str
) -> None:
    assert ends(monkeypatch, line) == 2
    assert "-o FILE" in capsys.readouterr().err
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("line", ["chains", "predict -t 1h", "chain show x", "queue", "models list"])
def test_missing_daemon_is_no_usage_error(place: Path, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    assert ends(monkeypatch, line) == 5
    assert list(place.iterdir()) == []


@pytest.mark.parametrize(
    "line", ["simulate nothere.swf --cluster demo", "allocation check nothere.toml", "trace stats nothere.swf"]
)
def test_missing_file_is_an_error_like_others(place: Path, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    assert ends(monkeypatch, line) == 1
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("verb", ["cancel", "pause", "logs"])
def test_verb_of_a_chain_alone_names_the_whole_command(verb: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mirage", verb, "svc"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert f"mirage chain {verb}" in done.stderr
