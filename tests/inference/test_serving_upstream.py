"""Answers of another server in every form that HTTP/1.1 lets them have."""

from __future__ import annotations

import asyncio
import contextlib
import re
from typing import TYPE_CHECKING

import pytest

from mirage.allocation.inference.serving.service import GatewayIdentity
from mirage.allocation.inference.serving.upstream import CutOff, Unreachable, Upstream, UpstreamRequest

if TYPE_CHECKING:
    from collections.abc import Callable

GET = UpstreamRequest("GET", "/path?query", [(b"X-Mine", b"1"), (b"Connection", b"close")], b"body")


async def talk(
    *answers: list[bytes], method: str = "GET", close: bool = False
) -> tuple[list[object], list[bytes]]:
    """The results of requests, and each connection's requests, of a server that sends the given parts."""
    told, asked, left = list[object](), list[bytes](), list(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(b"")
        while left and (request := await reader.read(1 << 16)):
            asked[-1] += request
            for part in left.pop(0):
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0.01)
            if close:
                break
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    upstream = Upstream(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    for _ in answers:
        try:
            reply = await upstream.ask(UpstreamRequest(method, GET.target, GET.headers, GET.body))
            try:
                told.append((reply.status, b"".join([part async for part in reply.content])))
            finally:
                reply.close()
        except (CutOff, Unreachable) as error:
            told.append(type(error))
    upstream.close()
    server.close()
    await asyncio.sleep(0.05)
    return told, asked


@pytest.mark.parametrize(
    "parts",
    [
        [b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"],
        [b"HTTP/1.1 200 OK\r\nContent-Le", b"ngth: 5\r\n\r\nhe", b"llo"],
        [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n", b"3\r\nllo\r\n0\r\n", b"\r\n"],
        [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"],
        [b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"],
    ],
)
def test_an_answer_comes_whole_and_the_connection_is_asked_again(parts: list[bytes]) -> None:
    told, asked = asyncio.run(talk(parts, parts))
    assert told == [(200, b"hello")] * 2
    assert len(asked) == 1, "one connection"
    head, _, rest = asked[0].partition(b"\r\n\r\n")
    assert head.startswith(b"GET /path?query HTTP/1.1\r\n")
    assert b"X-Mine: 1" in head
    assert b"connection" not in head.lower(), "that was for another connection"
    assert rest.startswith(b"bodyGET ")


def test_an_answer_may_end_with_its_connection() -> None:
    told, asked = asyncio.run(talk(*[[b"HTTP/1.1 200 OK\r\n\r\nhel", b"lo"]] * 2, close=True))
    assert told == [(200, b"hello")] * 2
    assert len(asked) == 2


def test_an_answer_to_head_has_no_body() -> None:
    told, _ = asyncio.run(talk(*[[b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"]] * 2, method="HEAD"))
    assert told == [(200, b"")] * 2


@pytest.mark.parametrize(
    ("parts", "error"),
    [
        ([b""], Unreachable),
        ([b"HTTP/1.1 200 OK\r\nContent-Le"], Unreachable),
        ([b"220 mail.example.org ESMTP\r\n"], Unreachable),
        ([b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"], Unreachable),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe"], CutOff),
        ([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n"], CutOff),
        ([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"zz\r\n"], CutOff),
    ],
)
def test_what_is_not_whole_is_told_apart_by_whether_it_had_begun(
    parts: list[bytes], error: type[Exception]
) -> None:
    """Only what has not begun may be asked again."""
    assert asyncio.run(talk(parts, close=True))[0] == [error]


def test_nothing_is_asked_that_would_be_read_as_more_than_one_request() -> None:
    async def ask(inquiry: UpstreamRequest) -> None:
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
        async with server:
            await Upstream(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}").ask(inquiry)

    for inquiry in (
        UpstreamRequest("GET", "/ HTTP/1.1\r\nX: ", [], b""),
        UpstreamRequest("GET", "/a b", [], b""),
        UpstreamRequest("GET", "/", [(b"X", b"1\r\nContent-Length: 3")], b""),
    ):
        with pytest.raises(ValueError, match="invalid target"):
            asyncio.run(ask(inquiry))


TOKEN = "the token of the state directory"
KEYED = UpstreamRequest(
    "POST", "/v2/models/scale/infer", [(b"Authorization", b"Bearer a tenant's key")], b"its data"
)


def http_answer(text: str) -> bytes:
    return f"HTTP/1.1 200 OK\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode()


async def asked_of(prove: Callable[[str, str], str]) -> tuple[object, bytes]:
    """The outcome of a request with a key, and all that the server received; ``prove(challenge, own url)``."""
    told, own = bytearray(), ""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while request := await reader.read(1 << 16):
                told.extend(request)
                found = re.search(rb"(?i)x-mirage-challenge: (\S+)", request)
                shown = prove(found[1].decode(), own) if found else "an answer"
                writer.write(http_answer(shown))
                await writer.drain()
        writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    own = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    upstream = Upstream(own, TOKEN)
    try:
        reply = await upstream.ask(KEYED)
        answer = b"".join([part async for part in reply.content])
        reply.close()
        return answer, bytes(told)
    except Unreachable as error:
        return error, bytes(told)
    finally:
        upstream.close()
        server.close()
        await asyncio.sleep(0.05)


def test_a_gateway_that_proves_itself_is_asked() -> None:
    came, told = asyncio.run(asked_of(lambda challenge, own: GatewayIdentity(TOKEN, own).prove(challenge)))
    assert came == b"an answer"
    assert b"a tenant's key" in told


@pytest.mark.parametrize(
    "prove",
    [
        lambda challenge, own: "",
        lambda challenge, own: challenge,
        lambda challenge, own: GatewayIdentity("a guess", own).prove(challenge),
        lambda challenge, own: GatewayIdentity(TOKEN, own).prove("a challenge of before"),
        lambda challenge, own: GatewayIdentity(TOKEN, "http://127.0.0.1:1").prove(challenge),
        lambda challenge, own: "x" * 100_000,
    ],
    ids=["nothing", "echo", "guess", "replay", "answer-of-the-true-gateway-elsewhere", "flood"],
)
def test_who_listens_where_the_gateway_was_gets_neither_key_nor_data(prove: Callable[[str, str], str]) -> None:
    came, told = asyncio.run(asked_of(prove))
    assert isinstance(came, Unreachable)
    assert b"a tenant's key" not in told
    assert b"its data" not in told
