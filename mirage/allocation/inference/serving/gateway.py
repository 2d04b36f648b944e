"""The gateway: takes requests from HTTP, asks the policy, sends requests to units and returns answers.

If the policy fails, the first request begins on the first free unit that can run it (``first_come``).
"""

from __future__ import annotations

import asyncio
import logging
import math
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np

from mirage.allocation.inference.serving.admission import GivenUp, RequestRefused
from mirage.allocation.inference.serving.exchanges import Exchange, Unread
from mirage.allocation.inference.serving.openinference import Signature
from mirage.allocation.inference.serving.request_queue import ArrivedRequest, BadDispatch, RequestQueue, Start
from mirage.allocation.inference.serving.worker_connections import BadFrame
from mirage.domain.inference import Dispatch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mirage.allocation.inference.serving.admission import BudgetReservation
    from mirage.allocation.inference.serving.exchanges import Promise
    from mirage.allocation.inference.serving.meters import ServingMeters
    from mirage.allocation.inference.serving.plan import ServingPlan
    from mirage.allocation.inference.serving.worker_connections import WorkerConnection
    from mirage.allocation.inference.serving.worker_supervisor import Seat
    from mirage.domain.inference import SystemView
    from mirage.ports import RequestPolicy


def first_come(view: SystemView) -> Dispatch:
    """First come, first served. Kept short and without anything to compile or load, so that it cannot fail."""
    free = np.flatnonzero((view.running < 0) & np.isfinite(view.free_at)).tolist()
    able = ~np.isnan(view.costs.seconds[:, view.system.kind])
    rows, units = list[int](), list[int]()
    for row, model in enumerate(view.model.tolist()):
        if not free:
            break
        unit = next((unit for unit in free if able[model, unit]), None)
        if unit is not None:
            free.remove(unit)
            rows.append(row)
            units.append(unit)
    return Dispatch(np.array(rows, np.int32), np.array(units, np.int32))


_LOG = logging.getLogger(__name__)
_TICK = 0.1
_LEAST, _GREATEST = 200, 599
"""HTTP statuses of answered requests."""


