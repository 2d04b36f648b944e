"""Load clients: send requests at random times (Poisson), each when it is due, at the least possible CPU cost.

A latency counts from the time at which the request was due, whether or not earlier ones are answered. A delay
of the client itself therefore counts as waiting (no coordinated omission). Each client repeats one request, so
that the server is measured and not the client.
"""

from __future__ import annotations

import asyncio
import gc
import json
import math
import random
import select
import selectors
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from mirage.allocation.inference.serving.openinference import DATATYPES, HEADER_LENGTH, Signature, Tensor
from mirage.allocation.inference.serving.upstream import CutOff, Unreachable, Upstream, UpstreamRequest
from mirage.documentreading import parse_json
from mirage.domain.errors import MirageError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator

_END = b"\r\n\r\n"
_LENGTH = b"content-length"
_LAST_CHUNK = b"0\r\n\r\n"
PATIENCE = 60.0
_LOOK = 0.01
_FAILED = 0
"""Status of a request without an answer."""


@dataclass(frozen=True, slots=True)
class TimedAnswer:
    """The result of one request."""

    due: float
    lag: float
    """Seconds by which the load client sent it too late."""
    seconds: float
    """Seconds from its due time to its answer."""
    status: int
    queued: float
    """Seconds that it waited for a unit, as reported by the gateway."""
    served: float
    """Seconds that the worker took, as reported by the gateway."""


def encode(inquiry: UpstreamRequest, host: str) -> bytes:
    """The bytes of the request."""
    lines = [f"{inquiry.method} {inquiry.target} HTTP/1.1".encode(), b"Host: " + host.encode()]
    lines += [name + b": " + value for name, value in inquiry.headers]
    lines.append(b"Content-Length: " + str(len(inquiry.body)).encode())
    return b"\r\n".join(lines) + _END + inquiry.body


class _FineSelector(selectors.EpollSelector):
    """A selector with precise timeouts: ``epoll_wait`` sleeps for whole milliseconds, ``select`` does not."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait for events, with a precise timeout."""
        if timeout is None or timeout > 0:
            select.select([self.fileno()], (), (), timeout)
        return super().select(0)


def fine_loop() -> asyncio.AbstractEventLoop:
    """An event loop whose timers are accurate to about 50 microseconds."""
    return asyncio.SelectorEventLoop(_FineSelector())


class LoadClients:
    """Persistent connections; a new one is opened where none is free."""

    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None, request: bytes) -> None:
        self.told = list[TimedAnswer]()
        self._host, self._port, self._tls, self._request = host, port, tls, request
        self._free: list[_LoadClient] = []
        self._busy = set[_LoadClient]()
        self._connecting = set[asyncio.Task[None]]()

    def ask(self, due: float) -> None:
        """Send a request; ``told`` receives the result."""
        while self._free:
            asker = self._free.pop()
            if not asker.closed:
                self._busy.add(asker)
                asker.ask(self._request, due)
                return
        task = asyncio.get_running_loop().create_task(self._ask_anew(due))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def finish(self) -> list[TimedAnswer]:
        """Wait for all results; requests that take too long have failed."""
        while self._connecting or self._busy:
            await asyncio.sleep(_LOOK)
            self.give_up(monotonic() - PATIENCE)
        told, self.told = self.told, []
        return told

    def give_up(self, before: float) -> None:
        """The results of requests that were due before this time."""
        for asker in [asker for asker in self._busy if asker.due < before]:
            asker.close()

    def close(self) -> None:
        """Close the connections that are not in use."""
        for asker in self._free:
            asker.close()

    def answered(self, asker: _LoadClient, told: TimedAnswer) -> None:
        """Record the result of a request."""
        self.told.append(told)
        self._busy.discard(asker)
        if not asker.closed:
            self._free.append(asker)

    async def _ask_anew(self, due: float) -> None:
        loop = asyncio.get_running_loop()
        connecting = loop.create_connection(lambda: _LoadClient(self), self._host, self._port, ssl=self._tls)
        try:
            _, asker = await asyncio.wait_for(connecting, PATIENCE)
        except (OSError, TimeoutError):
            self.told.append(_nothing(due, monotonic()))
        else:
            self._busy.add(asker)
            asker.ask(self._request, due)


