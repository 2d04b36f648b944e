"""Who asks, and how much they may."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from mirage.allocation.inference.serving.configfile import digest_of
from mirage.allocation.inference.serving.refusals import Refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirage.allocation.inference.serving.plan import TenantPlan


class Quota:
    """A bucket that fills at the tenant's rate, and how many of its requests are here."""

    def __init__(self, plan: TenantPlan, now: float) -> None:
        self.plan = plan
        self.here = 0
        self._filled, self._at = float(plan.burst), now

    def enter(self, now: float) -> None:
        """One of its requests comes; ``leave`` is due. Raises ``Refusal``."""
        if self.here >= self.plan.concurrent:
            most = self.plan.concurrent
            raise Refusal(429, f"tenant {self.plan.name!r} has {most} requests here, its most at once", 1)
        self._fill(now)
        if self._filled < 1:
            wait = (1 - self._filled) / self.plan.rate
            raise Refusal(429, f"tenant {self.plan.name!r} is over its {self.plan.rate:g} requests a second", wait)
        self._filled -= 0 if math.isinf(self.plan.rate) else 1
        self.here += 1

    def charge(self, requests: float, now: float) -> None:
        """One of them costs as much as so many more: the next ones wait for it."""
        self._fill(now)
        self._filled -= 0 if math.isinf(self.plan.rate) else requests

    def leave(self) -> None:
        """It is through."""
        self.here -= 1

    def _fill(self, now: float) -> None:
        if not math.isinf(self.plan.rate):
            self._filled = min(self.plan.burst, self._filled + (now - self._at) * self.plan.rate)
        self._at = now


class Tenants:
    """Finds who asks by their key. Keys are known by their SHA-256 alone."""

    def __init__(self, plans: Sequence[TenantPlan], operators: Sequence[str], now: float) -> None:
        self.quotas = [Quota(plan, now) for plan in plans]
        self._rows = {digest: row for row, plan in enumerate(plans) for digest in plan.keys}
        self._operators = frozenset(operators)

    def find(self, key: str | None) -> int:
        """The tenant's row. Raises ``Refusal``."""
        if not key:
            raise Refusal(401, "give your API key: Authorization: Bearer KEY")
        row = self._rows.get(digest_of(key))
        if row is None:
            raise Refusal(401, "there is no such API key")
        return row

    def known(self, key: str | None) -> int | None:
        """The tenant's row; ``None``: the key is nobody's."""
        return self._rows.get(digest_of(key)) if key else None

    def check_operator(self, key: str | None) -> None:
        """Raises ``Refusal`` for who is none."""
        if not key or digest_of(key) not in self._operators:
            raise Refusal(401 if not key else 403, "this is for operators: Authorization: Bearer KEY of one")
