"""The event stream: visibility, reconnects, and slow listeners."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import pwd
import socket
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from network_world import Network, network
from serving import serving

from mirage.api import feed as feed_module
from mirage.api.access.caller import Scope
from mirage.api.access.policy import AccessPolicy
from mirage.api.access.rates import RateLimiter
from mirage.api.feed import Feed, Interest, TooManyListeners
from mirage.api.routes import events as events_module
from mirage.domain.chain import Chain, ChainId, ChainRecord
from mirage.domain.decision import WaitForecast
from mirage.domain.job import JobRequest
from mirage.domain.journal import Entry, EntryKind
from mirage.store.opening import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from api_world import World

    from mirage.store.opening import Store

__all__ = ["network"]

ME = pwd.getpwuid(os.getuid()).pw_name
EVENTS = "/api/v1/events"
OWNERS = {ChainId("mine"): ME, ChainId("other"): "somebody"}


def record(name: str) -> ChainRecord:
    owner = OWNERS[ChainId(name)]
    return ChainRecord(Chain(ChainId(name), name, owner, JobRequest(name, owner, 3_600)))


class Stream:
    """Events of one connection, as a browser would read them."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self._response = response

    def line(self) -> str:
        return self._response.readline().decode().rstrip("\n")

    def event(self) -> dict[str, str]:
        found: dict[str, str] = {}
        while True:
            line = self.line()
            if line and not line.startswith(":"):
                name, _, value = line.partition(": ")
                found[name] = value
            elif "event" in found:
                return found

    def rest(self) -> bytes:
        return self._response.read()

    def text(self) -> str:
        """The text of the next journal entry."""
        while (event := self.event())["event"] == "cycle":
            pass
        return str(json.loads(event["data"])["text"])


@contextmanager
def listening(world: World, query: str = "", **headers: str) -> Iterator[Stream]:
    connection = http.client.HTTPConnection("localhost", timeout=30)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.settimeout(30)
    connection.sock.connect(str(world.socket))
    connection.request("GET", EVENTS + query, headers=headers)
    response = connection.getresponse()
    assert response.status == 200
    assert response.headers["Content-Type"].startswith("text/event-stream")
    try:
        yield Stream(response)
    finally:
        response.close()
        connection.close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(f"sqlite:///{tmp_path}/mirage.db")
    yield opened
    opened.close()


@pytest.fixture
def streaming(world: World, store: Store) -> Iterator[World]:
    feed = Feed(lambda chain: OWNERS.get(chain, ""))
    store.journal.listen(feed.stored)
    world.loop.records = [record("mine"), record("other")]
    world.loop.cycle()
    with serving(world, feed=feed, journal=store.journal) as served:
        yield served
        feed.close()


def happened(store: Store, *entries: Entry) -> None:
    for entry in entries:
        store.journal.write(entry)
    store.journal.flush()


def event(text: str, chain: str | None = "mine", kind: EntryKind = EntryKind.EVENT) -> Entry:
    return Entry(1_700_000_000, ChainId(chain) if chain else None, kind, text)


def test_lines_come_as_they_are_stored_with_the_journals_cursor(streaming: World, store: Store) -> None:
    with listening(streaming) as stream:
        assert stream.line() == "retry: 3000"
        first = stream.event()
        assert first["event"] == "cycle"
        assert json.loads(first["data"])["chains"] == {"active": 2}
        forecast = WaitForecast((0.1, 0.5, 0.9), (1_700_000_060.0, 1_700_000_120.0, 1_700_000_180.0))
        decided = Entry(1_700_000_000, ChainId("mine"), EntryKind.DECISION, "hold: early", 2, "quantile", forecast)
        happened(store, decided)
        heard = stream.event()
    [line] = store.journal.read()
    assert (heard["id"], heard["event"]) == (str(line.cursor), "decision")
    data = json.loads(heard["data"])
    assert (data["chain"], data["link"], data["text"]) == ("mine", 2, "hold: early")
    assert data["p50"] == "2023-11-14T22:15:20Z"


def test_who_comes_back_hears_what_was_missed_once(streaming: World, store: Store) -> None:
    happened(store, *(event(f"event {number}") for number in range(5)))
    second = store.journal.read()[-2].cursor
    with listening(streaming, **{"Last-Event-ID": str(second)}) as stream:
        assert [stream.text() for _ in range(3)] == ["event 2", "event 3", "event 4"]
        stream.event()
        happened(store, event("event 5"))
        assert stream.text() == "event 5"


def test_events_missed_lines_count_against_the_rate(streaming: World, store: Store) -> None:
    happened(store, *(event(f"event {number}") for number in range(500)))
    gate = replace(streaming.service.gate, rates=RateLimiter(0.001, 5))
    with serving(streaming, feed=streaming.service.feed, journal=store.journal, gate=gate) as bounded:
        with listening(bounded, **{"Last-Event-ID": "0"}) as stream:
            assert stream.text() == "event 0"
        assert bounded.call("GET", "/api/v1/me")[0] == 429


