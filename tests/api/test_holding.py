"""Answers that are held for one state of the daemon."""

from __future__ import annotations

from mirage.api.conventions.caching import MOST, Held


def test_the_oldest_go_first() -> None:
    held, state = Held[int](), object()
    for number in range(MOST + 10):
        held.put(state, number, number)
    assert [key for key in range(MOST + 10) if held.get(state, key) is not None] == list(range(10, MOST + 10))


def test_another_state_has_nothing_of_the_one_before_even_where_they_are_equal() -> None:
    held, before, after = Held[str](), ["state"], ["state"]
    held.put(before, "key", "old")
    assert held.get(after, "key") is None
    held.put(after, "key", "new")
    assert (held.get(before, "key"), held.get(after, "key")) == (None, "new")


def test_what_is_dropped_is_gone() -> None:
    held, state = Held[str](), object()
    held.put(state, "key", "value")
    held.drop("key")
    held.drop("key")
    assert held.get(state, "key") is None