class _LoadClient(asyncio.Protocol):
    """One connection with one request at a time."""

    def __init__(self, askers: LoadClients) -> None:
        self.due = self._sent = 0.0
        self.closed = False
        self._askers = askers
        self._transport: asyncio.Transport | None = None
        self._held, self._waits = b"", False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected: ready to send."""
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Closed by the server or by this client."""
        del exc
        self.closed = True
        if self._waits:
            self._waits = False
            self._askers.answered(self, _nothing(self.due, self._sent))

    def ask(self, request: bytes, due: float) -> None:
        """Write a request to the connection."""
        assert self._transport is not None
        self._held, self._waits, self.due, self._sent = b"", True, due, monotonic()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        """Collect data until the whole body is there."""
        now = monotonic()
        self._held += data
        head, found, body = self._held.partition(_END)
        if not found or not self._waits:
            return
        try:
            told = self._read(head, body, now)
        except (ValueError, IndexError):  # no HTTP: counts as no answer
            self.close()
            return
        if told is not None:
            self._waits = False
            self._askers.answered(self, told)

    def _read(self, head: bytes, body: bytes, now: float) -> TimedAnswer | None:
        """Parse the head; ``None`` where it is incomplete. Raises ``ValueError`` and ``IndexError``."""
        status, *lines = head.split(b"\r\n")
        pairs = (line.partition(b":") for line in lines)
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        if not _is_whole(headers, body):
            return None
        queued, served = (
            float(headers.get(b"x-mirage-%s-ms" % name, 0)) / 1000 for name in (b"queue", b"service")
        )
        return TimedAnswer(self.due, self._sent - self.due, now - self.due, int(status.split()[1]), queued, served)

    def close(self) -> None:
        """Close the connection without waiting for an answer."""
        if self._transport is not None:
            self._transport.abort()


def _nothing(due: float, sent: float) -> TimedAnswer:
    return TimedAnswer(due, sent - due, monotonic() - due, _FAILED, 0.0, 0.0)


def _is_whole(headers: dict[bytes, bytes], body: bytes) -> bool:
    if b"chunked" in headers.get(b"transfer-encoding", b""):
        return body.endswith(_LAST_CHUNK)
    return len(body) >= int(headers.get(_LENGTH, 0))


_WARM = 8
_LARGEST = 1 << 28
"""Largest request, in bytes."""
_QUANTILES = (0.5, 0.9, 0.99, 1.0)


class NoTarget(MirageError):
    """The target cannot be requested; the text quotes the server."""


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """Target, request and rate."""

    url: str
    key: str
    model: str
    rate: float
    """Requests per second."""
    seconds: float
    deadline_ms: float | None
    seed: int


async def drive(plan: LoadPlan, over: asyncio.Event | None = None) -> list[TimedAnswer]:
    """Send all requests, or until ``over``, and wait for all answers. Raises ``NoTarget`` and ``ValueError``.

    Run it in a ``fine_loop``.
    """
    upstream = Upstream(plan.url, within=PATIENCE)
    try:
        request = encode(await _inquiry(upstream, plan), upstream.host)
        askers = LoadClients(upstream.host, upstream.port, upstream.tls, request)
        for _ in range(_WARM):
            askers.ask(monotonic())
        await askers.finish()
        with _undisturbed():
            await _send(plan, askers, over or asyncio.Event())
            told = await askers.finish()
        askers.close()
        return told
    finally:
        upstream.close()
        await asyncio.sleep(0)  # closed connections disappear one pass of the event loop later