def test_cycles_are_told(streaming: World) -> None:
    assert streaming.service.feed is not None
    with listening(streaming) as stream:
        stream.event()
        streaming.service.feed.cycled(replace(streaming.loop.status, cycles=77))
        assert json.loads(stream.event()["data"])["cycle"] == 77


def test_a_stream_of_one_chain_and_some_kinds(streaming: World, store: Store) -> None:
    with listening(streaming, "?chain=mine&kind=outcome&kind=trouble") as stream:
        stream.event()
        happened(
            store,
            event("no", "other", EntryKind.OUTCOME),
            event("no"),
            event("no", None, EntryKind.TROUBLE),
            event("yes", "mine", EntryKind.TROUBLE),
        )
        assert stream.text() == "yes"
    status, problem = streaming.call("GET", f"{EVENTS}?chain=nix")
    assert (status, problem["status"]) == (404, 404)
    assert streaming.call("GET", f"{EVENTS}?kind=gossip")[0] == 422


def test_everybody_hears_of_own_chains_only() -> None:
    mine, other = feed_module.Interest("alice"), feed_module.Interest("root", every=True)
    for chain, owner, heard in [("a", "alice", True), ("b", "bob", False), (None, "", False), ("gone", "", False)]:
        assert mine.covers(event("x", chain), owner) is heard
        assert other.covers(event("x", chain), owner)


def test_a_cycle_tells_ordinary_users_nothing_of_others(world: World) -> None:
    from mirage.api.routes.events import cycle_event

    world.loop.records = [record("mine"), record("other")]
    world.loop.cycle()
    status = replace(
        world.loop.status, sentence="secret", explained={ChainId("mine"): "hold", ChainId("other"): "x"}
    )
    seen = cycle_event(status, feed_module.Interest(ME))
    assert (seen.sentence, seen.chains) == ("hold", {"active": 1})
    assert cycle_event(status, feed_module.Interest("root", every=True)).sentence == "secret"


@pytest.mark.parametrize("taken", ["right", "token", "session"])
def test_a_stream_ends_with_the_right_to_hear_it(
    network: Network, taken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events_module, "_CHECK_EVERY", 0.0)
    feed = network.server.service.feed
    assert feed is not None
    text, token = network.gate.tokens.create("ada", "for a test", Scope.OPERATE, 3_600)
    headers = {"Cookie": network.cookie(text)} if taken == "session" else {"Authorization": f"Bearer {text}"}
    host = urlsplit(network.server.url)
    connection = http.client.HTTPConnection(str(host.hostname), host.port, timeout=30)
    connection.request("GET", EVENTS, headers=headers)
    stream = Stream(connection.getresponse())
    stream.event()
    feed.cycled(network.loop.status)
    stream.event()
    if taken == "right":
        network.policies.append(AccessPolicy(users={"ada": None}))
    else:
        network.gate.tokens.revoke(token.token_id)
    feed.cycled(network.loop.status)
    assert stream.rest() == b""
    connection.close()


def test_silence_is_broken_now_and_then(streaming: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events_module, "HEARTBEAT", 0.01)
    with listening(streaming) as stream:
        stream.event()
        assert stream.line() == ": still here"


def test_nobody_may_open_streams_without_bound(
    streaming: World, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "MOST_OF_ONE", 1)
    with listening(streaming):
        status, problem = streaming.call("GET", EVENTS)
        assert status == 429
        assert "1 event streams open" in problem["detail"]


def test_feed_full_of_others_still_takes_a_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_module, "MOST_OF_ALL", 9)

    async def take_turns() -> None:
        feed = Feed(lambda chain: "")
        others = [feed.listen(Interest(name)) for name in ("mallory", "trudy", "eve") for _ in range(3)]
        for count in (1, 2):
            mine = feed.listen(Interest("ada"))
            assert sum([await each.next(0) is None for each in others]) == count
        with pytest.raises(TooManyListeners):
            feed.listen(Interest("mallory"))
        assert await mine.next(0) == []

    asyncio.run(take_turns())


def test_who_does_not_keep_up_is_cut_off_and_the_loop_does_not_wait(
    streaming: World, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "MOST_WAITING", 3)
    with listening(streaming) as stream:
        stream.event()
        happened(store, *(event(f"event {number}") for number in range(10_000)))
        heard = []
        while line := stream._response.readline().decode():
            heard += [line] if line.startswith("event: event") else []
    assert 3 <= len(heard) < 10_000, "the stream ends before all events were sent"
    assert store.journal.read(limit=1)[0].entry.text == "event 9999"


def test_a_daemon_without_a_feed_says_so(world: World) -> None:
    assert world.call("GET", EVENTS)[0] == 503
