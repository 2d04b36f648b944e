"""Cache for values derived from one state of the daemon."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable

MOST = 64
V = TypeVar("V")


class Held(Generic[V]):
    """Bounded cache for one state, compared by identity; the oldest entries are dropped first."""

    def __init__(self) -> None:
        self._state: object = None
        self._held: dict[Hashable, V] = {}

    def get(self, state: object, key: Hashable) -> V | None:
        """Return the value stored under ``key`` for this state."""
        return self._held.get(key) if state is self._state else None

    def put(self, state: object, key: Hashable, value: V) -> None:
        """Store a value; values of another state are dropped."""
        if state is not self._state:
            self._state, self._held = state, {}
        while len(self._held) >= MOST:
            self._held.pop(next(iter(self._held)))
        self._held[key] = value

    def drop(self, key: Hashable) -> None:
        """Drop the value under ``key``."""
        self._held.pop(key, None)
