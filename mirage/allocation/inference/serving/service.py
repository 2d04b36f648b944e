"""What the routes of a gateway work with, and what all requests go through."""

from __future__ import annotations

import asyncio
import math
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mirage.allocation.inference.serving.bodies import key_of, unless_gone
from mirage.allocation.inference.serving.desk import Wish
from mirage.allocation.inference.serving.refusals import GivenUp, Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from starlette.requests import Request

    from mirage.allocation.inference.serving.doors import Doors
    from mirage.allocation.inference.serving.exchanges import Answer, Exchange
    from mirage.allocation.inference.serving.gateway import Gateway
    from mirage.allocation.inference.serving.plan import ModelPlan, ServingPlan
    from mirage.allocation.inference.serving.tenants import Quota, Tenants

DEADLINE = "x-deadline-ms"


@dataclass(frozen=True, slots=True)
class Service:
    """One gateway as its routes see it."""

    plan: ServingPlan
    gateway: Gateway
    tenants: Tenants
    doors: Doors
    clock: Callable[[], float]

    def admit(self, headers: Mapping[str, str]) -> int:
        """The row of the tenant whose request is here; ``quota(row).leave`` is due. Raises ``Refusal``."""
        row = self.tenants.find(key_of(headers))
        try:
            self.quota(row).enter(self.clock())
        except Refusal as refusal:
            self.count(row, refusal)
            raise
        return row

    @contextmanager
    def admitted(self, request: Request) -> Iterator[int]:
        """The row of the tenant, while its request is here. Raises ``Refusal``."""
        row = self.admit(request.headers)
        try:
            yield row
        except Refusal as refusal:
            self.count(row, refusal)
            raise
        finally:
            self.quota(row).leave()

    def quota(self, row: int) -> Quota:
        """Of a tenant."""
        return self.tenants.quotas[row]

    def count(self, row: int, refusal: Refusal) -> None:
        """A tenant's request was not let in; those that were are counted by the gateway."""
        if not isinstance(refusal, GivenUp):
            self.gateway.meters.refused(self.plan.tenants[row].name, refusal.status)

    def models_of(self, row: int) -> list[ModelPlan]:
        """Those that a tenant may ask."""
        allowed = self.plan.tenants[row].models
        return [model for model in self.plan.models if model.name in allowed]

    def model(self, row: int, name: str) -> int:
        """A model's row. Raises ``Refusal``."""
        if name not in self.plan.tenants[row].models:
            there = ", ".join(model.name for model in self.models_of(row))
            raise Refusal(404, f"there is no model {name!r} for you; there are: {there}")
        return next(at for at, model in enumerate(self.plan.models) if model.name == name)

    async def answer(
        self, request: Request, wish: Wish, header: dict[str, Any], content: Sequence[bytes | memoryview]
    ) -> tuple[Exchange, Answer]:
        """Whole, or the beginning of what comes bit by bit. Raises ``Refusal``, and ``ClientDisconnect``."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        exchange = self.gateway.ask(wish, header, content, answer)
        try:
            return exchange, await unless_gone(request, answer)
        except BaseException:
            self.gateway.withdraw(exchange)
            raise

    def wish(self, tenant: int, model: int, milliseconds: object) -> Wish:
        """``milliseconds`` to the deadline, ``None``: the tenant's own. Raises ``Refusal``."""
        plan = self.plan.tenants[tenant]
        seconds = plan.deadline if milliseconds is None else _seconds(milliseconds)
        return Wish(model, tenant, self.clock() + seconds, plan.weight)


def trace_of(answer: Answer) -> dict[str, str]:
    """Headers that say where a request was, and how long."""
    return {
        "X-Mirage-Unit": answer.unit,
        "X-Mirage-Queue-Ms": f"{1000 * answer.queued:.3f}",
        "X-Mirage-Service-Ms": f"{1000 * float(answer.header.get('seconds', 0.0)):.3f}",
    }


def _seconds(milliseconds: object) -> float:
    try:
        seconds = float(milliseconds) / 1000  # type: ignore[arg-type]
    except (TypeError, ValueError):
        seconds = math.nan
    if math.isnan(seconds):
        raise Refusal(400, f"{DEADLINE}: expected milliseconds from now to the deadline, not {milliseconds!r}")
    if seconds <= 0:
        raise Refusal(400, f"{DEADLINE}: the deadline has passed already ({milliseconds} ms from now)")
    return seconds
