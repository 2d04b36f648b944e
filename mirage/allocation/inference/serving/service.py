"""Dependencies of the gateway's routes, and the steps that all requests share.

Among them: authentication and quotas of tenants, and one thread outside the event loop that reads and writes large
JSON documents, tenant by tenant.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from mirage.allocation.inference.serving.addressbook import GatewayStateFolder, gateway_at, prove
from mirage.allocation.inference.serving.admission import GivenUp, RequestRefused
from mirage.allocation.inference.serving.bodies import key_of, unless_gone
from mirage.allocation.inference.serving.configfile import digest_of
from mirage.allocation.inference.serving.openinference import LARGEST_INLINE, shown
from mirage.allocation.inference.serving.replies import Paces
from mirage.allocation.inference.serving.request_queue import ArrivedRequest
from mirage.allocation.inference.serving.upstream import Upstream
from mirage.domain.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

    from starlette.requests import Request

    from mirage.allocation.inference.serving.admission import Admission, BudgetReservation, MemoryBudget
    from mirage.allocation.inference.serving.exchanges import Exchange, WorkerAnswer
    from mirage.allocation.inference.serving.gateway import Gateway
    from mirage.allocation.inference.serving.plan import ModelPlan, ServingPlan, TenantPlan

Made = TypeVar("Made")


class JsonThread:
    """One document at a time, so that only one is held as objects; owners take turns."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "json")
        self._lines: dict[Hashable, deque[asyncio.Future[None]]] = {}
        """Waiting work by owner; an owner that had a turn goes to the end."""
        self._busy = False

    async def run(self, owner: Hashable, work: Callable[[], Made]) -> Made:
        """Run ``work`` and return its result or raise its exception."""
        await self._turn(owner)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        finally:
            self._pass_on()

    def close(self) -> None:
        """Start no more work."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _turn(self, owner: Hashable) -> None:
        if not self._busy:
            self._busy = True
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lines.setdefault(owner, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        while self._lines:
            owner = next(iter(self._lines))
            line = self._lines.pop(owner)
            while line and line[0].done():  # its client has disconnected
                line.popleft()
            if line:
                line.popleft().set_result(None)
                if line:
                    self._lines[owner] = line
                return
        self._busy = False


class Quota:
    """A token bucket at the tenant's rate, and the number of its current requests."""

    def __init__(self, plan: TenantPlan, now: float) -> None:
        self.plan = plan
        self.here = 0
        self._filled, self._at = float(plan.burst), now

    def enter(self, now: float) -> None:
        """Count a new request; call ``leave`` at its end. Raises ``RequestRefused``."""
        if self.here >= self.plan.concurrent:
            most = self.plan.concurrent
            raise RequestRefused(429, f"tenant {self.plan.name!r} has {most} requests in progress, its maximum", 1)
        self._fill(now)
        if self._filled < 1:
            wait = (1 - self._filled) / self.plan.rate
            raise RequestRefused(
                429, f"tenant {self.plan.name!r} exceeds {self.plan.rate:g} requests per second", wait
            )
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
        """The tenant's row. Raises ``RequestRefused``."""
        if not key:
            raise RequestRefused(401, "API key missing; send Authorization: Bearer KEY")
        row = self._rows.get(digest_of(key))
        if row is None:
            raise RequestRefused(401, "invalid API key")
        return row

    def known(self, key: str | None) -> int | None:
        """The tenant's row; ``None``: unknown key."""
        return self._rows.get(digest_of(key)) if key else None

    def check_operator(self, key: str | None) -> None:
        """Raise ``RequestRefused`` unless the key is an operator's."""
        if not key or digest_of(key) not in self._operators:
            raise RequestRefused(
                401 if not key else 403, "operators only; send Authorization: Bearer KEY of an operator"
            )


if TYPE_CHECKING:
    T = TypeVar("T")

DEADLINE = "x-deadline-ms"
_JSON_OF_ONE = 128 << 10
"""Bytes of JSON whose processing counts like one more request."""


