"""Every client ends its exchange in time with servers that never come to an end, and reads no head without end."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from typing import TYPE_CHECKING, Any

import pytest
from trickling import BEGINNINGS, OK, trickling

from mirage.allocation.inference.serving.upstream import CutOff, Unreachable, Upstream, UpstreamRequest
from mirage.backends.restclient import Credentials, RestAddress, RestClient
from mirage.client.address import Address as DaemonAddress
from mirage.client.deadline import BoundedConnection, Deadline, TimedSocket
from mirage.client.errors import DaemonUnreachable
from mirage.client.transport import Transport
from mirage.domain.errors import ClusterUnavailable
from mirage.domain.journal import Notice, NoticeKind
from mirage.notifications.channels import Postbox, SiteMail, Webhook
from mirage.notifications.delivery import Undeliverable

if TYPE_CHECKING:
    from pathlib import Path

WITHIN = 0.3
STUCK = Notice(NoticeKind.STUCK, 1_700_000_000, "it has stopped itself", "train-1", "train", "alice", 3)
kinds = pytest.mark.parametrize("kind", BEGINNINGS)
heads = pytest.mark.parametrize("kind", [kind for kind in BEGINNINGS if kind in ("interim", "header", "headers")])


def endless_head(kind: str) -> tuple[bytes, bytes]:
    first, then = BEGINNINGS[kind]
    return first, then * (20_000 // len(then))


@kinds
@pytest.mark.parametrize("unix", [False, True], ids=["tcp", "unix"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_slurmrestd_that_trickles_is_given_up(tmp_path: Path, kind: str, unix: bool, method: str) -> None:
    path = tmp_path / "s" if unix else None
    with trickling(*BEGINNINGS[kind], path=path) as server:
        address = f"unix:{path}" if unix else f"http://127.0.0.1:{server.port}"
        client = RestClient(RestAddress.parse(address), Credentials("alice"), WITHIN)
        with pytest.raises(ClusterUnavailable, match="timed out"):
            client.ask(method, "/slurm/v0.0.38/jobs", {} if method == "POST" else None)


@heads
def test_slurmrestd_whose_head_is_endless_is_given_up(kind: str) -> None:
    with trickling(*endless_head(kind), pause=0.001) as server:
        client = RestClient(RestAddress.parse(f"http://127.0.0.1:{server.port}"), Credentials("alice"), 60)
        with pytest.raises(ClusterUnavailable):
            client.ask("GET", "/slurm/v0.0.38/jobs")


@pytest.mark.parametrize("first", [b"", b"\x16\x03\x03\x40\x00\x02"])
def test_tls_handshake_that_trickles_is_given_up(tmp_path: Path, first: bytes) -> None:
    with trickling(first, b"\x00" if first else b"") as server:
        url = f"https://127.0.0.1:{server.port}"
        with pytest.raises(ClusterUnavailable, match="timed out"):
            RestClient(RestAddress.parse(url), Credentials("alice"), WITHIN).ask("GET", "/slurm/v0.0.38/jobs")
        with pytest.raises(DaemonUnreachable):
            Transport(DaemonAddress.parse(url)).ask("GET", "/me", timeout=WITHIN)
        with pytest.raises(Undeliverable):
            _webhook(tmp_path, url).send(STUCK)
        with pytest.raises(Undeliverable):
            _mail(server.port, security="tls").send(STUCK)


def test_tls_that_begins_too_late_leaves_no_socket() -> None:
    with trickling(b"", b"") as server:
        opened = TimedSocket.to_host("127.0.0.1", server.port, Deadline(60))
        late = TimedSocket(plain := opened._socket, Deadline(-1))
        with pytest.raises(TimeoutError):
            late.encrypted(ssl.create_default_context(), "127.0.0.1")
        assert plain.fileno() == -1


@kinds
@pytest.mark.parametrize("unix", [False, True], ids=["tcp", "unix"])
def test_daemon_that_trickles_is_unreachable(tmp_path: Path, kind: str, unix: bool) -> None:
    """Also for agents, which fetch their orders by this."""
    path = tmp_path / "s" if unix else None
    with trickling(*BEGINNINGS[kind], path=path) as server:
        transport = Transport(DaemonAddress.parse(str(path) if unix else f"http://127.0.0.1:{server.port}"))
        with pytest.raises(DaemonUnreachable, match=f"no reply from the daemon within {WITHIN:g} s"):
            transport.ask("GET", "/agent/order?wait=0", timeout=WITHIN)


@heads
def test_daemon_whose_head_is_endless_is_unreachable(kind: str) -> None:
    with trickling(*endless_head(kind), pause=0.001) as server, pytest.raises(DaemonUnreachable):
        Transport(DaemonAddress.parse(f"http://127.0.0.1:{server.port}")).ask("GET", "/me")


@pytest.mark.parametrize("kind", [kind for kind in BEGINNINGS if kind != "trailer"])
def test_events_without_a_whole_line_are_given_up(kind: str) -> None:
    with trickling(*BEGINNINGS[kind]) as server:
        transport = Transport(DaemonAddress.parse(f"http://127.0.0.1:{server.port}"))
        with pytest.raises(DaemonUnreachable):
            list(transport.lines("/events", {}, timeout=WITHIN))


def test_events_whose_lines_come_go_on() -> None:
    with trickling(OK + b"\r\n", b"data: 1\n") as server:
        transport = Transport(DaemonAddress.parse(f"http://127.0.0.1:{server.port}"))
        lines = transport.lines("/events", {}, timeout=2)
        assert [next(lines) for _ in range(150)] == ["data: 1"] * 150
        lines.close()


@pytest.mark.parametrize("kind", ["mute", "status", "interim", "header", "headers"])
def test_webhook_that_trickles_is_given_up(tmp_path: Path, kind: str) -> None:
    with trickling(*BEGINNINGS[kind]) as server, pytest.raises(Undeliverable) as raised:
        _webhook(tmp_path, f"http://127.0.0.1:{server.port}/x").send(STUCK)
    assert raised.value.passing


@pytest.mark.parametrize("first", [b"", b"220 ", b"220-hello\r\n", b"220 hello\r\n250-"])
@pytest.mark.parametrize("security", ["none", "starttls"])
def test_mail_server_that_trickles_is_given_up(first: bytes, security: str) -> None:
    with trickling(first, b"2") as server, pytest.raises(Undeliverable) as raised:
        _mail(server.port, security=security).send(STUCK)
    assert raised.value.passing


def test_mail_server_whose_answer_is_endless_is_given_up() -> None:
    with trickling(b"", b"220-hello\r\n" * 2_000, pause=0.001) as server, pytest.raises(Undeliverable):
        _mail(server.port, timeout=60).send(STUCK)


@kinds
def test_upstream_that_trickles_is_given_up(kind: str) -> None:
    with trickling(*BEGINNINGS[kind]) as server, pytest.raises((CutOff, Unreachable)):
        asyncio.run(_ask(Upstream(f"http://127.0.0.1:{server.port}", within=WITHIN)))


@heads
def test_upstream_whose_head_is_endless_is_given_up(kind: str) -> None:
    with trickling(*endless_head(kind), pause=0.001) as server, pytest.raises(Unreachable):
        asyncio.run(_ask(Upstream(f"http://127.0.0.1:{server.port}")))


def test_large_request_that_is_not_read_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        connection = BoundedConnection("127.0.0.1", mute.getsockname()[1], timeout=WITHIN)
        with pytest.raises(TimeoutError):
            connection.request("POST", "/", b"x" * (1 << 26))
        connection.close()


def test_name_that_is_not_resolved_in_time_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    answered, asked = threading.Event(), socket.getaddrinfo

    def slow(host: str, *args: Any, **named: Any) -> Any:
        if not named.get("flags"):
            answered.wait(20)
        return asked(host, *args, **named)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    try:
        with pytest.raises(TimeoutError):
            TimedSocket.to_host("localhost", 1, Deadline(0.1))
    finally:
        answered.set()


def test_name_without_an_address_is_an_os_error() -> None:
    for name in ("nowhere.invalid", "a" * 70):
        with pytest.raises(OSError):  # noqa: PT011 - the resolver's words
            TimedSocket.to_host(name, 1, Deadline(20))


async def _ask(upstream: Upstream) -> bytes:
    reply = await upstream.ask(UpstreamRequest("GET", "/x", [], b""))
    try:
        return b"".join([part async for part in reply.content])
    finally:
        reply.close()
        upstream.close()


def _webhook(folder: Path, url: str) -> Webhook:
    file = folder / "hook.url"
    file.write_text(url)
    return Webhook(file, [NoticeKind.STUCK], timeout=WITHIN)


def _mail(port: int, timeout: float = WITHIN, **more: Any) -> SiteMail:
    box = Postbox("127.0.0.1", port, "mirage@cluster.example.org", timeout=timeout, **more)
    return SiteMail(box, ("ops@example.org",), [NoticeKind.STUCK])
