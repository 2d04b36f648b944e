"""Requests that wait for a turn, and whose clients leave: bounded for each caller, at no cost to others."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest
from api_world import call, definition
from network_world import CHAINS, slurm_token

from mirage.api.access import concurrency
from mirage.api.access.concurrency import ActiveRequest, Concurrency, TooManyAtOnce
from mirage.api.conventions import threads
from mirage.api.conventions.caching import KeptBodies
from mirage.api.listening import Listening
from mirage.api.server import ApiServer
from mirage.boundedhttp import has_left
from mirage.control.commands import CommandQueue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from network_world import Answer, Network

    from mirage.domain.command import PendingCommand

ENOUGH = 600
"""More requests than the server ever held for all users."""


@dataclass
class Cycles:
    """A loop that applies eight commands of a user in each cycle, and takes a second for one."""

    queue: CommandQueue = field(default_factory=CommandQueue)
    applied: Counter[str] = field(default_factory=Counter)
    taken: list[PendingCommand] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self.ended.wait(1):
            self.take()
            self.apply()

    def take(self) -> None:
        self.taken += self.queue.take() + self.queue.take_more()

    def apply(self) -> None:
        while self.taken:
            asked = self.taken.pop(0)
            self.applied[asked.command.by] += 1
            asked.answer.set_result("done")

    @property
    def waiting(self) -> int:
        return len(self.queue._asked)


@dataclass
class Scene:
    """A server whose commands wait for these cycles, a chain for each user, and how they ask."""

    network: Network
    cycles: Cycles
    chains: dict[str, str]

    def ask(self, user: str, method: str, path: str, **headers: str) -> Answer:
        return self.network.call(method, path, None, Authorization=f"Bearer {slurm_token(user)}", **headers)

    def command(self, user: str, word: str = "pause", **headers: str) -> Answer:
        return self.ask(user, "POST", self.path(user, word), **headers)

    def path(self, user: str, word: str = "pause") -> str:
        return f"{CHAINS}/{self.chains[user]}/{word}"

    def begin(self, user: str, target: str = "", count: int = 1, source: str = "127.0.0.1") -> socket.socket:
        """A connection on which a request, or several, are asked and nothing is read."""
        host, port = self.network.server.url.removeprefix("http://").split(":")
        line = socket.create_connection((host, int(port)), 30, (source, 0))
        proof = f"Authorization: Bearer {slurm_token(user)}\r\n" if user else ""
        method = "GET" if target else "POST"
        request = f"{method} {target or self.path(user)} HTTP/1.1\r\nHost: x\r\n{proof}Content-Length: 0\r\n\r\n"
        line.sendall(request.encode() * count)
        return line

    def begin_local(self) -> socket.socket:
        """The same by this process's user, on the socket."""
        line = socket.socket(socket.AF_UNIX)
        line.settimeout(30)
        line.connect(str(self.network.server._path))
        line.sendall(f"POST {self.path('')} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n".encode())
        return line

    def await_queue(self, length: int) -> None:
        until(lambda: self.cycles.waiting == length)


def until(is_so: Any) -> None:
    end = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)


@contextlib.contextmanager
def serving(network: Network, cycles: Cycles, **changes: Any) -> Iterator[Scene]:
    chains = {}
    for user in ("ada", "bob"):
        made = network.with_token("POST", CHAINS, slurm_token(user), definition(f"work-{user}"))
        chains[user] = made.body["id"]
    chains[""] = call(str(network.server._path), "POST", CHAINS, definition("work-local"))[1]["id"]
    service = replace(network.server.service, ask=cycles.queue.put, **changes)
    server = ApiServer(service, network.server._path.with_suffix(".busy"), Listening.of("127.0.0.1:0"))
    server.start()
    try:
        yield Scene(replace(network, server=server), cycles, chains)
    finally:
        server.stop()


@pytest.fixture
def busy(network: Network) -> Iterator[Scene]:
    """A loop during a cycle."""
    cycles = Cycles()
    with serving(network, cycles) as scene:
        thread = threading.Thread(target=cycles.run)
        thread.start()
        yield scene
        cycles.ended.set()
        thread.join()


@pytest.fixture
def still(network: Network) -> Iterator[Scene]:
    """A loop that does what the test says."""
    with serving(network, Cycles()) as scene:
        yield scene


# Others