@dataclass(frozen=True, slots=True)
class AdmittedRequest:
    """A tenant's current request."""

    tenant: int
    """Row of the tenant."""
    memory: BudgetReservation


@dataclass(slots=True)
class GatewayIdentity:
    """Proves that a gateway is the one named in the state directory, to clients that know its token."""

    token: str
    url: str = ""
    """Its URL, once it listens."""

    def prove(self, challenge: str) -> str:
        """The answer to a challenge."""
        return prove(self.token, gateway_at(self.url), challenge)


@dataclass(frozen=True, slots=True)
class GatewayService:
    """One gateway, as its routes see it."""

    plan: ServingPlan
    gateway: Gateway
    tenants: Tenants
    doors: Admission
    clock: Callable[[], float]
    memory: MemoryBudget
    json: JsonThread
    identity: GatewayIdentity
    paces: Paces = field(default_factory=Paces)
    """Paces answers that count for no tenant's rate."""

    @contextlib.contextmanager
    def admitted(self, headers: Mapping[str, str]) -> Iterator[AdmittedRequest]:
        """Context of a tenant's request. Raises ``RequestRefused``."""
        row = self.tenants.find(key_of(headers))
        try:
            self.quota(row).enter(self.clock())
        except RequestRefused as refusal:
            self.count(row, refusal)
            raise
        try:
            with self.memory.reserved(row) as memory:
                yield AdmittedRequest(row, memory)
        except RequestRefused as refusal:
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
            address = GatewayStateFolder(self.plan.gateway.state).read_address()
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

    def count(self, row: int, refusal: RequestRefused) -> None:
        """Count a rejected request; the gateway counts accepted ones."""
        if not isinstance(refusal, GivenUp):
            self.gateway.meters.refused(self.plan.tenants[row].name, refusal.status)

    def models_of(self, row: int) -> list[ModelPlan]:
        """The models that a tenant may use."""
        allowed = self.plan.tenants[row].models
        return [model for model in self.plan.models if model.name in allowed]

    def model(self, row: int, name: str) -> int:
        """A model's row. Raises ``RequestRefused``."""
        if name not in self.plan.tenants[row].models:
            there = ", ".join(model.name for model in self.models_of(row))
            raise RequestRefused(404, f"unknown model {shown(name)} (your models: {there})")
        return next(at for at, model in enumerate(self.plan.models) if model.name == name)

    async def answer(
        self,
        request: Request,
        wish: ArrivedRequest,
        header: dict[str, Any],
        content: Sequence[bytes | memoryview],
        memory: BudgetReservation,
    ) -> tuple[Exchange, WorkerAnswer]:
        """The answer, or the beginning of a streamed one. Raises ``RequestRefused`` and ``ClientDisconnect``."""
        answer: asyncio.Future[WorkerAnswer] = asyncio.get_running_loop().create_future()
        exchange = self.gateway.ask(wish, header, content, answer, memory)
        try:
            return exchange, await unless_gone(request, answer)
        except BaseException:
            self.gateway.withdraw(exchange)
            raise

    def wish(self, tenant: int, model: int, milliseconds: object) -> ArrivedRequest:
        """``milliseconds`` to the deadline, ``None``: the tenant's default. Raises ``RequestRefused``."""
        plan = self.plan.tenants[tenant]
        seconds = plan.deadline if milliseconds is None else _seconds(milliseconds)
        return ArrivedRequest(model, tenant, self.clock() + seconds, plan.weight)


def trace_of(answer: WorkerAnswer) -> dict[str, str]:
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
        raise RequestRefused(
            400, f"{DEADLINE}: expected milliseconds from now to the deadline, not {shown(milliseconds)}"
        )
    if seconds <= 0:
        raise RequestRefused(400, f"{DEADLINE}: the deadline has already passed ({1000 * seconds:g} ms from now)")
    return seconds
