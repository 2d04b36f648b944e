"""Bounds of connections without a request, and of data after a body."""

from __future__ import annotations

import contextlib
import json
import socket
from typing import TYPE_CHECKING

import pytest
from api_world import call, definition
from network_world import slurm_token

from mirage import boundedhttp
from mirage.api.access import protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from network_world import Network

CHUNKED = b"POST /api/v1/chains HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n%s\r\n"


@pytest.fixture
def line(network: Network) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(60)
        connection.connect(str(network.server._path))
        yield connection


def all_of(line: socket.socket) -> bytes:
    """Until the other end closes."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while part := line.recv(65_536):
            received += part
    return received


def send(line: socket.socket, data: bytes) -> None:
    """The other end may have had enough of it."""
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        line.sendall(data)


@pytest.mark.parametrize(
    "start",
    [
        b"GET /" + b"x" * 300_000,
        b"GET / HTTP/1.1\r\nX: " + b"x" * 300_000,
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 50_000,
        b"\r\n" * 150_000,
    ],
)
def test_what_never_becomes_a_request_is_cut_off(line: socket.socket, start: bytes) -> None:
    send(line, start)
    assert all_of(line).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(
    "tail", [b"0\r\nX: " + b"x" * 300_000, b"0\r\n" + b"X: y\r\n" * 60_000, b"1;" + b"x" * 300_000]
)
def test_what_stands_around_a_body_is_bounded_too(network: Network, line: socket.socket, tail: bytes) -> None:
    send(line, CHUNKED % b"" + b"2\r\n{}\r\n")
    send(line, tail)
    assert b" 201 " not in all_of(line)
    assert network.server.running


def test_a_long_body_in_small_parts_is_no_trouble(network: Network, line: socket.socket) -> None:
    padded = json.dumps(definition()).encode() + b" " * 70_000
    line.sendall(CHUNKED % b"Connection: close\r\n")
    line.sendall(b"".join(b"1\r\n%c\r\n" % byte for byte in padded) + b"0\r\n\r\n")
    assert b" 201 " in all_of(line).partition(b"\r\n")[0]
    assert len(network.loop.records) == 1


def test_upgrade_with_an_empty_body_loses_nothing(line: socket.socket) -> None:
    upgrade = b"Connection: Upgrade, close\r\nUpgrade: h2c\r\nContent-Length: 0\r\n"
    line.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + upgrade + b"\r\n")
    assert all_of(line).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("length", [b"Transfer-Encoding: chunked\r\n", b"Content-Length: 5\r\n"])
def test_body_beside_an_upgrade_is_not_lost(network: Network, line: socket.socket, length: bytes) -> None:
    """The plain-text upgrade of ``curl --http2``; the parser would end the request at its headers."""
    upgrade = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"
    line.sendall(b"POST /api/v1/chains HTTP/1.1\r\nHost: x\r\n" + upgrade + length + b"\r\nhello")
    answer = all_of(line)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"Upgrade" in answer
    assert not network.loop.records


def test_upgrade_without_a_body_is_answered_in_http(line: socket.socket) -> None:
    upgrade = b"Connection: Upgrade, close\r\nUpgrade: h2c\r\n"
    line.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + upgrade + b"\r\n")
    assert all_of(line).startswith(b"HTTP/1.1 200 ")


def test_headers_behind_a_body_count_for_nothing(network: Network) -> None:
    """A proxy may have taken such headers out in front of it."""
    token = slurm_token("ada").encode()
    body = json.dumps(definition()).encode()
    with socket.create_connection(network.server._sockets[-1].getsockname()) as line:
        line.settimeout(60)
        line.sendall(CHUNKED % b"Connection: close\r\nTrailer: Authorization\r\n")
        line.sendall(b"%x\r\n%s\r\n0\r\nAuthorization: Bearer %s\r\n\r\n" % (len(body), body, token))
        assert b" 401 " in all_of(line).partition(b"\r\n")[0]
    assert network.loop.records == []


def test_a_few_requests_may_be_sent_at_once_and_are_answered_in_order(line: socket.socket) -> None:
    for path in (b"/healthz", b"/none", b"/version"):
        line.sendall(
            b"GET %s HTTP/1.1\r\nHost: x\r\n%s\r\n" % (path, b"Connection: close\r\n" * (path == b"/version"))
        )
    answers = all_of(line)
    assert [part.split(b" ")[0] for part in answers.split(b"HTTP/1.1 ")[1:]] == [b"200", b"404", b"200"]


def test_many_requests_at_once_are_not_held(network: Network, line: socket.socket) -> None:
    send(line, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" * (10 * boundedhttp.MOST_IN_LINE))
    assert all_of(line).count(b"HTTP/1.1 ") <= boundedhttp.MOST_IN_LINE + 1
    assert call(str(network.server._path), "GET", "/healthz", None)[0] == 200


def test_who_would_speak_otherwise_is_answered_in_http(line: socket.socket) -> None:
    """The headers of clients that offer HTTP/2."""
    upgrade = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
    line.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + upgrade + b"\r\n")
    assert line.recv(65_536).startswith(b"HTTP/1.1 200 ")
    line.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert b"HTTP/1.1 200 " in all_of(line)


@pytest.mark.parametrize(
    "headers",
    [b"X: " + b"x" * 17_000 + b"\r\n", b"".join(b"X%d: y\r\n" % k for k in range(101)), b"X: y\r\n" * 4_000],
)
@pytest.mark.parametrize("segment", [0, 1_000])
def test_header_bounds_hold_in_any_segmentation(line: socket.socket, headers: bytes, segment: int) -> None:
    whole = b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + headers + b"\r\n"
    for start in range(0, len(whole), segment or len(whole)):
        send(line, whole[start : start + (segment or len(whole))])
    assert all_of(line).startswith(b"HTTP/1.1 400 ")


def test_headers_within_the_bounds_are_taken(line: socket.socket) -> None:
    headers = b"Connection: close\r\n" + b"".join(b"X%d: %s\r\n" % (k, b"y" * 100) for k in range(90))
    line.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + headers + b"\r\n")
    assert b" 200 " in all_of(line).partition(b"\r\n")[0]


@pytest.mark.parametrize("size", [9 << 20, 30 << 20])
def test_a_body_too_large_gets_an_answer_that_can_be_read(line: socket.socket, size: int) -> None:
    head = b"POST /api/v1/chains HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
    line.sendall(head % size + b"x" * size)
    assert b" 413 " in all_of(line).partition(b"\r\n")[0]


def test_idle_connections_keep_nobody_from_healthz(network: Network) -> None:
    host, port = network.server.url.removeprefix("http://").split(":")
    with contextlib.ExitStack() as stack:
        for _ in range(600):
            stack.enter_context(socket.create_connection((host, int(port)), 10))
        assert network.call("GET", "/healthz").status == 200


def test_requests_that_stay_incomplete_keep_nobody_from_healthz(network: Network) -> None:
    host, port = network.server.url.removeprefix("http://").split(":")
    key = b"Authorization: Bearer " + slurm_token("ada").encode()
    head = b"POST /api/v1/chains HTTP/1.1\r\nHost: x\r\n%s\r\nContent-Length: 100\r\n\r\n{" % key
    with contextlib.ExitStack() as stack:
        for _ in range(600):
            line = stack.enter_context(socket.create_connection((host, int(port)), 10))
            send(line, head)
        assert network.call("GET", "/healthz").status == 200


def test_connections_of_one_client_end_before_those_of_another(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "MOST_BEFORE_EVICTION", 20)
    host, port = network.server.url.removeprefix("http://").split(":")
    with contextlib.ExitStack() as stack:
        other = stack.enter_context(socket.create_connection((host, int(port)), 10, ("127.0.1.1", 0)))
        for _ in range(60):
            stack.enter_context(socket.create_connection((host, int(port)), 10, ("127.0.1.2", 0)))
        assert network.call("GET", "/healthz").status == 200
        other.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert b" 200 " in all_of(other).partition(b"\r\n")[0]
