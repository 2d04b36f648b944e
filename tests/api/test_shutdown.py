"""A server that ends answers what waits: nothing is cancelled, no traceback is logged."""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from api_world import call, definition

from mirage.api.feed import Feed
from mirage.api.server import ApiServer
from mirage.client.client import Client
from mirage.store.opening import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from api_world import World


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No error is logged."""
    with caplog.at_level(logging.ERROR):
        yield
    assert caplog.records == []


def stopped_while_waiting(server: ApiServer, path: Path, method: str, target: str, begun: threading.Event) -> Any:
    """The answer to a request that still waits as the server ends."""
    server.start()
    with ThreadPoolExecutor(1) as threads:
        answer = threads.submit(call, str(path), method, target, None)
        assert begun.wait(60)
        server.stop()
        return answer.result(60)


@pytest.mark.usefixtures("quiet")
def test_waiting_agent_gets_no_order_as_the_server_ends(world: World, tmp_path: Path) -> None:
    begun = threading.Event()

    class Desk(type(world.desk)):  # type: ignore[misc]
        def next_order(self, user: str, timeout: float) -> None:
            begun.set()

    server = ApiServer(replace(world.service, desk=Desk(lambda *_: None)), tmp_path / "sock")
    since = time.monotonic()
    target = "/api/v1/agent/order?wait=30"
    assert stopped_while_waiting(server, tmp_path / "sock", "GET", target, begun) == (204, None)
    assert time.monotonic() - since < 25


@pytest.mark.usefixtures("quiet")
def test_server_that_ended_once_lets_agents_wait_again(world: World, tmp_path: Path) -> None:
    server = ApiServer(world.service, tmp_path / "sock")
    for _ in range(2):
        server.start()
        since = time.monotonic()
        assert call(str(tmp_path / "sock"), "GET", "/api/v1/agent/order?wait=0.5", None) == (204, None)
        assert time.monotonic() - since >= 0.5
        server.stop()


@pytest.mark.usefixtures("quiet")
def test_request_that_waits_for_the_loop_is_answered_as_the_server_ends(world: World, tmp_path: Path) -> None:
    begun = threading.Event()

    def ask(_: object) -> Future[str]:
        begun.set()
        return Future()

    world.call("POST", "/api/v1/chains", definition())
    server = ApiServer(replace(world.service, ask=ask), tmp_path / "sock")
    (chain,) = world.call("GET", "/api/v1/chains")[1]["chains"]
    target = f"/api/v1/chains/{chain['id']}/pause"
    status, problem = stopped_while_waiting(server, tmp_path / "sock", "POST", target, begun)
    assert (status, problem["status"]) == (503, 503)


@pytest.mark.usefixtures("quiet")
def test_stream_ends_as_the_server_ends(world: World, tmp_path: Path) -> None:
    begun = threading.Event()

    class Heard(Feed):
        def listen(self, interest: Any) -> Any:
            begun.set()
            return super().listen(interest)

    store = open_store(f"sqlite:///{tmp_path / 'm.db'}")
    service = replace(world.service, feed=Heard(lambda _: ""), journal=store.journal)
    server = ApiServer(service, tmp_path / "sock")
    server.start()
    with ThreadPoolExecutor(1) as threads:
        lines = threads.submit(list, Client(str(tmp_path / "sock")).events())
        assert begun.wait(60)
        server.stop()
        assert [event.kind for event in lines.result(60)] == ["cycle"]
    store.close()
