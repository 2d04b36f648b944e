"""Input on a connection that differs from a friendly client's."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from serving_models import write_scale
from serving_site import KEYS, PATIENCE, Site, digest, tensor

from mirage import boundedhttp
from mirage.allocation.inference.serving import httpserver
from mirage.allocation.inference.serving.httpserver import HttpListenAddress, make_server

if TYPE_CHECKING:
    from collections.abc import Iterator

TEXT = f"""
[[model]]
name = "scale"
onnx = "scale.onnx"
[[unit]]
name = "cpu"
[[tenant]]
name = "alice"
keys = ["{digest("alice")}"]
"""
BODY = json.dumps(tensor([1, 2, 3, 4])).encode()
ANSWER = b'"data":[2.0,4.0,6.0,8.0]'


def head(*more: str, version: str = "1.1", length: int | None = len(BODY)) -> bytes:
    lines = [
        f"POST /v2/models/scale/infer HTTP/{version}",
        "Host: x",
        f"Authorization: Bearer {KEYS['alice']}",
        *more,
    ]
    lines += [f"Content-Length: {length}"] if length is not None else []
    return "\r\n".join([*lines, "", ""]).encode()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("wire")
    write_scale(folder / "scale.onnx")
    site = Site(folder, TEXT, gateway="largest_body_mb = 1")
    yield site.start()
    assert site.stop() == 0, site.said


class Wire:
    def __init__(self, url: str) -> None:
        host, _, port = url.removeprefix("http://").rpartition(":")
        self.socket = socket.create_connection((host, int(port)), PATIENCE)
        self.came = b""

    def send(self, *parts: bytes) -> None:
        for part in parts:
            self.socket.sendall(part)

    def until(self, found: bytes, times: int = 1) -> bytes:
        while self.came.count(found) < times:
            data = self.socket.recv(1 << 16)
            assert data, f"closed after {self.came!r}"
            self.came += data
        return self.came

    def closed(self) -> bytes:
        """All that comes before the end."""
        try:
            while data := self.socket.recv(1 << 16):
                self.came += data
        except ConnectionResetError:
            pass
        self.socket.close()
        return self.came


@pytest.fixture
def wire(site: Site) -> Iterator[Wire]:
    wire = Wire(site.url)
    yield wire
    wire.socket.close()


def test_one_request_after_the_other_on_one_connection(wire: Wire) -> None:
    for number in range(1, 4):
        wire.send(head() + BODY)
        wire.until(ANSWER, number)
    assert wire.came.count(b"HTTP/1.1 200 OK") == 3


def test_a_request_byte_by_byte(wire: Wire) -> None:
    for byte in head() + BODY:
        wire.send(bytes([byte]))
    assert wire.until(ANSWER).startswith(b"HTTP/1.1 200 OK")
    wire.send(head() + BODY)
    wire.until(ANSWER, 2)


def test_several_requests_at_once_are_answered_in_their_order(wire: Wire) -> None:
    other = json.dumps(tensor([0, 0, 0, 1])).encode()
    wire.send(
        head() + BODY + head(length=len(other)) + other + head() + BODY + b"GET /health/live HTTP/1.1\r\n\r\n"
    )
    came = wire.until(b'"live"')
    places = [
        came.index(ANSWER),
        came.index(b'"data":[0.0,0.0,0.0,2.0]'),
        came.rindex(ANSWER),
        came.index(b'"live"'),
    ]
    assert places == sorted(set(places))


def test_who_waits_to_be_told_to_go_on_is_told(wire: Wire) -> None:
    wire.send(head("Expect: 100-continue"))
    assert wire.until(b"100 Continue").startswith(b"HTTP/1.1 100")
    wire.send(BODY)
    wire.until(ANSWER)


def test_a_body_in_chunks(wire: Wire) -> None:
    chunks = b"%x\r\n%s\r\n%x\r\n%s\r\n0\r\n\r\n" % (7, BODY[:7], len(BODY) - 7, BODY[7:])
    wire.send(head("Transfer-Encoding: chunked", length=None) + chunks)
    wire.until(ANSWER)


def test_request_that_asks_for_another_protocol_keeps_its_body_or_is_rejected(wire: Wire) -> None:
    wire.send(head("Connection: Upgrade", "Upgrade: h2c"), BODY)
    answer = wire.closed()
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"Upgrade" in answer


def test_malformed_requests_leave_nothing_in_the_log(site: Site) -> None:
    site.wait(lambda: " ready\n" in site.said, "the last line of the start")
    logged = len(site.said)
    for _ in range(20):
        malformed = Wire(site.url)
        malformed.send(b"\0 no request\r\n\r\n")
        assert malformed.closed().startswith(b"HTTP/1.1 400 ")
    assert site.infer("scale").status == 200
    assert len(site.said) == logged


def test_the_connection_is_closed_where_the_client_wants_it_so(site: Site) -> None:
    for request in (head("Connection: close"), head(version="1.0")):
        came = Wire(site.url)
        came.send(request + BODY)
        assert ANSWER in came.closed()
        assert b"connection: close" in came.came.lower()


def test_who_goes_away_in_the_middle_leaves_nothing_behind(site: Site) -> None:
    for request in (head()[:30], head() + BODY[:10], head() + BODY):
        gone = Wire(site.url)
        gone.send(request)
        gone.socket.close()
    assert site.infer("scale").status == 200
    site.wait(lambda: site.metric("running") + site.metric("waiting") == 0, "nothing to be left")


HEADS = {"one long line": b"X-Long: " + b"a" * 200_000, "many lines": b"\r\n".join([b"X: a"] * 50_000)}


@pytest.mark.parametrize("line", HEADS.values(), ids=HEADS)
def test_a_head_without_end_is_not_held(wire: Wire, line: bytes) -> None:
    try:
        wire.send(head()[:-2], *(line[at : at + 4096] for at in range(0, len(line), 4096)))
    except (BrokenPipeError, ConnectionResetError):
        return
    assert b" 400 " in wire.closed()


@pytest.mark.parametrize("segment", [0, 4096])
@pytest.mark.parametrize(
    "headers", [b"X: " + b"x" * 100_000 + b"\r\n", b"".join(b"X%d: y\r\n" % k for k in range(20_000))]
)
def test_header_bounds_of_a_gateway_hold_in_any_segmentation(site: Site, headers: bytes, segment: int) -> None:
    for start in (head()[:-2], b"GET /health/live HTTP/1.1\r\n"):
        wire, whole = Wire(site.url), start + headers + b"\r\n" + BODY
        step = segment or len(whole)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            wire.send(*(whole[at : at + step] for at in range(0, len(whole), step)))
        assert wire.closed().startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("size", [2 << 20, 30 << 20])
@pytest.mark.parametrize("more", [(), ("Connection: close",)])
def test_gateway_rejects_a_large_body_with_an_answer_that_can_be_read(
    wire: Wire, size: int, more: tuple[str, ...]
) -> None:
    wire.send(head(*more, length=size) + b"x" * size)
    assert b" 413 " in wire.until(b"at most").partition(b"\r\n")[0]


def test_trailers_behind_a_body_are_no_key(wire: Wire) -> None:
    lines = b"POST /v2/models/scale/infer HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    key = b"Authorization: Bearer %s\r\n" % KEYS["alice"].encode()
    wire.send(lines + b"%x\r\n%s\r\n0\r\n%s\r\n" % (len(BODY), BODY, key))
    assert wire.until(b"\r\n").startswith(b"HTTP/1.1 401 ")


@pytest.mark.parametrize(
    "junk", [b"\x00\xff" * 50, b"GET\r\n\r\n", b"POST / HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\x00"]
)
def test_what_is_no_http_is_told_so_and_ended(wire: Wire, junk: bytes) -> None:
    wire.send(junk)
    assert wire.closed().startswith(b"HTTP/1.1 400")


LARGE = 8 << 20


async def app(scope: Any, receive: Any, send: Any) -> None:
    body = b"x" * LARGE if scope["path"] == "/large" else b"ok"
    length = str(len(body)).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
    await send({"type": "http.response.body", "body": body})


@contextmanager
def served() -> Iterator[str]:
    listening = HttpListenAddress("127.0.0.1", 0)
    bound = listening.bind()
    server = make_server(app, listening)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([bound])))
    thread.start()
    yield listening.url(bound)
    server.should_exit = True
    thread.join()


@pytest.mark.parametrize(
    "beginning", [b"", b"G", b"GET / HTTP/1.1\r\nHost: x\r\n", b"GET / HTTP/1.1\r\nHost: x\r\n\r\nGET /"]
)
def test_who_never_comes_to_the_end_of_a_head_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, beginning: bytes
) -> None:
    """Clients that read slowly ('slow loris') would otherwise hold connections for good."""
    monkeypatch.setattr(httpserver, "_HEAD_WITHIN", 0.2)
    with served() as url:
        wire = Wire(url)
        wire.send(beginning)
        assert wire.closed().count(b"200 OK") == beginning.count(b"\r\n\r\n")


def test_a_connection_that_is_kept_may_rest_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(httpserver, "_HEAD_WITHIN", 0.2)
    with served() as url:
        wire = Wire(url)
        for number in range(1, 3):
            wire.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            wire.until(b"ok", number)
            wire.socket.settimeout(0.5)
            with pytest.raises(TimeoutError):
                wire.socket.recv(1)
            wire.socket.settimeout(PATIENCE)
        wire.socket.close()


def test_who_does_not_read_is_cut_off_and_who_reads_slowly_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boundedhttp, "READ_WITHIN", 0.3)
    ask = b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n"
    with served() as url:
        silent, slow = Wire(url), Wire(url)
        for wire in (silent, slow):
            wire.send(ask)
        read = 0
        while read < LARGE:
            data = slow.socket.recv(256 << 10)
            assert data
            read += len(data)
            time.sleep(0.04)
        for _ in range(600):
            try:
                silent.send(ask)
            except (BrokenPipeError, ConnectionResetError):
                break
            time.sleep(0.05)
        else:
            pytest.fail("it is still connected")
        for wire in (silent, slow):
            wire.socket.close()


def test_requests_in_line_are_bounded(site: Site) -> None:
    wire = Wire(site.url)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        wire.send(b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n" * 2_000)
    assert wire.closed().count(b"HTTP/1.1 ") <= boundedhttp.MOST_IN_LINE + 1
    assert site.get("/health/live").status == 200


def test_connections_of_one_client_leave_room_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(httpserver, "_MOST_CONNECTIONS", 10)
    with served() as url:
        idle = [Wire(url) for _ in range(30)]
        for wire in (Wire(url), idle[-1]):
            wire.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            wire.until(b"ok")
            wire.socket.close()
        assert idle[0].closed() == b""
        for wire in idle:
            wire.socket.close()