async def _send(plan: LoadPlan, askers: LoadClients, over: asyncio.Event) -> None:
    chance, due = random.Random(plan.seed), monotonic()  # noqa: S311 - a load
    end = due + plan.seconds
    while (due := due + chance.expovariate(plan.rate)) < end and not over.is_set():
        await asyncio.sleep(max(0.0, due - monotonic()))
        askers.ask(due)
        askers.give_up(due - PATIENCE)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Pause garbage collection: one collection takes as long as several requests."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def summarize(plan: LoadPlan, told: list[TimedAnswer]) -> dict[str, Any]:
    """Figures, times in milliseconds. ``added``: the latency less the worker's time. It contains ``lag``, the
    delay with which requests were sent."""
    good = [each for each in told if each.status == 200]
    limit = math.inf if plan.deadline_ms is None else plan.deadline_ms / 1000
    return {
        "model": plan.model,
        "rate": plan.rate,
        "seconds": plan.seconds,
        "requests": len(told),
        "answered": len(good),
        "statuses": {
            str(status): count for status, count in sorted(Counter(each.status for each in told).items())
        },
        "kept": sum(each.seconds <= limit for each in good) / len(told) if told else None,
        "latency_ms": _quantiles([each.seconds for each in good]),
        "served_ms": _quantiles([each.served for each in good]),
        "queued_ms": _quantiles([each.queued for each in good]),
        "lag_ms": _quantiles([each.lag for each in told]),
        "added_ms": _quantiles([each.seconds - each.served for each in good]),
        "overhead_ms": _quantiles([each.seconds - each.served - each.queued for each in good]),
    }


def _quantiles(seconds: list[float]) -> dict[str, float]:
    if not seconds:
        return {}
    found = np.quantile(np.array(seconds), _QUANTILES) * 1000
    return {f"p{100 * q:g}": round(float(value), 3) for q, value in zip(_QUANTILES, found, strict=True)}


async def _inquiry(upstream: Upstream, plan: LoadPlan) -> UpstreamRequest:
    """A request with ones in every input as bytes; open dimensions have length 1."""
    own = [(b"Authorization", f"Bearer {plan.key}".encode())]
    inputs = await _inputs(upstream, UpstreamRequest("GET", f"/v2/models/{plan.model}", own, b""))
    tensors = [_ones(each) for each in inputs]
    documents = [each.document() | {"parameters": {"binary_data_size": len(each.data)}} for each in tensors]
    head = json.dumps({"inputs": documents, "parameters": {"binary_data_output": True}}).encode()
    own += [(HEADER_LENGTH.encode(), str(len(head)).encode()), (b"Content-Type", b"application/octet-stream")]
    if plan.deadline_ms is not None:
        own.append((b"X-Deadline-Ms", f"{plan.deadline_ms:g}".encode()))
    body = b"".join((head, *(bytes(each.data) for each in tensors)))
    return UpstreamRequest("POST", f"/v2/models/{plan.model}/infer", own, body)


async def _inputs(upstream: Upstream, inquiry: UpstreamRequest) -> list[Signature]:
    try:
        reply = await upstream.ask(inquiry)
        try:
            body = b"".join([part async for part in reply.content])
        finally:
            reply.close()
    except (Unreachable, CutOff) as error:
        raise NoTarget(f"{upstream.url} does not answer: {error}") from error
    if reply.status != 200:
        raise NoTarget(
            f"{upstream.url}{inquiry.target}: status {reply.status}: {body[:300].decode(errors='replace')}"
        )
    found = _signatures(body, f"{upstream.url}{inquiry.target}")
    if not found:
        raise NoTarget(
            f"{upstream.url}{inquiry.target}: this model takes no tensors, or no unit has loaded it yet"
        )
    return found


def _signatures(body: bytes, where: str) -> list[Signature]:
    try:
        found = [Signature.of(each) for each in parse_json(body)["inputs"]]
        sizes = [DATATYPES[each.datatype].itemsize * math.prod(_shape(each)) for each in found]
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise NoTarget(f"{where}: the server is not a gateway: {error!r}") from error
    if sum(sizes) > _LARGEST:
        raise NoTarget(f"{where}: a request would have {sum(sizes)} bytes, at most {_LARGEST} are allowed")
    return found


def _shape(signature: Signature) -> tuple[int, ...]:
    return tuple(max(1, size) for size in signature.shape)


def _ones(signature: Signature) -> Tensor:
    return Tensor.of(signature.name, np.ones(_shape(signature), DATATYPES[signature.datatype]))