class Gateway:
    """Runs in one event loop. Implements ``posts.Crew``."""

    def __init__(
        self, plan: ServingPlan, desk: RequestQueue, policy: RequestPolicy, meters: ServingMeters
    ) -> None:
        self._plan, self._desk, self._policy, self.meters = plan, desk, policy, meters
        self._watts = {unit.kind: unit.watts for unit in plan.units}
        self._exchanges = dict[int, Exchange]()
        self._links: dict[int, WorkerConnection] = {}
        """Running exchanges by unit."""
        self._heard: dict[WorkerConnection, float] = {}
        """When a worker last sent anything."""
        self.signatures = dict[str, tuple[tuple[Signature, ...], tuple[Signature, ...]]]()
        """Inputs and outputs of the loaded models."""
        self._loop = asyncio.get_running_loop()
        self._decision: asyncio.Handle | None = None
        self._next: asyncio.TimerHandle | None = None

    @property
    def idle(self) -> bool:
        """Whether no request waits or runs."""
        return not self._exchanges

    @property
    def ready(self) -> bool:
        """Whether every model has a unit that is up."""
        return all(self.serves(model) for model in range(len(self._plan.models)))

    def serves(self, model: int) -> bool:
        """Whether a unit that runs this model is up."""
        kinds = self._desk.system.kind
        return any(not math.isnan(self._desk.estimates.seconds(model, int(kinds[unit]))) for unit in self._links)

    def ask(
        self,
        wish: ArrivedRequest,
        header: dict[str, Any],
        content: Sequence[bytes | memoryview],
        answer: Promise,
        memory: BudgetReservation,
    ) -> Exchange:
        """Accept a request. Raises ``RequestRefused``."""
        now = monotonic()
        exchange = Exchange(wish.tenant, wish.model, now, header, content, answer, memory)
        displaced = self._desk.make_room(wish)
        if displaced is not None:
            text = "too many requests wait, and most of them are yours; retry later"
            self._give_up(displaced, GivenUp(503, text, self._desk.backlog()))
        exchange.number = self._desk.admit(wish, now)
        self._exchanges[exchange.number] = exchange
        self._wake()
        return exchange

    def withdraw(self, exchange: Exchange) -> None:
        """Withdraw a request whose client has disconnected."""
        if exchange.number in self._exchanges:
            self._drop(exchange, "gone")

    def _drop(self, exchange: Exchange, result: str) -> None:
        """Ask the worker to drop it."""
        del self._exchanges[exchange.number]
        unit = self._desk.withdraw(exchange.number, monotonic())
        if unit is not None and unit in self._links:
            self._links[unit].send({"drop": exchange.number})
        self._count(exchange, result)

    def came(self, seat: Seat, link: WorkerConnection, models: dict[str, Any]) -> None:
        """See ``posts.Crew``."""
        names = [model.name for model in self._plan.models]
        for loaded in _read(models, names):
            self.signatures[loaded.name] = (loaded.inputs, loaded.outputs)
            if loaded.seconds is not None:
                kind = int(self._desk.system.kind[seat.units[0]])
                self._desk.estimates.begin_with(names.index(loaded.name), kind, loaded.seconds)
        link.hear = lambda header, data: self._hear(seat, link, header, data)
        self._heard[link] = monotonic()
        for unit in seat.units:
            self._links[unit] = link
            self._desk.raise_unit(unit)
        self.meters.up.labels(seat.name).set(1)
        self._wake()

    def went(self, seat: Seat, *, coming: bool) -> None:
        """See ``posts.Crew``."""
        if seat.units[0] in self._links:
            self.meters.restarts.labels(seat.name).inc()
        self.meters.up.labels(seat.name).set(0)
        for unit in seat.units:
            if (link := self._links.pop(unit, None)) is not None:
                self._heard.pop(link, None)
            request = self._desk.lower_unit(unit, monotonic(), coming=coming)
            if request is not None:
                self._give_up(request, GivenUp(502, "the worker ended while it ran this request"))
        self._wake()

    async def watch(self, kill: Callable[[int], None]) -> None:
        """End requests that wait or run for too long, until this task is cancelled."""
        longest, within = self._plan.queue.longest_wait, self._plan.workers.answer_within
        while True:
            now = monotonic()
            for request in self._desk.overdue(now):
                self._give_up(
                    request, GivenUp(504, f"no unit became free within {longest:g} s", self._desk.backlog())
                )
            for unit in self._desk.hanging(now, within):
                if not self._abandon(unit, now - within / 2):
                    kill(unit)
            self.meters.waiting.set(self._desk.waiting)
            self.meters.running.set(self._desk.running)
            await asyncio.sleep(_TICK)

    def _abandon(self, unit: int, since: float) -> bool:
        """End a request whose worker has answered others, or sent a sign of life, since then.

        ``False``: the worker is silent, or still runs a request that it was asked to drop.
        """
        exchange = self._exchanges.get(self._desk.request_on(unit))
        if exchange is None or self._heard[self._links[unit]] <= since:
            return False
        self._drop(exchange, "failed")
        within = self._plan.workers.answer_within
        exchange.fail(GivenUp(504, f"the model sent nothing about this request within {within:g} s"))
        return True

    def _wake(self) -> None:
        """Decide once, after all events of this pass of the event loop."""
        if self._decision is None and self._desk.waiting:
            self._decision = self._loop.call_soon(self._decide)

    def _decide(self) -> None:
        self._decision = None
        if self._next is not None:
            self._next.cancel()
            self._next = None
        if not self._desk.waiting:
            return
        for start in self._starts():
            self._start(start)
        if 0 < self._policy.period < math.inf and self._desk.waiting:
            self._next = self._loop.call_later(self._policy.period, self._wake)

    def _starts(self) -> list[Start]:
        """Ask the policy; if it fails, use first come, first served."""
        now = monotonic()
        view = self._desk.view(now)
        try:
            starts = self._desk.obey(self._policy.decide(view), now)
        except Exception as error:
            self.meters.policy_faults.inc()
            if isinstance(error, BadDispatch):
                _LOG.error("policy %s: %s; first come, first served", self._policy.name, error)
            else:
                _LOG.exception("policy %s has failed; first come, first served", self._policy.name)
            return self._desk.obey(first_come(self._desk.view(now)), now)
        self.meters.decided(monotonic() - now)
        return starts

    def _start(self, start: Start) -> None:
        exchange, link = self._exchanges[start.request], self._links[start.unit]
        exchange.began = monotonic()
        exchange.unit = self._desk.system.names[start.unit]
        link.send({**exchange.header, "number": start.request}, *exchange.content)

    def _hear(self, seat: Seat, link: WorkerConnection, header: dict[str, Any], data: memoryview) -> None:
        """Handle a worker's message, mostly about one of its requests. Raises ``BadFrame`` before any change."""
        if header.get("say") == "alive":
            self._heard[link] = monotonic()
            return
        _check(header)
        self._heard[link] = monotonic()
        number = header["number"]
        unit = self._desk.unit_of(number)
        if unit not in seat.units:
            return
        assert unit is not None
        exchange = self._exchanges.get(number)
        if header["say"] == "end":
            self._end(unit, exchange, header, data)
        elif exchange is not None:
            self._continue(exchange, header, data)

    def _continue(self, exchange: Exchange, header: dict[str, Any], data: memoryview) -> None:
        self._desk.begun(exchange.number, monotonic())
        if exchange.parts is None:
            exchange.parts, exchange.content = Unread(exchange.memory, partial(self._taken, exchange)), ()
            exchange.reply(header, memoryview(b""))
        try:
            exchange.parts.put(data)
        except RequestRefused:
            self._drop(exchange, "unread")
            exchange.fail(
                GivenUp(503, "the client did not read the answer, and unread answers use too much memory")
            )

    def _taken(self, exchange: Exchange, size: int) -> None:
        """The worker of a slow client waits for the client, and does not hang."""
        if exchange.number not in self._exchanges:
            return
        self._desk.begun(exchange.number, monotonic())
        unit = self._desk.unit_of(exchange.number)
        if size and unit is not None and unit in self._links:
            self._links[unit].send({"read": exchange.number, "bytes": size})

    def _end(self, unit: int, exchange: Exchange | None, header: dict[str, Any], data: memoryview) -> None:
        """Deliver the answer first, then update estimates and metrics."""
        now, faulty = monotonic(), "status" in header
        if exchange is not None:
            del self._exchanges[exchange.number]
            _answer(exchange, header, data)
        kept = not faulty and self._desk.answered(unit, now - header.get("waited", 0.0))
        if faulty:
            self._desk.rejected(unit)
        self._wake()
        if exchange is not None:
            self._account(exchange, unit, now)
            self._count(exchange, "faulty" if faulty else "kept" if kept else "late")

    def _give_up(self, request: int, refusal: GivenUp) -> None:
        exchange = self._exchanges.pop(request)
        self._count(exchange, "failed")
        exchange.fail(refusal)

    def _account(self, exchange: Exchange, unit: int, now: float) -> None:
        system, tenant = self._desk.system, self._plan.tenants[exchange.tenant].name
        kind = self._desk.estimates.table.kinds[system.kind[unit]]
        model = self._plan.models[exchange.model].name
        self.meters.began(tenant, exchange.began - exchange.arrival)
        self.meters.worked(tenant, model, system.names[unit], now - exchange.began, self._watts[kind])

    def _count(self, exchange: Exchange, result: str) -> None:
        tenant, model = self._plan.tenants[exchange.tenant].name, self._plan.models[exchange.model].name
        self.meters.ended(tenant, model, result, monotonic() - exchange.arrival)


