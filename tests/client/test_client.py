"""The client against a real server on a real socket."""

from __future__ import annotations

import http.server
import json
import threading
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from api.serving import serving
from api_world import START, definition
from kept_models import NEW, OLD, ModelDesk, measured

from mirage.api.port import Inquiries
from mirage.client import Client, ClientError, DaemonUnreachable, Refusal
from mirage.domain.tags import owned_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from api_world import World


@pytest.fixture
def client(world: World) -> Client:
    return Client(str(world.socket))


def test_a_chain_is_created_looked_at_and_commanded(client: Client) -> None:
    answer = client.create_chain(definition())
    assert answer.chain is not None
    assert answer.id == answer.chain.id == owned_id("train-k3q9", answer.chain.owner)
    chain = client.chain("train")  # by its name, too
    assert chain == client.chain("train-k3q9") == client.chains()[0]
    assert (chain.status, chain.request.limit, chain.request.nodes, chain.links) == ("active", 3_600, 1, ())
    assert not chain.over
    assert client.pause("train").chain is not None
    assert client.chain("train").status == "paused"
    assert client.resume("train").sentence
    assert client.chain("train").status == "active"
    client.cancel("train")
    assert client.chain("train").over


def test_an_explanation_has_the_journal_newest_first(client: Client) -> None:
    client.create_chain(definition())
    client.pause("train")
    explanation = client.explain("train", limit=5)
    assert explanation.sentence == "hold: it is early"
    assert [entry.kind for entry in explanation.entries] == ["command", "command"]
    assert "pause" in explanation.entries[0].text
    assert explanation.entries[0].time == datetime.fromtimestamp(START, UTC)


def test_a_page_tells_the_state_of_the_loop(client: Client) -> None:
    page = client.chain_page()
    assert page.time == datetime.fromtimestamp(START, UTC)
    assert page.chains == ()


def test_models_are_compared_promoted_and_rolled_back(world: World) -> None:
    past = (measured("xgboost", True),)
    inquiries = Inquiries(lambda question: Future(), lambda name: None, lambda alike: past, lambda span: past)
    with serving(world, models=ModelDesk(), inquiries=inquiries) as served:
        client = Client(str(served.socket))
        assert [(each.version, each.shadow, bool(each.damage)) for each in client.predictors().models] == [
            (OLD, False, False),
            (NEW, True, True),
        ]
        (result,) = client.shadow_results(86_400)
        assert (result.predictor, result.in_charge, result.coverage, result.gain) == ("xgboost", True, 0.8, None)
        with pytest.raises(Refusal) as refused:
            client.promote("xgboost", NEW)
        assert refused.value.status == 409
        assert client.promote("xgboost", NEW, force=True).model.version == NEW
        assert client.roll_back("xgboost").model.version == OLD
        with pytest.raises(Refusal) as unknown:
            client.roll_back("../chains")
        assert unknown.value.status == 404


def test_a_name_with_a_slash_stays_within_its_place(client: Client) -> None:
    with pytest.raises(Refusal) as refused:
        client.chain("../predictors")
    assert refused.value.status == 404


def test_the_daemons_words_are_the_error(client: Client) -> None:
    with pytest.raises(Refusal, match=r"request\.nodes: expected 1 to 1000000") as refused:
        client.create_chain(definition(request=definition()["request"] | {"nodes": 0}))
    assert refused.value.status == 422


def test_no_daemon_is_an_error_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(DaemonUnreachable, match="mirage daemon"):
        Client(str(tmp_path / "none.sock")).chains()


def test_the_version(client: Client) -> None:
    from mirage import __version__

    assert client.version() == __version__


@contextmanager
def _server(handle: Callable[[http.server.BaseHTTPRequestHandler], None]) -> Iterator[str]:
    """Something on a loopback port that is no daemon of ours; its URL."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            handle(self)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _tell(handler: http.server.BaseHTTPRequestHandler, body: bytes, kind: str = "application/json") -> None:
    handler.send_response(200)
    handler.send_header("Content-Type", kind)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def test_over_tcp_the_token_says_who_asks_and_pages_follow_one_another() -> None:
    asked: list[tuple[str, str | None]] = []
    ids = iter("abc")

    def handle(handler: http.server.BaseHTTPRequestHandler) -> None:
        asked.append((handler.path, handler.headers["Authorization"]))
        one = {"id": next(ids), "name": "n", "owner": "o", "status": "active", "unheard_of": 1}
        following = None if one["id"] == "c" else f"after {one['id']}"
        _tell(handler, json.dumps({"chains": [one], "next": following}).encode())

    with _server(handle) as url:
        chains = Client(url, "secret").chains(everybody=True)
    assert [chain.id for chain in chains] == ["a", "b", "c"]
    assert asked == [
        ("/api/v1/chains?all=true", "Bearer secret"),
        ("/api/v1/chains?all=true&cursor=after+a", "Bearer secret"),
        ("/api/v1/chains?all=true&cursor=after+b", "Bearer secret"),
    ]


def test_what_is_no_mirage_daemon_is_said_to_be_none() -> None:
    body = b"<h1>It works!</h1>"
    with (
        _server(lambda handler: _tell(handler, body, "text/html")) as url,
        pytest.raises(DaemonUnreachable, match="not a Mirage daemon"),
    ):
        Client(url).chains()


def test_address_that_leads_elsewhere_is_said_to() -> None:
    def handle(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(307)
        handler.send_header("Location", "https://mirage.example.org/")
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    with _server(handle) as url, pytest.raises(DaemonUnreachable, match="status 307"):
        Client(url).chains()


def test_json_that_is_no_mirage_daemons_is_said_to_be_none() -> None:
    with (
        _server(lambda handler: _tell(handler, b'["surprise"]')) as url,
        pytest.raises(DaemonUnreachable, match="Mirage daemon"),
    ):
        Client(url).chains()


def test_what_a_gateway_says_is_a_refusal_with_its_status() -> None:
    def handle(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_error(502)

    with _server(handle) as url, pytest.raises(Refusal, match="status 502") as refused:
        Client(url).chains()
    assert refused.value.status == 502


def test_events_go_on_after_the_last_one_known() -> None:
    heard: list[Any] = []

    def handle(handler: http.server.BaseHTTPRequestHandler) -> None:
        heard.append(handler.headers["Last-Event-ID"])
        _tell(handler, b': beat\n\nid: 8\nevent: outcome\ndata: {"text":\ndata: "x"}\n\n', "text/event-stream")

    with _server(handle) as url:
        (event,) = Client(url).events(after="7")
    assert heard == ["7"]
    assert (event.id, event.kind, event.data) == ("8", "outcome", {"text": "x"})


@pytest.mark.parametrize("text", ["http://", "http://host/path", "http://host:port", "https://h?x=1"])
def test_an_address_that_cannot_be_meant(text: str) -> None:
    with pytest.raises(ClientError):
        Client(text)
