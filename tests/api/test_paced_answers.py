"""Answers that count against no rate take a small share of the API, however many a client asks for."""

from __future__ import annotations

import socket
import threading
import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from flooding import CONNECTIONS, flood, flood_as
from network_world import CHAINS, slurm_token
from serving import serving

from mirage.api.access.authentication import Authenticator
from mirage.api.access.rates import RateLimiter
from mirage.api.conventions import admission
from mirage.api.conventions.admission import ANSWERS_A_SECOND, ANSWERS_AT_ONCE

if TYPE_CHECKING:
    from api_world import World
    from network_world import Network

SECONDS = 5.0
UNCOUNTED = [
    "/version",
    "/healthz",
    "/readyz",
    "/login",
    "/static/vendored/htmx.min.js",
    "/metrics",
    "/",
    "/nowhere",
]


def request(path: str, more: str = "") -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{more}\r\n".encode()


def flood_network(network: Network, raw: bytes, seconds: float = SECONDS) -> dict[int, int]:
    where = urlsplit(network.server.url)
    return flood(lambda: socket.create_connection((where.hostname or "", where.port or 0), 60), raw, seconds)


def most_since(began: float) -> float:
    return ANSWERS_AT_ONCE + ANSWERS_A_SECOND * (time.monotonic() - began)


@pytest.mark.parametrize("path", UNCOUNTED)
def test_flood_of_an_address_is_answered_at_a_bounded_pace(network: Network, path: str) -> None:
    began = time.monotonic()
    statuses = flood_network(network, request(path))
    assert 0 < sum(statuses.values()) <= most_since(began)


def test_health_beside_a_flood_is_answered(network: Network) -> None:
    flooding = threading.Thread(target=flood_network, args=(network, request("/version"), 8.0))
    flooding.start()
    time.sleep(2)
    assert [network.call("GET", "/healthz").status for _ in range(3)] == [200] * 3
    assert network.with_token("GET", CHAINS, slurm_token("ada")).status == 200
    flooding.join()


@pytest.mark.parametrize("path", ["/version", "/healthz", CHAINS])
def test_flood_of_a_user_is_answered_at_a_bounded_pace(world: World, path: str) -> None:
    """A user over the rate: of chains 429; health is answered all the same."""
    with serving(world, gate=Authenticator(rates=RateLimiter(0.001, 3))) as bounded:
        began = time.monotonic()
        statuses = flood_as("daemon", bounded.socket, request(path), SECONDS)
        assert 3 < sum(statuses.values()) <= 3 + most_since(began)
        assert (429 in statuses) == (path == CHAINS)
        assert bounded.call("GET", "/version")[0] == 200


def test_user_within_the_rate_has_no_wait(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "ANSWERS_A_SECOND", 0.1)
    monkeypatch.setattr(admission, "ANSWERS_AT_ONCE", 1)
    with serving(world) as bounded:
        statuses = flood_as("daemon", bounded.socket, request(CHAINS), SECONDS)
    assert set(statuses) == {200}
    assert statuses[200] > 3 * CONNECTIONS, "held, they would come every two seconds"
