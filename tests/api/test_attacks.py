"""Hostile input at every endpoint, slow clients, other users' chains, and shell metacharacters."""

from __future__ import annotations

import json
import os
import pwd
import socket
import stat
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
import schemathesis
from api_world import call, definition
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from network_world import CHAINS, TOKENS, slurm_token

from mirage.api.access import protocol
from mirage.api.app import create_app
from mirage.api.conventions import bodies

if TYPE_CHECKING:
    from network_world import Network

    from mirage.api.port import ApiService

CHIEF = slurm_token("chief")
STREAMS = {"/api/v1/events", "/logout"}
"""One never ends; the other ends the session that asks."""
WORDS = [
    "<script>",
    "; rm -rf ~",
    "$(id)",
    "`id`",
    "a b'c\"d",
    "|| true",
    "\x1b[31m",
    "../../etc/passwd",
    "-x",
    "ä\udce9",
]


def operations(service: ApiService) -> list[Any]:
    schema = schemathesis.openapi.from_dict(create_app(service).openapi())
    found = [result.ok() for result in schema.get_all_operations()]
    return [operation for operation in found if operation.path not in STREAMS]


def test_no_input_makes_the_interface_fail(network: Network) -> None:
    """Each address, with what its description allows and with what it does not."""
    for token in (CHIEF, "mirage_wrong"):
        for operation in operations(network.server.service):
            _ask(network, operation, token, 12 if token == CHIEF else 2)
    assert network.call("GET", "/healthz").status == 200
    assert network.server.running


def _ask(network: Network, operation: Any, token: str, examples: int) -> None:
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(
        case=operation.as_strategy() | operation.as_strategy(generation_mode=schemathesis.GenerationMode.NEGATIVE)
    )
    def check(case: Any) -> None:
        headers = {"Authorization": f"Bearer {token}"}
        response = case.call(base_url=network.server.url, headers=headers, allow_redirects=False, timeout=60)
        assert response.status_code < 500 or response.status_code == 503, (case, response.text)
        if response.status_code >= 400 and response.status_code != 503:
            assert response.headers["content-type"] == ["application/problem+json"], (case, response.text)
            assert "Traceback" not in response.text

    check()


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(raw=st.binary(max_size=300))
def test_bytes_that_are_no_request_are_survived(network: Network, raw: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(network.server._path))
        connection.sendall(raw + b"\r\n\r\n")
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65_536):
            pass
    assert network.server.running


@pytest.mark.parametrize("path", ["/api/v1/chains/../../../etc/passwd", "/static/../../../../etc/passwd"])
def test_paths_lead_nowhere_else(network: Network, path: str) -> None:
    for spelling in (path, path.replace("..", "%2e%2e"), path.replace("/..", "%2f..")):
        answer = network.call("GET", spelling, Authorization=f"Bearer {CHIEF}")
        assert answer.status == 404
        assert "root:" not in str(answer.body)


def test_headers_without_end_are_not_kept(network: Network) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(network.server._path))
        connection.sendall(b"GET / HTTP/1.1\r\nX: " + b"x" * 200_000)
        assert b"400" in connection.recv(65_536)


@pytest.mark.parametrize("start", [b"", b"GET /healthz HT", b"GET /healthz HTTP/1.1\r\nHost: x\r\n"])
def test_who_does_not_say_what_they_want_is_cut_off_and_blocks_nobody(
    network: Network, monkeypatch: pytest.MonkeyPatch, start: bytes
) -> None:
    monkeypatch.setattr(protocol, "HEADERS_WITHIN", 0.3)
    path = str(network.server._path)
    with socket.socket(socket.AF_UNIX) as slow:
        slow.connect(path)
        slow.sendall(start)
        assert call(path, "GET", "/healthz", None)[0] == 200
        dripped = 0
        try:
            while not _has_ended(slow):
                slow.sendall(b"a")
                dripped += 1
                assert dripped < 3_000
        except (BrokenPipeError, ConnectionResetError):
            pass
    assert call(path, "GET", "/healthz", None)[0] == 200


def _has_ended(connection: socket.socket) -> bool:
    connection.settimeout(0.02)
    try:
        return not connection.recv(1)
    except TimeoutError:
        return False