@pytest.mark.parametrize("place", ["network", "socket"])
def test_abandoned_commands_of_one_user_keep_nobody_out(busy: Scene, place: str) -> None:
    answers: list[int] = []
    lines: list[socket.socket] = []
    for number in range(ENOUGH):
        lines.append(busy.begin_local() if place == "socket" else busy.begin("ada"))
        if len(lines) > 20:
            lines.pop(0).close()
        if number % 50 == 49:
            answers += [
                busy.network.call("GET", "/healthz").status,
                busy.ask("bob", "GET", "/api/v1/me").status,
                busy.ask("bob", "GET", CHAINS).status,
            ]
        if number % 200 == 199:
            answers.append(busy.command("bob").status)
    for line in lines:
        line.close()
    assert set(answers) == {200}
    assert busy.cycles.applied["bob"] == ENOUGH // 200


def test_waiting_commands_of_one_user_are_bounded_and_others_go_on(
    still: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(concurrency, "MOST_OF_ONE", 20)
    with contextlib.ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(still.begin("ada"))
        still.await_queue(20)
        refused = still.command("ada")
        assert (refused.status, refused.headers["retry-after"]) == (429, "2")
        assert "in progress" in refused.body["detail"]
        assert still.ask("ada", "GET", "/healthz").status == 200
        assert still.network.call("GET", "/healthz").status == 200
        assert still.ask("bob", "GET", "/api/v1/me").status == 200
        with still.begin("bob"):
            still.await_queue(21)
    still.await_queue(0)
    assert still.ask("ada", "GET", "/api/v1/me").status == 200


def test_few_users_cannot_take_all_places() -> None:
    places, taken = Concurrency(512), Counter[str]()
    for _ in range(1_000):
        for user in range(20):
            with contextlib.suppress(TooManyAtOnce):
                places.enter(ActiveRequest(lambda: None), f"user{user}")
                taken[f"user{user}"] += 1
    assert max(taken.values()) <= 128
    assert taken.total() < 512 - 20
    for _ in range(10):
        places.enter(ActiveRequest(lambda: None), "bob")


def test_places_of_many_users_are_bounded_in_all() -> None:
    places, held = Concurrency(64), 0
    for user in range(1_000):
        with contextlib.suppress(TooManyAtOnce):
            places.enter(ActiveRequest(lambda: None), f"user{user}")
            held += 1
    assert held == 64


def test_strangers_take_no_place_of_users() -> None:
    places, ended = Concurrency(8), list[str]()
    for address in range(8):
        places.enter(ActiveRequest(lambda: None), "", f"10.0.0.{address}")
    with pytest.raises(TooManyAtOnce):
        places.enter(ActiveRequest(lambda: None), "", "10.0.1.1")
    places.enter(ActiveRequest(lambda: None), "bob")
    slow = ActiveRequest(lambda: ended.append("slow"), awaits_body=True)
    with pytest.raises(TooManyAtOnce):
        places.enter(slow, "", "10.0.1.1")
    assert ended == []


def test_request_counts_for_its_user_once_that_is_known() -> None:
    places = Concurrency(16)
    active = ActiveRequest(lambda: None)
    places.enter(active, "", "10.0.0.1")
    active.identify("ada")
    assert active.place is not None
    assert active.place[1] == "ada"
    for _ in range(3):  # a quarter of what is left: the first takes none of them any more
        places.enter(ActiveRequest(lambda: None), "", "10.0.0.1")
    places.leave(active)
    for _ in range(3):
        places.enter(ActiveRequest(lambda: None), "ada")


def test_newest_request_ends_the_oldest_whose_body_has_not_come() -> None:
    places, ended = Concurrency(4), list[int]()
    slow = [ActiveRequest(lambda k=k: ended.append(k), awaits_body=True) for k in range(3)]
    for each in slow:
        places.enter(each, "", "10.0.0.1")
    assert ended == [0, 1]
    assert slow[0].displaced
    for each in slow:
        places.leave(each)


def test_strangers_who_wait_keep_out_nobody_at_their_address(network: Network) -> None:
    go = threading.Event()
    with (
        serving(network, Cycles(), readiness=lambda: go.wait(60) and {}) as scene,
        contextlib.ExitStack() as stack,
    ):
        for _ in range(200):
            stack.enter_context(scene.begin("", "/readyz"))
        statuses = {scene.network.call("GET", "/healthz").status, scene.ask("bob", "GET", "/api/v1/me").status}
        assert statuses == {200}
        go.set()


# Those who leave


@pytest.mark.parametrize("family", [socket.AF_UNIX, socket.AF_INET])
def test_client_that_leaves_is_seen_before_its_request_is_read(family: int) -> None:
    with socket.socket(family) as listening:
        listening.bind("" if family == socket.AF_UNIX else ("127.0.0.1", 0))
        listening.listen()
        client = socket.socket(family)
        client.connect(listening.getsockname())
        client.sendall(b"GET /healthz HTTP/1.1\r\n")
        with listening.accept()[0] as connection:
            assert not has_left(connection)
            client.close()
            until(lambda: has_left(connection))


def test_command_whose_client_leaves_is_withdrawn(still: Scene) -> None:
    lines_before = len(still.network.store.audit.read())
    with still.begin("ada"):
        still.await_queue(1)
    still.await_queue(0)
    still.cycles.take()
    assert still.cycles.taken == []
    assert len(still.network.store.audit.read()) == lines_before
    key = {"Idempotency-Key": "again"}
    with ThreadOf(lambda: still.command("ada", **key)) as again:
        still.await_queue(1)
        still.cycles.take()
        still.cycles.apply()
    assert again.answer.status == 200


def test_command_that_is_taken_is_audited_and_kept_though_its_client_leaves(still: Scene) -> None:
    token, path = slurm_token("ada"), still.path("ada")
    host, port = still.network.server.url.removeprefix("http://").split(":")
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nIdempotency-Key: one\r\n\r\n"
    with socket.create_connection((host, int(port)), 30) as line:
        line.sendall(head.encode())
        still.await_queue(1)
        still.cycles.take()
    lines_before = len(still.network.store.audit.read())
    still.cycles.apply()
    until(lambda: len(still.network.store.audit.read()) == lines_before + 1)
    again = still.command("ada", **{"Idempotency-Key": "one"})
    while again.status == 409:  # the first answer is just being kept
        again = still.command("ada", **{"Idempotency-Key": "one"})
    assert (again.status, again.headers["idempotent-replayed"]) == (200, "true")
    assert still.cycles.applied["ada"] == 1


def test_first_of_several_requests_on_a_connection_ends_as_its_client_leaves(still: Scene) -> None:
    with still.begin("ada", count=3):
        still.await_queue(1)
    began = time.monotonic()
    still.await_queue(0)
    assert time.monotonic() - began < 20, "long before its time is over"


def test_command_that_is_not_taken_in_time_is_withdrawn(network: Network) -> None:
    with serving(network, Cycles(), patience=0.1) as scene:
        answer = scene.command("ada")
        assert answer.status == 504
        assert "withdrawn" in answer.body["detail"]
        assert scene.cycles.waiting == 0


def test_abandoned_queries_hold_no_more_threads_than_their_share(network: Network) -> None:
    go, running, most = threading.Event(), Counter[str](), Counter[str]()

    def entries(chain: Any, limit: int) -> tuple[()]:
        running["all"] += 1
        most["all"] = max(most["all"], running["all"])
        assert go.wait(60)
        running["all"] -= 1
        return ()

    with serving(network, Cycles(), entries=entries) as scene:
        for _ in range(5):
            lines = [scene.begin("ada", f"{CHAINS}/{scene.chains['ada']}/explain") for _ in range(8)]
            until(lambda: running["all"] == threads.MOST_OF_ONE)
            for line in lines:
                line.close()
            time.sleep(0.1)
        assert most["all"] == threads.MOST_OF_ONE
        assert scene.ask("bob", "GET", "/api/v1/me").status == 200
        go.set()
        until(lambda: running["all"] == 0)


def test_document_for_which_nobody_waits_is_not_made() -> None:
    go, made = threading.Event(), list[int]()

    def make(number: int) -> tuple[bytes, None]:
        assert go.wait(60)
        made.append(number)
        return json.dumps(number).encode(), None

    async def scene() -> None:
        kept, state = KeptBodies(), object()
        asking = [
            asyncio.ensure_future(kept.get(state, "ada", number, lambda number=number: make(number)))
            for number in range(20)
        ]
        await asyncio.sleep(0.2)
        for each in asking[:19]:
            each.cancel()
        await asyncio.sleep(0.1)
        go.set()
        assert (await asking[19]).body == b"19"
        assert (await kept.get(state, "ada", 7, lambda: make(7))).body == b"7"

    asyncio.run(scene())
    assert len(made) <= threads.MOST_OF_ONE + 2


class ThreadOf:
    """A request in a thread; its answer is there at the end."""

    answer: Answer

    def __init__(self, ask: Any) -> None:
        self._thread = threading.Thread(target=self._run, args=(ask,))

    def _run(self, ask: Any) -> None:
        self.answer = ask()

    def __enter__(self) -> ThreadOf:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join(60)