def _answer(exchange: Exchange, header: dict[str, Any], data: memoryview) -> None:
    if "status" in header:
        exchange.fail(GivenUp(header["status"], str(header.get("why"))))
    elif exchange.parts is not None:
        exchange.parts.end()
    else:
        try:
            exchange.memory.resize(len(data))
        except RequestRefused as refusal:
            exchange.fail(GivenUp(refusal.status, f"no room for the answer: {refusal}", 1))
        else:
            exchange.reply(header, data)


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A model that a worker has loaded."""

    name: str
    inputs: tuple[Signature, ...]
    outputs: tuple[Signature, ...]
    seconds: float | None
    """Seconds of one request; ``None``: not measured."""


def _read(models: Any, names: Sequence[str]) -> list[_Loaded]:
    """The models that a worker has loaded, of the models ``names``. Raises ``BadFrame``."""
    try:
        loaded = [
            _Loaded(name, _signatures(of["inputs"]), _signatures(of["outputs"]), _seconds(of))
            for name, of in models.items()
        ]
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise BadFrame(f"the worker's list of models cannot be parsed: {error!r}") from None
    if strange := next((each.name for each in loaded if each.name not in names), None):
        raise BadFrame(f"the worker has loaded {strange!r}, which is not configured")
    return loaded


def _signatures(documents: list[dict[str, Any]]) -> tuple[Signature, ...]:
    return tuple(Signature.of(document) for document in documents)


def _check(header: dict[str, Any]) -> None:
    """Raises ``BadFrame`` where a message is not about a request."""
    statuses = [header[name] for name in ("status", "http") if name in header]
    times = [header.get(name, 0.0) for name in ("seconds", "waited")]
    if (
        type(header.get("number")) is not int
        or not all(type(status) is int and _LEAST <= status <= _GREATEST for status in statuses)
        or not all(type(time) in (int, float) and 0 <= time < math.inf for time in times)
    ):
        raise BadFrame("the message is not about a request")


def _seconds(loaded: dict[str, Any]) -> float | None:
    if loaded.get("seconds") is None:
        return None
    seconds = float(loaded["seconds"])
    if not 0 <= seconds < math.inf:
        raise ValueError(f"{seconds} seconds")
    return seconds
