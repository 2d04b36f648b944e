"""Answers that count against no rate: immediate within the pace, later beyond it."""

from __future__ import annotations

import asyncio

import pytest

from mirage import boundedhttp
from mirage.boundedhttp import PRESENCE, AnswerPace, ClientPresence


def test_pace_within_the_burst_answers_at_once() -> None:
    pace = AnswerPace(10, 5, 30, lambda: 0.0)
    assert [pace.delay("a") for _ in range(5)] == [0.0] * 5


def test_pace_beyond_the_burst_spaces_answers() -> None:
    pace = AnswerPace(10, 5, 30, lambda: 0.0)
    delays = [pace.delay("a") for _ in range(8)][5:]
    assert delays == pytest.approx([0.1, 0.2, 0.3])
    assert pace.delay("b") == 0.0


def test_pace_after_a_pause_has_a_burst_again() -> None:
    now = [0.0]
    pace = AnswerPace(10, 5, 30, lambda: now[0])
    for _ in range(8):
        pace.delay("a")
    now[0] = 0.8
    assert [pace.delay("a") for _ in range(5)] == pytest.approx([0.0] * 5, abs=1e-9)
    assert pace.delay("a") == pytest.approx(0.1)


def test_pace_delays_no_answer_longer_than_its_bound() -> None:
    pace = AnswerPace(10, 5, 2, lambda: 0.0)
    assert max(pace.delay("a") for _ in range(1_000)) == pytest.approx(2.0)


def test_pace_of_who_floods_outlasts_many_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boundedhttp, "_MOST_CLIENTS", 10)
    pace = AnswerPace(10, 5, 30, lambda: 0.0)
    for _ in range(100):
        pace.delay("a")
    for number in range(100):
        pace.delay(str(number))
    assert pace.delay("a") > 9


def test_hold_ends_with_its_client_and_keeps_nothing() -> None:
    paused = list[bool]()
    presence = ClientPresence(lambda: paused.append(True))

    async def leave() -> None:
        pace = AnswerPace(0.001, 1, 3_600)
        await pace.hold("a", {PRESENCE: presence})
        assert not paused, "the first is due immediately"
        held = asyncio.create_task(pace.hold("a", {PRESENCE: presence}))
        await asyncio.sleep(0)
        assert (paused, presence.held, held.done()) == ([True], True, False)
        presence.end()
        await asyncio.wait_for(held, 60)

    asyncio.run(leave())
    assert not presence.held
