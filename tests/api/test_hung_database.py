"""A database that hangs delays requests that need it, and nothing else."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

import pytest
from api_world import definition
from fastapi.routing import APIRoute
from serving import serving

from mirage.api.app import create_app
from mirage.api.conventions import threads
from mirage.api.conventions.threads import SharedCheck, query, run_in_thread

if TYPE_CHECKING:
    from collections.abc import Iterator

    from api_world import World

PATIENCE = 10.0
"""Far more than an address takes that needs no database, far less than all that hangs."""


class Hung:
    """A database that hangs until it is released."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self._lock = threading.Lock()
        self.begun = 0
        self.now: Counter[str] = Counter()
        """Queries in progress, by caller."""

    def ask(self, caller: str = "") -> dict[str, str]:
        with self._lock:
            self.begun += 1
            self.now[caller] += 1
        assert self.go.wait(60)
        return {"store": "hangs"}


@pytest.fixture
def hung() -> Iterator[Hung]:
    made = Hung()
    yield made
    made.go.set()


def elapsed(world: World, path: str) -> float:
    began = time.monotonic()
    assert world.call("GET", path)[0] == 200
    return time.monotonic() - began


@pytest.mark.parametrize("path", ["/readyz", "/api/v1/chains/train-k3q9/explain"])
def test_hung_database_leaves_other_addresses_alone(world: World, hung: Hung, path: str) -> None:
    assert world.call("POST", "/api/v1/chains", definition())[0] == 201
    with (
        serving(world, readiness=hung.ask, entries=lambda chain, limit: hung.ask() and ()) as served,
        ThreadPoolExecutor(60) as callers,
    ):
        waiting = [callers.submit(served.call, "GET", path) for _ in range(60)]
        while not hung.begun:
            time.sleep(0.01)
        time.sleep(0.5)
        for other in ("/api/v1/me", "/api/v1/cluster", "/api/v1/queue", "/api/v1/chains", "/healthz"):
            assert elapsed(served, other) < PATIENCE
        assert hung.begun <= threads.MOST_OF_ONE
        hung.go.set()
        expected = 503 if path == "/readyz" else 200
        assert {answered.result()[0] for answered in waiting} == {expected}
        assert path != "/readyz" or hung.begun == 1


def test_readiness_check_holds_for_a_second(world: World) -> None:
    begun = []
    with serving(world, readiness=lambda: begun.append(1) or {}) as served:
        first = time.monotonic()
        while len(begun) < 3:
            assert served.call("GET", "/readyz")[0] == 200
            assert time.monotonic() - first < 60
        assert time.monotonic() - first >= 2


def test_failed_check_is_told_to_all_and_tried_again() -> None:
    calls: list[int] = []

    def failing() -> int:
        calls.append(1)
        raise OSError("gone")

    async def ask() -> None:
        check = SharedCheck(failing)
        found = await asyncio.gather(*(check.get() for _ in range(20)), return_exceptions=True)
        assert {type(each) for each in found} == {OSError}
        await asyncio.sleep(1.1)
        with pytest.raises(OSError, match="gone"):
            await check.get()

    asyncio.run(ask())
    assert len(calls) == 2


def test_queries_have_a_share_of_each_caller_and_of_all(hung: Hung) -> None:
    async def ask() -> None:
        users = [f"user{number}" for number in range(9)]
        waiting = [asyncio.ensure_future(query(user, hung.ask, user)) for user in users for _ in range(20)]
        while hung.begun < threads.MOST_OF_QUERIES:
            await asyncio.sleep(0.01)
        assert await asyncio.wait_for(run_in_thread("user0", lambda: 7), PATIENCE) == 7
        assert hung.begun == threads.MOST_OF_QUERIES
        assert max(hung.now.values()) <= threads.MOST_OF_ONE
        hung.go.set()
        assert len(await asyncio.gather(*waiting)) == 9 * 20

    asyncio.run(ask())
    assert hung.begun == 9 * 20


def test_no_endpoint_takes_a_thread_beside_the_shares(world: World) -> None:
    routes = list(routes_of(create_app(world.service)))
    assert len(routes) > 30
    assert [route.path for route in routes if not iscoroutinefunction(route.endpoint)] == []


def routes_of(router: Any) -> Iterator[APIRoute]:
    """Those of the routers that it includes as well."""
    for route in router.routes:
        if isinstance(route, APIRoute):
            yield route
        elif hasattr(route, "original_router"):
            yield from routes_of(route.original_router)
