"""Requests that are rejected take a small share of a gateway's time, however many a client sends."""

from __future__ import annotations

import json
import socket
import threading
import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from flooding import CONNECTIONS, flood
from serving_models import write_scale
from serving_site import KEYS, Site, digest, tensor

from mirage.allocation.inference.serving.addressbook import GatewayStateFolder
from mirage.allocation.inference.serving.front import Front
from mirage.allocation.inference.serving.httpserver import HttpListenAddress, make_server
from mirage.allocation.inference.serving.replies import AT_A_FRONT, REFUSALS_A_SECOND, REFUSALS_AT_ONCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

TEXT = f"""
[[model]]
name = "scale"
onnx = "scale.onnx"
[[unit]]
name = "cpu"
[[tenant]]
name = "alice"
keys = ["{digest("alice")}"]
rate = 0.001
[[tenant]]
name = "bob"
keys = ["{digest("bob")}"]
"""
INFER = "/v2/models/scale/infer"
BODY = json.dumps(tensor([1, 2, 3, 4])).encode()
SECONDS = 3.0


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("refusals")
    write_scale(folder / "scale.onnx")
    site = Site(folder, TEXT)
    yield site.start()
    assert site.stop() == 0, site.said


def request(method: str, path: str, key: str = "", body: bytes = b"", more: str = "") -> bytes:
    more += f"Authorization: Bearer {key}\r\n" if key else ""
    more += f"Content-Length: {len(body)}\r\n"
    return f"{method} {path} HTTP/1.1\r\nHost: x\r\n{more}\r\n".encode() + body


def connector(url: str) -> Callable[[], socket.socket]:
    where = urlsplit(url)
    return lambda: socket.create_connection((where.hostname or "", where.port or 0), 60)


FLOODS = {
    "over the quota": (request("POST", INFER, KEYS["alice"], BODY), 429),
    "without a key": (request("POST", INFER), 401),
    "no such address": (request("GET", "/nowhere"), 404),
    "health": (request("GET", "/health/live"), 200),
    "a model's inputs": (request("GET", "/v2/models/scale", KEYS["alice"]), 200),
    "a proof": (request("GET", "/proof", more="X-Mirage-Challenge: a\r\n"), 200),
}


@pytest.mark.parametrize(("raw", "status"), FLOODS.values(), ids=FLOODS)
def test_flood_of_refusals_is_answered_at_a_bounded_pace(site: Site, raw: bytes, status: int) -> None:
    for seconds in (SECONDS, 5 * SECONDS, 20 * SECONDS):  # a busy machine may not answer any in the first three
        began = time.monotonic()
        statuses = flood(connector(site.url), raw, seconds)
        if statuses[status]:
            break
    most = REFUSALS_AT_ONCE + REFUSALS_A_SECOND * (time.monotonic() - began)
    most += CONNECTIONS  # a proof on each
    assert 0 < statuses[status] <= most


def test_tenant_beside_a_flood_is_answered(site: Site) -> None:
    flooding = threading.Thread(target=flood, args=(connector(site.url), FLOODS["over the quota"][0], SECONDS))
    flooding.start()
    statuses = [site.infer("scale", who="bob").status for _ in range(20)]
    flooding.join()
    assert statuses == [200] * 20


def test_tenant_refused_now_and_then_keeps_its_connection(site: Site) -> None:
    site.infer("scale", who="alice")
    connection = site.connect()
    for _ in range(5):
        connection.request("POST", INFER, BODY, {"Authorization": f"Bearer {KEYS['alice']}"})
        refused = connection.getresponse()
        refused.read()
        assert (refused.status, int(refused.headers["Retry-After"]) > 0) == (429, True)
        assert refused.headers["Connection"] != "close"
    kept = connection.sock
    connection.request("POST", INFER, BODY, {"Authorization": f"Bearer {KEYS['bob']}"})
    answered = connection.getresponse()
    assert (answered.status, connection.sock is kept) == (200, True)
    connection.close()


def test_client_of_a_front_is_refused_at_a_bounded_pace(tmp_path: Path) -> None:
    """There is no gateway: only what the front itself rejects, a body that is too large."""
    listening = HttpListenAddress("127.0.0.1", 0)
    server = make_server(Front(GatewayStateFolder(tmp_path), 30.0, 10), listening)
    bound = listening.bind()
    thread = threading.Thread(target=server.run, args=([bound],))
    thread.start()
    began = time.monotonic()
    statuses = flood(connector(listening.url(bound)), request("POST", INFER, "", BODY), 6.0)
    most = REFUSALS_AT_ONCE + AT_A_FRONT * (time.monotonic() - began)
    server.should_exit = True
    thread.join()
    assert 0 < statuses[413] <= most
