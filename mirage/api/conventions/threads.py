"""Threads of the server: bounded per caller, with a separate pool for database queries.

A hanging database blocks each query for seconds. Without bounds, the queries of one caller could block all
threads. Requests that wait for their share hold no thread.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial, wraps
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar
from fastapi.routing import APIRoute

from mirage.api.access.concurrency import active_request

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mirage.api.access.caller import Caller

P = ParamSpec("P")
T = TypeVar("T")

MOST, MOST_OF_QUERIES = 32, 16
"""Threads of all callers."""
MOST_OF_ONE = 4
"""Threads of one caller, of either kind."""
_HOLDS = 1.0
"""Validity of a check's result, in seconds."""


class _Threads:
    """Threads of one kind, of one event loop."""

    def __init__(self, most: int) -> None:
        self._limiter = CapacityLimiter(most)
        self._turns: dict[str, asyncio.Semaphore] = {}
        self._asking: Counter[str] = Counter()

    async def run(self, caller: str, work: Callable[[], T]) -> T:
        turn = self._turns.setdefault(caller, asyncio.Semaphore(MOST_OF_ONE))
        self._asking[caller] += 1
        try:
            async with turn, self._limiter:
                with (
                    active_request().kept()
                ):  # a thread cannot be cancelled: the request keeps its place until it ends
                    return await to_thread.run_sync(work, limiter=CapacityLimiter(1))
        finally:
            self._asking[caller] -= 1
            if not self._asking[caller]:
                del self._asking[caller], self._turns[caller]


_COMMON: RunVar[_Threads] = RunVar("mirage.threads")
_QUERIES: RunVar[_Threads] = RunVar("mirage.queries")


async def run_in_thread(caller: str, work: Callable[P, T], /, *args: P.args, **options: P.kwargs) -> T:
    """Run ``work`` in a thread of the caller's share. ``caller``: a user name, or an address."""
    return await _threads(_COMMON, MOST).run(caller, partial(work, *args, **options))


async def query(caller: str, work: Callable[P, T], /, *args: P.args, **options: P.kwargs) -> T:
    """Run ``work``, which queries the database, in a thread of the caller's share."""
    return await _threads(_QUERIES, MOST_OF_QUERIES).run(caller, partial(work, *args, **options))


def _threads(kind: RunVar[_Threads], most: int) -> _Threads:
    found = kind.get(None)
    if found is None:
        found = _Threads(most)
        kind.set(found)
    return found


class SharedCheck(Generic[T]):
    """A check that runs once for all waiting requests; its result is valid for one second.

    For endpoints without authentication. For the server's event loop only.
    """

    def __init__(self, check: Callable[[], T]) -> None:
        self._check = check
        self._result: asyncio.Future[T] | None = None
        self._ended = float("-inf")

    async def get(self) -> T:
        """Return the result of the running or the last check."""
        now = asyncio.get_running_loop().time()
        if self._result is None or (self._result.done() and now - self._ended > _HOLDS):
            self._result = asyncio.ensure_future(self._run())
        return await asyncio.shield(self._result)

    async def _run(self) -> T:
        try:
            return await to_thread.run_sync(self._check, limiter=CapacityLimiter(1))
        finally:
            self._ended = asyncio.get_running_loop().time()


class ThreadRoute(APIRoute):
    """A route whose endpoint, unless a coroutine, runs in a thread of the caller's share."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, _shared(endpoint, run_in_thread), **options)


class QueryRoute(APIRoute):
    """The same for an endpoint that queries the database."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, _shared(endpoint, query), **options)


def _shared(endpoint: Callable[..., Any], run: Callable[..., Awaitable[Any]]) -> Callable[..., Any]:
    if iscoroutinefunction(endpoint):
        return endpoint

    @wraps(endpoint)
    async def shared(**values: Any) -> Any:
        caller: Caller | None = values.get("caller")
        return await run(caller.name if caller is not None else "", endpoint, **values)

    return shared
