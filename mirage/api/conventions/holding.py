"""What is worth keeping as long as the daemon's state stays the same, and no longer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable

MOST = 64
V = TypeVar("V")


class Held(Generic[V]):
    """A bounded number of things made of one state, which is known by its identity; the oldest go first."""

    def __init__(self) -> None:
        self._state: object = None
        self._held: dict[Hashable, V] = {}

    def get(self, state: object, key: Hashable) -> V | None:
        """What was put under ``key`` in this very state."""
        return self._held.get(key) if state is self._state else None

    def put(self, state: object, key: Hashable, value: V) -> None:
        """Keep it; what was made of another state goes."""
        if state is not self._state:
            self._state, self._held = state, {}
        while len(self._held) >= MOST:
            self._held.pop(next(iter(self._held)))
        self._held[key] = value

    def drop(self, key: Hashable) -> None:
        """Keep it no longer."""
        self._held.pop(key, None)
