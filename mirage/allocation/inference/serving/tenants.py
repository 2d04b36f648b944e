"""Authentication and quotas of tenants."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from mirage.allocation.inference.serving.configfile import digest_of
from mirage.allocation.inference.serving.refusals import Refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirage.allocation.inference.serving.plan import TenantPlan


class Quota:
    """A token bucket at the tenant's rate, and the number of its current requests."""

    def __init__(self, plan: TenantPlan, now: float) -> None:
        self.plan = plan
        self.here = 0
        self._filled, self._at = float(plan.burst), now

    def enter(self, now: float) -> None:
        """Count a new request; call ``leave`` at its end. Raises ``Refusal``."""
        if self.here >= self.plan.concurrent:
            most = self.plan.concurrent
            raise Refusal(429, f"tenant {self.plan.name!r} has {most} requests in progress, its maximum", 1)
        self._fill(now)
        if self._filled < 1:
            wait = (1 - self._filled) / self.plan.rate
            raise Refusal(429, f"tenant {self.plan.name!r} exceeds {self.plan.rate:g} requests per second", wait)
        self._filled -= 0 if math.isinf(self.plan.rate) else 1
        self.here += 1

    def charge(self, requests: float, now: float) -> None:
        """Charge a request like this number of additional ones, which delays the next ones."""
        self._fill(now)
        self._filled -= 0 if math.isinf(self.plan.rate) else requests

    def leave(self) -> None:
        """Count the end of a request."""
        self.here -= 1

    def _fill(self, now: float) -> None:
        if not math.isinf(self.plan.rate):
            self._filled = min(self.plan.burst, self._filled + (now - self._at) * self.plan.rate)
        self._at = now


class Tenants:
    """Finds the tenant of a key. Keys are stored only as SHA-256."""

    def __init__(self, plans: Sequence[TenantPlan], operators: Sequence[str], now: float) -> None:
        self.quotas = [Quota(plan, now) for plan in plans]
        self._rows = {digest: row for row, plan in enumerate(plans) for digest in plan.keys}
        self._operators = frozenset(operators)

    def find(self, key: str | None) -> int:
        """The tenant's row. Raises ``Refusal``."""
        if not key:
            raise Refusal(401, "API key missing; send Authorization: Bearer KEY")
        row = self._rows.get(digest_of(key))
        if row is None:
            raise Refusal(401, "invalid API key")
        return row

    def known(self, key: str | None) -> int | None:
        """The tenant's row; ``None``: unknown key."""
        return self._rows.get(digest_of(key)) if key else None

    def check_operator(self, key: str | None) -> None:
        """Raise ``Refusal`` unless the key is an operator's."""
        if not key or digest_of(key) not in self._operators:
            raise Refusal(401 if not key else 403, "operators only; send Authorization: Bearer KEY of an operator")
