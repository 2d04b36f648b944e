"""Rejected requests cost little: few lines in log and audit, and a part of the caller's rate."""

from __future__ import annotations

import contextlib
import logging
import socket
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from api_world import World, definition
from network_world import CHAINS, slurm_token
from serving import serving

from mirage.api.access import auditing, protocol
from mirage.api.access.authentication import Authenticator
from mirage.api.access.rates import RateLimiter
from mirage.api.conventions import bodies
from mirage.api.listening import Listening
from mirage.api.server import ApiServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from network_world import Network

SLOW = b"POST /login HTTP/1.1\r\nHost: x\r\nContent-Length: 15000\r\n\r\n"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/nowhere"),
        ("GET", "/api/v1/nowhere"),
        ("DELETE", "/healthz"),
        ("GET", "/enter?ticket=" + "x" * 500),
    ],
)
def test_refused_request_counts_against_the_rate(world: World, method: str, path: str) -> None:
    with serving(world, gate=Authenticator(rates=RateLimiter(0.001, 3))) as bounded:
        statuses = [bounded.call(method, path)[0] for _ in range(5)]
    assert 429 not in statuses[:3]
    assert statuses[3:] == [429, 429]


@pytest.mark.parametrize("path", [CHAINS, "/nowhere"])
def test_refused_stranger_counts_against_the_rate(network: Network, tmp_path: Any, path: str) -> None:
    service = replace(network.server.service, gate=replace(network.gate, rates=RateLimiter(0.001, 3)))
    server = ApiServer(service, tmp_path / "s.sock", Listening.of("127.0.0.1:0"))
    server.start()
    try:
        statuses = [replace(network, server=server).call("GET", path).status for _ in range(5)]
    finally:
        server.stop()
    assert 429 not in statuses[:3]
    assert statuses[3:] == [429, 429]


def test_log_cuts_paths_and_counts_refused_requests_as_alike(
    network: Network, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "mirage.requests"):
        for number in range(3):
            network.with_token("GET", f"/api/v1/{number}{'a' * 9_000}", slurm_token("ada"))
        network.with_token("GET", "/nowhere", slurm_token("ada"))  # the line before is written by now
    lines = [record for record in caplog.records if record.name == "mirage.requests"][:3]
    assert max(len(line.getMessage()) for line in lines) < 250
    assert len({line.__dict__["alike"] for line in lines}) == 1


def test_audit_of_refused_requests_of_one_user_is_bounded(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auditing, "MOST_REFUSED", 5)
    made = network.with_token("POST", CHAINS, slurm_token("ada"), definition())
    pause = f"{CHAINS}/{made.body['id']}/pause"
    service = network.server.service
    with _anew(network, service) as anew:
        for _ in range(20):
            assert anew.with_token("POST", pause, slurm_token("bob")).status == 404
        assert anew.with_token("POST", pause, slurm_token("eve")).status == 404
        assert anew.with_token("POST", pause, slurm_token("ada")).status == 200
    users = [line.entry.user for line in network.store.audit.read()]
    assert users.count("bob") == 5
    assert users.count("eve") == 1
    assert users.count("ada") == 2


@contextlib.contextmanager
def _anew(network: Network, service: Any) -> Iterator[Network]:
    server = ApiServer(service, network.server._path.with_suffix(".anew"), Listening.of("127.0.0.1:0"))
    server.start()
    try:
        yield replace(network, server=server)
    finally:
        server.stop()


# Bodies that do not come


def test_bodies_that_do_not_come_keep_nobody_out(network: Network) -> None:
    host, port = network.server.url.removeprefix("http://").split(":")
    with contextlib.ExitStack() as stack:
        for _ in range(700):
            line = stack.enter_context(socket.create_connection((host, int(port)), 10))
            with contextlib.suppress(OSError):
                line.sendall(SLOW)
        for _ in range(5):
            assert network.with_token("GET", CHAINS, slurm_token("ada")).status == 200


def test_small_body_that_does_not_come_ends_soon(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    assert bodies.GRACE <= 5
    monkeypatch.setattr(bodies, "GRACE", 0.2)
    host, port = network.server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), 20) as line:
        line.sendall(SLOW)
        assert b" 408 " in line.recv(65_536)


def test_connections_of_one_address_have_a_share(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "MOST_OF_ADDRESS", 10)
    host, port = network.server.url.removeprefix("http://").split(":")
    with contextlib.ExitStack() as stack:
        lines = [stack.enter_context(socket.create_connection((host, int(port)), 10)) for _ in range(15)]
        ended = 0
        for line in lines[10:]:
            with contextlib.suppress(ConnectionError):
                line.settimeout(20)
                assert line.recv(1) == b""
            ended += 1
        assert ended == 5
        other = stack.enter_context(socket.create_connection((host, int(port)), 10, ("127.0.1.1", 0)))
        other.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert b" 200 " in other.recv(65_536).partition(b"\r\n")[0]
