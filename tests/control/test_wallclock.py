"""Real time: clocks, the rate of queries, and waits that commands cut short."""

from __future__ import annotations

import itertools
import json
import threading
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirage.control.clocks import AcceleratedClock, JumpWatch, Pace, Pacing, WallClock, WallTicks, read_clock
from mirage.control.commands import MOST, CommandQueue, WakeBudget
from mirage.domain.chain import ChainId
from mirage.domain.command import PauseChain
from mirage.domain.errors import ConfigError
from mirage.domain.job import NEVER

if TYPE_CHECKING:
    from pathlib import Path

COMMAND = PauseChain(ChainId("svc"), "alice")
FOREVER = 1_000_000


def pace(interval: int = 60, **settings) -> Pace:
    return Pace(Pacing(interval, **settings), np.random.default_rng(1))


class Listening(CommandQueue):
    """Notifies a test when the loop has begun to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting = threading.Event()

    def wait(self, seconds: float) -> bool:
        self.waiting.set()
        return super().wait(seconds)


def waited(ticks: WallTicks, wake: int = NEVER) -> threading.Thread:
    thread = threading.Thread(target=ticks.wait, args=(wake, True))
    thread.start()
    return thread


def test_the_wall_clock_is_the_machines() -> None:
    before = int(time.time())
    assert before <= WallClock().now() <= int(time.time())


def test_an_accelerated_clock_meets_the_machines_at_t0(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "clock.json"
    file.write_text('{"t0": 1000.5, "rate": 60, "more": "is left alone"}')
    clock = read_clock(file)
    for real, shown in ((1000.5, 1000), (1001.5, 1060), (1060.5, 4600), (999.5, 940)):
        monkeypatch.setattr(time, "time", lambda real=real: real)
        assert clock.now() == shown


@pytest.mark.parametrize("text", ["", "{}", '{"t0": 1}', '{"t0": "x", "rate": 1}', '{"t0": 1, "rate": 0}', "[1]"])
def test_a_clock_that_is_none_is_named(text: str, tmp_path: Path) -> None:
    file = tmp_path / "clock.json"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"clock\.json"):
        read_clock(file)


def test_a_jump_is_told_once_with_its_size() -> None:
    now = {"wall": 5_000.0, "monotonic": 10.0}
    watch = JumpWatch(lambda: now["wall"], lambda: now["monotonic"])
    for wall, monotonic, told in ((60, 60, 0), (3_660, 60, 3_600), (60, 60, 0), (-3_540, 60, -3_600), (61, 60, 0)):
        now["wall"] += wall
        now["monotonic"] += monotonic
        assert watch.jump() == told


@given(st.lists(st.one_of(st.floats(0, 20), st.none()), max_size=30), st.integers(1, 1_000), st.integers(1, 2_000))
def test_the_interval_stays_within_its_bounds(answers: list[float | None], interval: int, longest: int) -> None:
    kept = pace(interval, longest=longest)
    for answer in answers:
        kept.trouble() if answer is None else kept.answered(answer)
        assert 0.9 * interval <= kept.interval() <= 1.1 * max(longest, interval)


def test_a_slow_slurm_is_asked_half_as_often_each_time_and_back() -> None:
    kept = pace(jitter=0)
    seen = [kept.interval()]
    for seconds in [9.0] * 6 + [0.1] * 5:
        kept.answered(seconds)
        seen.append(kept.interval())
    assert seen == [60, 120, 240, 480, 600, 600, 600, 480, 240, 120, 60, 60]


def test_intervals_differ_by_up_to_a_tenth() -> None:
    kept = pace()
    intervals = [kept.interval() for _ in range(1_000)]
    assert 54 <= min(intervals) < 55
    assert 65 < max(intervals) <= 66
    assert all(a != b for a, b in itertools.pairwise(intervals))


def test_a_command_ends_the_wait() -> None:
    commands = Listening()
    thread = waited(WallTicks(WallClock(), pace(FOREVER), commands))
    assert commands.waiting.wait(60)
    commands.put(COMMAND)
    thread.join(60)
    assert not thread.is_alive()


def test_commands_of_one_user_bring_on_few_cycles() -> None:
    """As many as a script's for each chain that it may have; then six per interval, fewer while Slurm is slow."""
    now = [0.0]
    commands = CommandQueue(WakeBudget(lambda: now[0]))
    brought = 0
    for second in range(600):
        now[0] = float(second)
        commands.put(COMMAND)
        brought += commands.wait(0)
        commands.take_all()
    assert brought == MOST + 59
    commands.put(COMMAND)
    assert not commands.wait(0)
    commands.put(PauseChain(ChainId("other"), "bob"))
    assert commands.wait(0), "another user is not kept waiting"
    assert [asked.command.by for asked in commands.take()] == ["alice", "bob"], "and the cycle is for both"


def test_commands_that_wait_for_their_user_are_taken_in_time() -> None:
    commands = CommandQueue()
    commands.wakes.every = 0.05
    for _ in range(MOST):
        commands.put(COMMAND)
        assert commands.wait(0)
        commands.take_all()
    commands.put(COMMAND)
    assert not commands.wait(0)
    assert commands.wait(60), "not after a minute, but as soon as the user may"


def test_commands_after_the_decisions_are_of_users_who_may_wake() -> None:
    now = [0.0]
    commands = CommandQueue(WakeBudget(lambda: now[0]))
    for _ in range(MOST + 5):
        commands.put(COMMAND)
        commands.take_more()
    commands.put(COMMAND)
    commands.put(PauseChain(ChainId("other"), "bob"))
    assert [asked.command.by for asked in commands.take_more()] == ["bob"]
    assert {asked.command.by for asked in commands.take()} == {"alice"}, "they are not lost"


def test_stop_ends_the_wait_for_ever() -> None:
    commands = Listening()
    ticks = WallTicks(WallClock(), pace(FOREVER), commands)
    thread = waited(ticks)
    assert commands.waiting.wait(60)
    ticks.stop()
    thread.join(60)
    assert not thread.is_alive()
    assert not ticks.wait(NEVER, True)


def test_what_is_due_earlier_ends_the_wait() -> None:
    clock = AcceleratedClock(time.time(), 10_000)
    assert WallTicks(clock, pace(FOREVER), CommandQueue()).wait(clock.now() + 10, True)


def test_the_waiting_thread_shows_that_it_is_alive() -> None:
    shown: list[float] = []
    commands = CommandQueue()

    def alive() -> None:
        shown.append(0)
        if len(shown) == 5:
            ticks.stop()

    ticks = WallTicks(WallClock(), pace(FOREVER), commands, alive, every=0.01)
    assert not ticks.wait(NEVER, True)
    assert len(shown) == 5


def test_the_clock_set_back_does_not_lengthen_a_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock goes back an hour while it waits for its next poll."""
    clock = AcceleratedClock(time.time(), 100_000)
    commands = Listening()
    thread = waited(WallTicks(clock, pace(FOREVER), commands), clock.now() + 100_000)
    assert commands.waiting.wait(60)
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() - 3_600)
    thread.join(60)
    assert not thread.is_alive()


def test_the_clock_file_of_the_simulated_cluster_goes_on(tmp_path: Path) -> None:
    from mirage.bootstrap.simulated import _own_clock

    first = _own_clock(tmp_path / "clock.json", 60)
    assert _own_clock(tmp_path / "clock.json", 60) == first
    assert _own_clock(tmp_path / "clock.json", 30).rate == 30
    assert json.loads((tmp_path / "clock.json").read_text())["rate"] == 30
