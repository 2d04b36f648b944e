"""Pacing of answers that count for no tenant's rate, by gateways and reverse proxies."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakSet

from mirage.answerpace import AnswerPace
from mirage.boundedhttp import PRESENCE, Presence

if TYPE_CHECKING:
    from starlette.types import Scope

REFUSALS_A_SECOND, REFUSALS_AT_ONCE = 200, 200
"""Answers per second to one tenant, or one address."""
AT_A_FRONT = 50
"""Per address at a reverse proxy, which is one address for its gateway; leaves most of the rate to others."""
_GONE = 499
"""The status of a request whose client has disconnected."""
_REFUSAL_WITHIN = 30.0
"""Seconds. A client whose rejections on all connections would take longer gets them faster."""
_LOOK_WITHIN = 2.0
"""Longest delay of health checks in seconds, whatever other clients at the same address send."""


class Paces:
    """Paces rejections and read-only requests: health, models, metrics."""

    def __init__(self, rate: float = REFUSALS_A_SECOND) -> None:
        self._refusals = AnswerPace(rate, REFUSALS_AT_ONCE, _REFUSAL_WITHIN)
        self._looks = AnswerPace(rate, REFUSALS_AT_ONCE, _LOOK_WITHIN)
        self._proven = WeakSet[Presence]()

    def of(self, method: str, status: int) -> AnswerPace | None:
        """The pace that applies to an answer; ``None``: no pace."""
        if 400 <= status < _GONE:
            return self._refusals
        return None if method == "POST" else self._looks

    def prove(self, scope: Scope) -> bool:
        """Whether this is the first proof on its connection: a proxy needs one, which others cannot delay."""
        presence = scope.get(PRESENCE)
        if not isinstance(presence, Presence) or presence in self._proven:
            return False
        self._proven.add(presence)
        return True
