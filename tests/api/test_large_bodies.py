"""Large bodies: bounded in number, so that they do not fill the daemon's memory."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
from typing import TYPE_CHECKING

import pytest
from api_world import call, definition
from starlette.exceptions import HTTPException

from mirage.api.conventions import bodies
from mirage.api.conventions.bodies import LargeBodies

if TYPE_CHECKING:
    from network_world import Network

HEAD = b"POST %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
CHUNKED = b"POST %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
LARGE = 1 << 20


@contextlib.contextmanager
def connected(network: Network, count: int):
    with contextlib.ExitStack() as stack:
        lines = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(count)]
        for line in lines:
            line.settimeout(60)
            line.connect(str(network.server._path))
        yield lines


def first_line(line: socket.socket) -> bytes:
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while b"\r\n" not in received and (part := line.recv(65_536)):
            received += part
    return received


def test_large_bodies_of_one_user_at_once_are_few(network: Network) -> None:
    with connected(network, 30) as lines:
        for line in lines:
            line.sendall(HEAD % (b"/api/v1/chains", LARGE) + b"x" * 100_000)
        end, answered = time.monotonic() + 60, []
        while len(answered) < 30 - 1 - bodies.MOST_WAITING:
            assert time.monotonic() < end
            for line in set(lines) - set(answered):
                line.settimeout(0.02)
                with contextlib.suppress(TimeoutError):
                    assert b" 429 " in line.recv(65_536, socket.MSG_PEEK)
                    answered.append(line)
        assert all(b"retry-after" in line.recv(65_536).lower() for line in answered)
        small = json.dumps(definition()).encode()
        assert call(str(network.server._path), "POST", "/api/v1/chains", small)[0] == 201


@pytest.mark.parametrize("chunked", [False, True])
def test_large_bodies_are_taken_one_after_another(network: Network, chunked: bool) -> None:
    with connected(network, 5) as lines:
        for number, line in enumerate(lines):
            body = json.dumps(definition(f"c{number}")).encode() + b" " * LARGE
            whole = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body) if chunked else body
            head = CHUNKED % b"/api/v1/chains" if chunked else HEAD % (b"/api/v1/chains", len(body))
            with contextlib.suppress(TimeoutError):
                line.settimeout(1)
                line.sendall(head + whole[: 100_000 + number])
        for number, line in enumerate(lines):
            body = json.dumps(definition(f"c{number}")).encode() + b" " * LARGE
            whole = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body) if chunked else body
            line.settimeout(60)
            line.sendall(whole[100_000 + number :])
            assert b" 201 " in first_line(line)


@pytest.mark.parametrize("path", [b"/login", b"/api/v1/replays", b"/api/v1/tokens", b"/nowhere"])
def test_body_of_another_address_is_small(network: Network, path: bytes) -> None:
    with connected(network, 1) as (line,):
        line.sendall(HEAD % (path, bodies.SHORT + 1) + b"x" * (bodies.SHORT + 1))
        assert first_line(line).split()[1] in (b"404", b"413")


def test_body_of_many_values_is_rejected_before_they_are_made(network: Network) -> None:
    body = b"[" + b"{}," * 100_000 + b"{}]"
    status, answer = call(str(network.server._path), "POST", "/api/v1/chains", body)
    assert status == 422
    assert "more than" in answer["detail"]


def test_slow_large_body_ends_before_a_fast_one(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "GRACE", 0.2)
    with connected(network, 1) as (line,):
        line.sendall(HEAD % (b"/api/v1/chains", LARGE))
        began = time.monotonic()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            while time.monotonic() - began < 10:
                line.sendall(b"x" * 1_000)
                line.settimeout(0.05)
                with contextlib.suppress(TimeoutError):
                    if line.recv(65_536, socket.MSG_PEEK):
                        break
        assert b" 408 " in first_line(line)


# Whose turn it is


def test_turns_one_user_waits_for_own_body_and_others_do_not() -> None:
    async def play() -> None:
        turns = LargeBodies(100)
        await turns.take("ada", 40)
        waiting = asyncio.create_task(turns.take("ada", 40))
        await asyncio.wait_for(turns.take("bob", 40), 5)
        assert not waiting.done()
        turns.give_back("ada")
        await asyncio.wait_for(waiting, 5)

    asyncio.run(play())


def test_turns_hold_no_more_bytes_than_allowed() -> None:
    async def play() -> None:
        turns, held, most = LargeBodies(100), 0, 0

        async def one(user: str) -> None:
            nonlocal held, most
            await turns.take(user, 40)
            held, most = held + 40, max(most, held + 40)
            await asyncio.sleep(0)
            held -= 40
            turns.give_back(user)

        await asyncio.gather(*(one(f"user{number}") for number in range(20)))
        assert (held, most) == (0, 80)

    asyncio.run(play())


def test_turns_who_waits_too_long_is_sent_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "PATIENCE", 0.05)

    async def play() -> None:
        turns = LargeBodies(100)
        await turns.take("ada", 90)
        for user in ("ada", "bob"):
            with pytest.raises(HTTPException) as failed:
                await turns.take(user, 90)
            assert failed.value.status_code == 429
        turns.give_back("ada")
        await asyncio.wait_for(turns.take("bob", 90), 5)

    asyncio.run(play())


def test_turns_who_leaves_the_line_holds_nothing() -> None:
    async def play() -> None:
        turns = LargeBodies(100)
        await turns.take("ada", 90)
        waiting = asyncio.create_task(turns.take("bob", 90))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        turns.give_back("ada")
        await asyncio.wait_for(turns.take("eve", 100), 5)

    asyncio.run(play())
