"""The TLS listener: unfinished handshakes do not block other clients."""

from __future__ import annotations

import http.client
import socket
import ssl
import subprocess
import time
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from mirage.api.listening import Listening
from mirage.api.server import ApiServer
from mirage.client.client import Client
from mirage.domain.errors import ConfigError
from mirage.tlshandshake import MOST_HANDSHAKES, MOST_OF_ONE_ADDRESS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from network_world import Network

CLIENT_HELLO = b"\x16\x03\x01\x02\x00"
"""The first bytes of a handshake, and no more."""


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    words = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout key.pem -out cert.pem"
    subprocess.run(words.split(), cwd=folder, check=True, capture_output=True)
    return folder / "cert.pem", folder / "key.pem"


@pytest.fixture
def address(network: Network, certificate: tuple[Path, Path], tmp_path: Path) -> Iterator[tuple[str, int]]:
    listening = Listening.of("127.0.0.1:0", str(certificate[0]), str(certificate[1]))
    server = ApiServer(network.server.service, tmp_path / "tls.sock", listening)
    server.start()
    where = urlsplit(server.url)
    yield str(where.hostname), int(where.port or 0)
    server.stop()


def health(address: tuple[str, int], source: str = "127.0.0.1") -> int:
    context = ssl._create_unverified_context()
    connection = http.client.HTTPSConnection(*address, timeout=20, context=context, source_address=(source, 0))
    connection.request("GET", "/healthz")
    status = connection.getresponse().status
    connection.close()
    return status


@contextmanager
def half_open(address: tuple[str, int], count: int, *sources: str) -> Iterator[list[socket.socket]]:
    with ExitStack() as closing:
        sockets = []
        for source in (source for source in sources for _ in range(count)):
            sockets.append(closing.enter_context(socket.create_connection(address, source_address=(source, 0))))
            with suppress(ConnectionError):
                sockets[-1].sendall(CLIENT_HELLO)
        yield sockets


def still_open(sockets: list[socket.socket]) -> int:
    """How many the server has not cut off."""
    time.sleep(0.5)
    left = 0
    for each in sockets:
        each.setblocking(False)
        try:
            each.recv(1)
        except BlockingIOError:
            left += 1
        except ConnectionError:
            pass
    return left


def test_tls_listener_answers_over_https_alone(address: tuple[str, int]) -> None:
    assert health(address) == 200
    plain = http.client.HTTPConnection(*address, timeout=20)
    plain.request("GET", "/healthz")
    with pytest.raises((ConnectionError, http.client.HTTPException)):
        plain.getresponse()


def test_unfinished_handshakes_of_one_address_are_bounded_and_cut_off(address: tuple[str, int]) -> None:
    with half_open(address, 4 * MOST_OF_ONE_ADDRESS, "127.0.0.1") as sockets:
        assert still_open(sockets) == MOST_OF_ONE_ADDRESS
        assert health(address, "127.0.0.2") == 200
        began = time.monotonic()
        while still_open(sockets):
            assert time.monotonic() - began < 60
        assert health(address) == 200


def test_unfinished_handshakes_of_one_address_keep_nobody_there_out(address: tuple[str, int]) -> None:
    with half_open(address, 2 * MOST_OF_ONE_ADDRESS, "127.0.0.1"):
        for _ in range(5):
            assert health(address, "127.0.0.1") == 200


def test_unfinished_handshakes_of_all_are_bounded(address: tuple[str, int]) -> None:
    sources = [f"127.0.1.{k}" for k in range(1, 3 + MOST_HANDSHAKES // MOST_OF_ONE_ADDRESS)]
    with half_open(address, MOST_OF_ONE_ADDRESS, *sources) as sockets:
        began = time.monotonic()
        while still_open(sockets) > MOST_HANDSHAKES:  # a busy server comes to the last of them later
            assert time.monotonic() - began < 60
        assert health(address, "127.0.3.1") == 200


def test_address_is_taken_once_its_certificate_can_be_used(
    network: Network, certificate: tuple[Path, Path], tmp_path: Path
) -> None:
    """An attempt that fails keeps no port."""
    key = tmp_path / "key.pem"
    key.write_bytes(certificate[1].read_bytes())
    with socket.create_server(("127.0.0.1", 0)) as thief:
        listening = Listening.of(f"127.0.0.1:{thief.getsockname()[1]}", str(certificate[0]), str(key))
        server = ApiServer(network.server.service, tmp_path / "late.sock", listening)
        server.start()
    try:
        assert Client(str(tmp_path / "late.sock")).version()
        key.write_text("no key")
        for _ in range(2):
            with pytest.raises(ConfigError, match=r"api\.certificate"):
                server.reach_out()
        key.write_bytes(certificate[1].read_bytes())
        assert server.reach_out()
        assert health(("127.0.0.1", listening.port)) == 200
    finally:
        server.stop()
