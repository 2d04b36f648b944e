"""Send requests at random times (Poisson), each when it is due, whether or not earlier ones are answered.

A latency counts from the time at which the request was due. A delay of the client itself therefore counts as
waiting (no coordinated omission).
"""

from __future__ import annotations

import asyncio
import gc
import json
import math
import random
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np

from mirage.allocation.inference.serving.askers import PATIENCE, Askers, Told, encode
from mirage.allocation.inference.serving.openinference import HEADER_LENGTH
from mirage.allocation.inference.serving.tensors import DATATYPES, Signature, Tensor
from mirage.allocation.inference.serving.upstream import CutOff, Inquiry, Unreachable, Upstream
from mirage.documenttext import parse_json
from mirage.domain.errors import MirageError

if TYPE_CHECKING:
    from collections.abc import Iterator

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


async def drive(plan: LoadPlan, over: asyncio.Event | None = None) -> list[Told]:
    """Send all requests, or until ``over``, and wait for all answers. Raises ``NoTarget`` and ``ValueError``.

    Run it in a ``fine_loop``.
    """
    upstream = Upstream(plan.url, within=PATIENCE)
    try:
        request = encode(await _inquiry(upstream, plan), upstream.host)
        askers = Askers(upstream.host, upstream.port, upstream.tls, request)
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


async def _send(plan: LoadPlan, askers: Askers, over: asyncio.Event) -> None:
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


def summarize(plan: LoadPlan, told: list[Told]) -> dict[str, Any]:
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


async def _inquiry(upstream: Upstream, plan: LoadPlan) -> Inquiry:
    """A request with ones in every input as bytes; open dimensions have length 1."""
    own = [(b"Authorization", f"Bearer {plan.key}".encode())]
    inputs = await _inputs(upstream, Inquiry("GET", f"/v2/models/{plan.model}", own, b""))
    tensors = [_ones(each) for each in inputs]
    documents = [each.document() | {"parameters": {"binary_data_size": len(each.data)}} for each in tensors]
    head = json.dumps({"inputs": documents, "parameters": {"binary_data_output": True}}).encode()
    own += [(HEADER_LENGTH.encode(), str(len(head)).encode()), (b"Content-Type", b"application/octet-stream")]
    if plan.deadline_ms is not None:
        own.append((b"X-Deadline-Ms", f"{plan.deadline_ms:g}".encode()))
    body = b"".join((head, *(bytes(each.data) for each in tensors)))
    return Inquiry("POST", f"/v2/models/{plan.model}/infer", own, body)


async def _inputs(upstream: Upstream, inquiry: Inquiry) -> list[Signature]:
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
