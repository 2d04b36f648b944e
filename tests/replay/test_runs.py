"""Replays next to the daemon: one at a time, bounded, ended when no client needs them, lost with the daemon."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from small_disks import mounted

from mirage.bootstrap.interface import replay_command
from mirage.domain.errors import BadSpelling, ConfigError, StoreUnavailable
from mirage.replay.runs import LARGEST_RESULT, ReplayJob, ReplayRuns, ReplaySpec, RunState, TooManyRuns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

WISH = ReplaySpec("generated:demo:1", "demo", ("reactive", "fixed:6h"), 1, 7_200, "0", "9", 3_600, 600, 2, "")

PLAY = """
import json, sys
options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
json.dump({"done": 3, "total": 4}, open(options["--progress"], "w"))
json.dump({"policies": []}, open(options["--output"], "w"))
"""
WAIT = PLAY + "import time\ntime.sleep(600)\n"
FILL = """
import os
file = os.open("../../filler", os.O_CREAT | os.O_WRONLY)
try:
    while True:
        os.write(file, bytes(512))
finally:
    raise SystemExit(1)
"""
FAIL = "print('first'); print('mirage: no such thing'); raise SystemExit(1)"


class Place:
    """Runs whose command is the script that the test names last."""

    def __init__(self, folder: Path, offered: Path | None = None, most: int = 3) -> None:
        self.folder, self.offered, self.most = folder, offered, most
        self.script = PLAY
        self.played: list[ReplaySpec] = []
        self.runs = self.made()

    def made(self, memory_mb: int = 0) -> ReplayRuns:
        return ReplayRuns(self.folder, self.offered, self.command, lambda: 1_000, self.most, memory_mb)

    def command(self, wish: ReplaySpec, folder: Path) -> Sequence[str]:
        self.played.append(wish)
        return [sys.executable, "-c", self.script]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    offered = tmp_path / "traces"
    offered.mkdir()
    for name in ("a.swf", "site.toml", ".hidden"):
        (offered / name).write_text("")
    made = Place(tmp_path / "replays", offered)
    yield made
    made.runs.close()


def until(runs: ReplayRuns, run: ReplayJob, wanted: Callable[[ReplayJob], bool]) -> ReplayJob:
    """The run once it is so; a deadline only for a test that would hang."""
    for _ in range(6_000):
        found = runs.of(run.run_id)
        assert found is not None
        if wanted(found):
            return found
        time.sleep(0.01)
    raise AssertionError(found)


def result(runs: ReplayRuns, run: ReplayJob) -> Any:
    file = runs.open_result(run)
    if file is None:
        return None
    with file:
        return json.load(file)


@pytest.mark.skipif(os.getuid() != 0, reason="mounting needs root")
def test_a_full_disk_ends_no_replay_but_its_own(tmp_path: Path) -> None:
    with mounted(tmp_path / "small", "200k"):
        place = Place(tmp_path / "small" / "replays")
        place.script = WAIT
        under_way = place.runs.submit(WISH, "alice")
        until(place.runs, under_way, lambda run: run.done == 3)
        filler = tmp_path / "small" / "filler"
        with pytest.raises(OSError, match="No space left"):
            filler.write_bytes(b"x" * (1 << 20))
        with pytest.raises(StoreUnavailable):
            place.runs.submit(WISH, "bob")
        assert [run.by for run in place.runs.all()] == ["alice"], "what cannot be stored is not promised"
        place.runs.remove(under_way.run_id)
        filler.unlink()
        place.script = PLAY
        later = place.runs.submit(WISH, "bob")
        until(place.runs, later, lambda run: run.over)
        assert place.runs.of(later.run_id).state is RunState.DONE
        place.runs.close()


@pytest.mark.skipif(os.getuid() != 0, reason="mounting needs root")
def test_replay_whose_output_does_not_fit_names_the_full_disk(tmp_path: Path) -> None:
    with mounted(tmp_path / "small", "200k"):
        place = Place(tmp_path / "small" / "replays")
        place.script = FILL
        failed = until(place.runs, place.runs.submit(WISH, "alice"), lambda run: run.over)
        (tmp_path / "small" / "filler").unlink()
        place.runs.close()
    assert failed.state is RunState.FAILED
    assert "no space left" in failed.problem


def test_a_replay_whose_end_cannot_be_written_down_keeps_no_other_from_being_played(place: Place) -> None:
    first = place.runs.submit(WISH, "alice")
    until(place.runs, first, lambda run: run.over)
    place.script = "import os; os.remove('run.json'); os.mkdir('run.json')"
    spoilt = place.runs.submit(WISH, "bob")
    until(place.runs, spoilt, lambda run: run.over)
    place.script = PLAY
    later = place.runs.submit(WISH, "bob")
    assert until(place.runs, later, lambda run: run.over).state is RunState.DONE


def test_a_replay_is_played_and_its_result_kept(place: Place) -> None:
    run = place.runs.submit(WISH, "alice")
    assert (run.state, run.by, run.created) == (RunState.QUEUED, "alice", 1_000)
    found = until(place.runs, run, lambda run: run.over)
    assert (found.state, found.done, found.total, found.ended) == (RunState.DONE, 3, 4, 1_000)
    assert result(place.runs, found) == {"policies": []}
    place.runs.remove(run.run_id)
    assert place.runs.all() == ()
    assert not (place.folder / run.run_id).exists()


def test_files_that_are_offered_are_found_and_no_others(place: Place, tmp_path: Path) -> None:
    from dataclasses import replace

    assert place.runs.files() == ("a.swf", "site.toml")
    run = place.runs.submit(replace(WISH, trace="a.swf", cluster="site.toml"), "alice")
    until(place.runs, run, lambda run: run.over)
    assert place.played[0].trace == f"{tmp_path}/traces/a.swf"
    assert place.played[0].cluster == f"{tmp_path}/traces/site.toml"
    for trace in ("../mirage.db", "/etc/passwd", ".hidden", "nix.swf", "--help", "generated:x;id:1", ""):
        with pytest.raises(BadSpelling, match="no such trace"):
            place.runs.submit(replace(WISH, trace=trace), "alice")
    with pytest.raises(BadSpelling, match="no such cluster"):
        place.runs.submit(replace(WISH, cluster="../site.toml"), "alice")


def test_what_fails_says_its_last_words(place: Place) -> None:
    place.script = FAIL
    found = until(place.runs, place.runs.submit(WISH, "alice"), lambda run: run.over)
    assert (found.state, found.problem) == (RunState.FAILED, "mirage: no such thing")
    assert result(place.runs, found) is None


def test_one_that_cannot_begin_fails_and_the_next_is_played(place: Place) -> None:
    def refuse(wish: ReplaySpec, folder: Path) -> Sequence[str]:
        raise ConfigError("cluster", "not described")

    runs = ReplayRuns(place.folder, None, refuse, lambda: 0, 3)
    first, second = runs.submit(WISH, "a"), runs.submit(WISH, "a")
    assert until(runs, second, lambda run: run.over).problem == "cluster: not described"
    assert until(runs, first, lambda run: run.over).state is RunState.FAILED
    runs.close()


def test_runs_wait_for_each_other_and_are_bounded(place: Place) -> None:
    place.script = WAIT
    first = place.runs.submit(WISH, "alice")
    until(place.runs, first, lambda run: run.done == 3)
    waiting = [place.runs.submit(WISH, user) for user in ("bob", "dora")]
    with pytest.raises(TooManyRuns, match="3 replays"):
        place.runs.submit(WISH, "carol")
    assert [run.state for run in place.runs.all()] == [RunState.RUNNING, RunState.QUEUED, RunState.QUEUED]
    place.script = PLAY
    place.runs.remove(first.run_id)
    for run in waiting:
        assert until(place.runs, run, lambda run: run.over).state is RunState.DONE
    assert not (place.folder / first.run_id).exists()


def test_one_user_does_not_take_all_replay_places(place: Place) -> None:
    place.script = WAIT
    running, waiting = place.runs.submit(WISH, "mallory"), place.runs.submit(WISH, "mallory")
    with pytest.raises(TooManyRuns, match="mallory"):
        place.runs.submit(WISH, "mallory")
    until(place.runs, running, lambda run: run.done == 3)
    other = place.runs.submit(WISH, "bob")
    place.script = PLAY
    place.runs.remove(running.run_id)
    until(place.runs, waiting, lambda run: run.over)
    assert until(place.runs, other, lambda run: run.over).state is RunState.DONE


def test_replays_of_one_user_push_no_other_users_out(place: Place) -> None:
    kept = until(place.runs, place.runs.submit(WISH, "bob"), lambda run: run.over)
    place.script = FAIL
    for _ in range(60):
        until(place.runs, place.runs.submit(WISH, "mallory"), lambda run: run.over)
    assert result(place.runs, kept) == {"policies": []}
    assert (place.folder / kept.run_id).is_dir()
    assert len(place.runs.all()) <= 51
    assert len(list(place.folder.iterdir())) == len(place.runs.all())


def test_replay_with_too_large_a_result_fails(place: Place) -> None:
    place.script = PLAY + f"open(options['--output'], 'w').truncate({LARGEST_RESULT} + 1)"
    found = until(place.runs, place.runs.submit(WISH, "mallory"), lambda run: run.over)
    assert (found.state, "larger than 8 MiB" in found.problem) == (RunState.FAILED, True)
    assert result(place.runs, found) is None


def test_replay_of_an_unknown_preset_is_rejected_at_once(place: Place) -> None:
    from dataclasses import replace

    with pytest.raises(BadSpelling, match="no such preset"):
        place.runs.submit(replace(WISH, trace="generated:nothing:1"), "mallory")
    assert place.runs.all() == ()


def test_a_replay_that_takes_too_long_is_ended(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mirage.replay.runs._LONGEST", 0.1)
    place.script = WAIT
    found = until(place.runs, place.runs.submit(WISH, "alice"), lambda run: run.over)
    assert (found.state, found.problem[:15]) == (RunState.FAILED, "timed out after")


def test_replay_that_takes_too_much_memory_fails_alone(place: Place) -> None:
    place.script = "kept = [b'x' * (1 << 20) for _ in range(8_000)]"
    runs = place.made(memory_mb=200)
    found = until(runs, runs.submit(WISH, "mallory"), lambda run: run.over)
    assert (found.state, found.problem[:13]) == (RunState.FAILED, "out of memory")
    assert "200 MiB" in found.problem
    place.script = PLAY
    assert until(runs, runs.submit(WISH, "alice"), lambda run: run.over).state is RunState.DONE
    runs.close()


def test_replay_is_what_the_kernel_ends_first(place: Place) -> None:
    place.script = PLAY + "print(open('/proc/self/oom_score_adj').read()); raise SystemExit(1)"
    place.script = "import time; time.sleep(0.5)\n" + place.script
    found = until(place.runs, place.runs.submit(WISH, "alice"), lambda run: run.over)
    assert int(found.problem) >= 900


def test_what_the_daemon_leaves_is_lost(place: Place) -> None:
    done = until(place.runs, place.runs.submit(WISH, "alice"), lambda run: run.over)
    place.script = WAIT
    run = place.runs.submit(WISH, "alice")
    until(place.runs, run, lambda run: run.done == 3)
    waiting = place.runs.submit(WISH, "alice")
    thread = threading.Thread(target=place.runs.close)
    thread.start()
    thread.join(30)
    place.runs = place.made()
    states = {run.run_id: run.state for run in place.runs.all()}
    assert states == {
        done.run_id: RunState.DONE,
        run.run_id: RunState.LOST,
        waiting.run_id: RunState.LOST,
    }
    (place.folder / "aaaaaaaaaaaa").mkdir()
    (place.folder / "aaaaaaaaaaaa" / "run.json").write_text("{")
    assert len(place.made().all()) == 3


def test_the_command_is_words_of_which_none_is_an_option(tmp_path: Path) -> None:
    from dataclasses import replace

    (tmp_path / "xgboost").mkdir()
    (tmp_path / "xgboost" / "current").write_text("v\n")
    wish = replace(WISH, predictors=("xgboost", "fixed:6h"), partition="-x; rm", start="2023-01-01")
    argv = replay_command(wish, "demo", tmp_path)
    assert argv[1:6] == ["-P", "-m", "mirage", "replay", "generated:demo:1"]
    assert f"--predictor=xgboost:{tmp_path}/xgboost,fixed:6h" in argv
    assert "--partition=-x; rm" in argv
    assert all(word.startswith("--") and "=" in word for word in argv[6:])
