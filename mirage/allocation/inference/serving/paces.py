"""Answers of gateways and fronts that count against no tenant's rate, and how fast each client is sent them."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakSet

from mirage.answerpace import AnswerPace
from mirage.boundedhttp import PRESENCE, Presence

if TYPE_CHECKING:
    from starlette.types import Scope

REFUSALS_A_SECOND, REFUSALS_AT_ONCE = 200, 200
"""To one tenant, or one address."""
AT_A_FRONT = 50
"""To one address at a front, which is one address to its gateway: one client there leaves most to others."""
_GONE = 499
"""The status of a request whose client has left."""
_REFUSAL_WITHIN = 30.0
"""Seconds. A client with so many connections that their rejections take longer at this pace gets them faster."""
_LOOK_WITHIN = 2.0
"""Seconds that checks of health wait at most, whoever else asks from the same address."""


class Paces:
    """Of rejections, and of what is only looked at: health, models, metrics."""

    def __init__(self, rate: float = REFUSALS_A_SECOND) -> None:
        self._refusals = AnswerPace(rate, REFUSALS_AT_ONCE, _REFUSAL_WITHIN)
        self._looks = AnswerPace(rate, REFUSALS_AT_ONCE, _LOOK_WITHIN)
        self._proven = WeakSet[Presence]()

    def of(self, method: str, status: int) -> AnswerPace | None:
        """The pace that an answer counts against; ``None``: none."""
        if 400 <= status < _GONE:
            return self._refusals
        return None if method == "POST" else self._looks

    def prove(self, scope: Scope) -> bool:
        """Whether this is the first proof on its connection: a front asks for one; others cannot delay it."""
        presence = scope.get(PRESENCE)
        if not isinstance(presence, Presence) or presence in self._proven:
            return False
        self._proven.add(presence)
        return True
