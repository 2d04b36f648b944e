"""Dependencies of the gateway's routes, and the steps that all requests share."""

from __future__ import annotations

import asyncio
import contextlib
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mirage.allocation.inference.serving.addressbook import StateFolder
from mirage.allocation.inference.serving.bodies import key_of, unless_gone
from mirage.allocation.inference.serving.desk import Wish
from mirage.allocation.inference.serving.openinference import LARGEST_INLINE
from mirage.allocation.inference.serving.paces import Paces
from mirage.allocation.inference.serving.proof import gateway_at, prove
from mirage.allocation.inference.serving.refusals import GivenUp, Refusal
from mirage.allocation.inference.serving.tensors import shown
from mirage.allocation.inference.serving.upstream import Upstream
from mirage.domain.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import TypeVar

    from starlette.requests import Request

    from mirage.allocation.inference.serving.doors import Doors
    from mirage.allocation.inference.serving.exchanges import Answer, Exchange
    from mirage.allocation.inference.serving.gateway import Gateway
    from mirage.allocation.inference.serving.jsonthread import JsonThread
    from mirage.allocation.inference.serving.memorybudget import MemoryBudget, Reservation
    from mirage.allocation.inference.serving.plan import ModelPlan, ServingPlan
    from mirage.allocation.inference.serving.tenants import Quota, Tenants

    T = TypeVar("T")

DEADLINE = "x-deadline-ms"
_JSON_OF_ONE = 128 << 10
"""Bytes of JSON whose processing counts like one more request."""


@dataclass(frozen=True, slots=True)
class Admission:
    """A tenant's current request."""

    tenant: int
    """Row of the tenant."""
    memory: Reservation


@dataclass(slots=True)
class Identity:
    """Proves that a gateway is the one named in the state directory, to clients that know its token."""

    token: str
    url: str = ""
    """Its URL, once it listens."""

    def prove(self, challenge: str) -> str:
        """The answer to a challenge."""
        return prove(self.token, gateway_at(self.url), challenge)


@dataclass(frozen=True, slots=True)
class Service:
    """One gateway, as its routes see it."""

    plan: ServingPlan
    gateway: Gateway
    tenants: Tenants
    doors: Doors
    clock: Callable[[], float]
    memory: MemoryBudget
    json: JsonThread
    identity: Identity
    paces: Paces = field(default_factory=Paces)
    """Paces answers that count for no tenant's rate."""

    @contextlib.contextmanager
    def admitted(self, headers: Mapping[str, str]) -> Iterator[Admission]:
        """Context of a tenant's request. Raises ``Refusal``."""
        row = self.tenants.find(key_of(headers))
        try:
            self.quota(row).enter(self.clock())
        except Refusal as refusal:
            self.count(row, refusal)
            raise
        try:
            with self.memory.reserved(row) as memory:
                yield Admission(row, memory)
        except Refusal as refusal:
            self.count(row, refusal)
            raise
        finally:
            self.quota(row).leave()

    def client(self, headers: Mapping[str, str], origin: str) -> str:
        """Who the pace of an answer counts for: a tenant, or the address ``origin``."""
        row = self.tenants.known(key_of(headers))
        return origin if row is None else f"tenant {row}"

    def successor_at(self, url: str) -> Upstream:
        """The gateway at ``url``; one that the state directory names must prove its identity.

        Raises ``ValueError``."""
        try:
            address = StateFolder(self.plan.gateway.state).read_address()
        except ConfigError as error:
            raise ValueError(str(error)) from error
        token = address.token if address is not None and address.url == url.rstrip("/") else ""
        return Upstream(url, token)

    def quota(self, row: int) -> Quota:
        """JSON work of a tenant."""
        return self.tenants.quotas[row]

    async def convert(self, row: int, size: int, work: Callable[[], T]) -> T:
        """Read or write about ``size`` bytes of JSON, counted for the tenant. Raises what ``work`` raises."""
        self.quota(row).charge(size // _JSON_OF_ONE, self.clock())
        if size <= LARGEST_INLINE:
            return work()
        return await self.json.run(row, work)

    def count(self, row: int, refusal: Refusal) -> None:
        """Count a rejected request; the gateway counts accepted ones."""
        if not isinstance(refusal, GivenUp):
            self.gateway.meters.refused(self.plan.tenants[row].name, refusal.status)

    def models_of(self, row: int) -> list[ModelPlan]:
        """The models that a tenant may use."""
        allowed = self.plan.tenants[row].models
        return [model for model in self.plan.models if model.name in allowed]

    def model(self, row: int, name: str) -> int:
        """A model's row. Raises ``Refusal``."""
        if name not in self.plan.tenants[row].models:
            there = ", ".join(model.name for model in self.models_of(row))
            raise Refusal(404, f"unknown model {shown(name)} (your models: {there})")
        return next(at for at, model in enumerate(self.plan.models) if model.name == name)

    async def answer(
        self,
        request: Request,
        wish: Wish,
        header: dict[str, Any],
        content: Sequence[bytes | memoryview],
        memory: Reservation,
    ) -> tuple[Exchange, Answer]:
        """The answer, or the beginning of a streamed one. Raises ``Refusal`` and ``ClientDisconnect``."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        exchange = self.gateway.ask(wish, header, content, answer, memory)
        try:
            return exchange, await unless_gone(request, answer)
        except BaseException:
            self.gateway.withdraw(exchange)
            raise

    def wish(self, tenant: int, model: int, milliseconds: object) -> Wish:
        """``milliseconds`` to the deadline, ``None``: the tenant's default. Raises ``Refusal``."""
        plan = self.plan.tenants[tenant]
        seconds = plan.deadline if milliseconds is None else _seconds(milliseconds)
        return Wish(model, tenant, self.clock() + seconds, plan.weight)


def trace_of(answer: Answer) -> dict[str, str]:
    """Headers that state the unit and the times of a request."""
    return {
        "X-Mirage-Unit": answer.unit,
        "X-Mirage-Queue-Ms": f"{1000 * answer.queued:.3f}",
        "X-Mirage-Service-Ms": f"{1000 * float(answer.header.get('seconds', 0.0)):.3f}",
    }


def _seconds(milliseconds: object) -> float:
    seconds = math.nan
    if isinstance(milliseconds, int | float | str):
        with contextlib.suppress(ValueError, OverflowError):
            seconds = float(milliseconds) / 1000
    if math.isnan(seconds):
        raise Refusal(
            400, f"{DEADLINE}: expected milliseconds from now to the deadline, not {shown(milliseconds)}"
        )
    if seconds <= 0:
        raise Refusal(400, f"{DEADLINE}: the deadline has already passed ({1000 * seconds:g} ms from now)")
    return seconds