def test_a_body_that_never_ends_is_given_up(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "GRACE", 0.3)
    path = str(network.server._path)
    with socket.socket(socket.AF_UNIX) as slow:
        slow.connect(path)
        slow.sendall(b"POST /api/v1/chains HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
        assert call(path, "GET", "/healthz", None)[0] == 200
        slow.settimeout(60)
        assert b"408" in slow.recv(65_536)


def test_one_user_cannot_take_all_connections(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.getuid() != 0:
        pytest.skip("speaking as several users needs root")
    monkeypatch.setattr(protocol, "MOST_OF_ONE", 5)
    monkeypatch.setattr(protocol, "HEADERS_WITHIN", 3_600)  # which would end idle connections as well
    monkeypatch.setattr(protocol.Peer, "is_root", property(lambda self: False))
    path = str(network.server._path)
    held = [socket.socket(socket.AF_UNIX) for _ in range(8)]
    for connection in held:
        connection.connect(path)
    end = time.monotonic() + 60
    while sum(_has_ended(connection) for connection in held) < 3:
        assert time.monotonic() < end
    for connection in held:
        connection.close()
    while True:
        try:
            assert call(path, "GET", "/healthz", None)[0] == 200
            break
        except (ConnectionResetError, BrokenPipeError):
            assert time.monotonic() < end


def test_the_socket_is_the_daemons_and_open_to_all(network: Network) -> None:
    about = network.server._path.stat()
    assert stat.S_ISSOCK(about.st_mode)
    assert stat.S_IMODE(about.st_mode) == 0o666
    assert about.st_uid == os.getuid()


def test_on_the_socket_nothing_that_is_sent_makes_somebody_else(network: Network) -> None:
    import http.client

    connection = http.client.HTTPConnection("localhost", timeout=60)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(str(network.server._path))
    headers = {
        "Authorization": f"Bearer {slurm_token('bob')}",
        "X-Slurm-User-Name": "bob",
        "X-Forwarded-For": "127.0.0.1",
        "Content-Type": "application/json",
    }
    connection.request("POST", CHAINS, json.dumps(definition()), headers)
    made = json.loads(connection.getresponse().read())
    connection.close()
    assert made["chain"]["owner"] == pwd.getpwuid(os.getuid()).pw_name


def test_a_proxy_that_nobody_trusts_is_not_believed(network: Network) -> None:
    for _ in range(25):
        headers = {"X_Forwarded_For": f"10.0.0.{_}", "Authorization": "Bearer mirage_wrong"}
        last = network.call("GET", CHAINS, None, **headers)
    assert last.status == 429, "all of them came from one address"


@pytest.mark.parametrize("word", WORDS)
def test_words_come_through_as_they_are_or_not_at_all(network: Network, word: str) -> None:
    """A name is data, from the document to the link's request and back, and never part of a path."""
    body = definition("c1", name=word)
    body["request"]["name"] = word
    made = network.call("POST", CHAINS, body, Authorization=f"Bearer {slurm_token()}")
    if made.status == 201:
        (record,) = network.loop.records
        assert (record.chain.name, record.chain.request.name) == (word, word)
    else:
        assert made.status == 422
    shown = network.call("GET", f"{CHAINS}/{quote(word.encode('utf-8', 'replace'), safe='')}", None)
    assert shown.status in (401, 404)


@pytest.mark.parametrize("field", ["done", "directory", "script"])
def test_files_are_named_absolutely_or_not_at_all(network: Network, field: str) -> None:
    body = definition()
    match field:
        case "done":
            body["done"] = {"file": "../../etc/passwd"}
        case "directory":
            body["request"]["batch"]["directory"] = "../../root"
        case "script":
            body["request"]["batch"]["options"] = ["../../etc/passwd"]
    answer = network.call("POST", CHAINS, body, Authorization=f"Bearer {slurm_token()}")
    assert answer.status == 422
    assert network.loop.records == []


def test_a_token_for_others_takes_an_administrator_and_a_name(network: Network) -> None:
    for owner in ("a\nb", " root", "x\u202ey"):
        answer = network.in_browser("POST", TOKENS, "chief", {"owner": owner})
        assert answer.status == 422, owner
