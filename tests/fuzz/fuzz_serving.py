"""Input of a gateway and its workers: over HTTP, in frames, in the files that both read."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from fuzzing import Beside, Target
from own_gateway import BESIDE, CHAT, CONFIG, KEYS, SCALE, TENSOR, OwnGateway, own_gateway, turn

from mirage.allocation.inference.serving.addressbook import GatewayStateFolder
from mirage.allocation.inference.serving.admission import BudgetReservation, MemoryBudget, RequestRefused
from mirage.allocation.inference.serving.configfile import read_config
from mirage.allocation.inference.serving.load_client import LoadPlan, NoTarget, drive
from mirage.allocation.inference.serving.openinference import read_request
from mirage.allocation.inference.serving.request_queue import ArrivedRequest
from mirage.allocation.inference.serving.upstream import CutOff, Unreachable, Upstream, UpstreamRequest
from mirage.allocation.inference.serving.worker_connections import Assembler, BadFrame, frame, receive

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path


def in_loop(work: Callable[[OwnGateway, Any], Coroutine[Any, Any, None]]) -> Callable[[Any], None]:
    """Tried on the gateway; an exception that its event loop reports is a failure."""

    def read(given: Any) -> None:
        own = own_gateway()
        own.loop.run_until_complete(work(own, given))
        own.check()

    return read


async def http(own: OwnGateway, sent: bytes) -> None:
    answer = await own.asked_over_http(sent)
    assert b"HTTP/1.1 500" not in answer, answer


async def http_with_workers(own: OwnGateway, sent: bytes) -> None:
    """The same where each request is answered immediately."""
    seats = {"cpu": {"scale": SCALE}, "server": {"chat": CHAT}}
    workers = [(name, *await own.worker(name, models)) for name, models in seats.items()]
    answering = [asyncio.ensure_future(answer(worker)) for _, worker, _ in workers]
    try:
        await http(own, sent)
    finally:
        for task in answering:
            task.cancel()
        for name, worker, link in workers:
            own.gateway.went(own.seats[name], coming=True)
            link.abort()
            worker.writer.close()
        await turn()


async def answer(worker: Any) -> None:
    output = {"name": "y", "datatype": "FP32", "shape": [1]}
    while True:
        header = await worker.hear()
        if "number" in header:
            end = {"say": "end", "number": header["number"], "seconds": 0.001}
            worker.say(end | ({"http": 200} if "path" in header else {"outputs": [output]}), b"\0\0\x80?")


async def frames(own: OwnGateway, headers: Any) -> None:
    """From a worker that has proved itself, about a request that it was given."""
    worker, link = await own.worker("cpu", {"scale": SCALE})
    waiting: asyncio.Future[Any] = own.loop.create_future()
    memory = BudgetReservation(MemoryBudget(16 << 20), 0)
    wish = ArrivedRequest(0, 0, own.loop.time() + 10, 1.0)
    exchange = own.gateway.ask(wish, {"model": "scale"}, [], waiting, memory)
    await turn()
    for header in headers if isinstance(headers, list) else [headers]:
        numbered = isinstance(header, dict) and header.get("number") == 0
        worker.say(header | {"number": exchange.number} if numbered else header, b"\0\0\x80?")
    await turn()
    own.gateway.withdraw(exchange)
    own.gateway.went(own.seats["cpu"], coming=True)
    link.abort()
    worker.writer.close()
    waiting.cancel()
    if waiting.done() and not waiting.cancelled():
        waiting.exception()
    await turn()


async def greeting(own: OwnGateway, sent: bytes) -> None:
    """From any client that finds the port."""
    own.gate.expect("cpu", "secret", {})
    worker = await own.connect()
    worker.writer.write(sent)
    await turn()
    worker.writer.transport.abort()
    await turn()


async def ready(own: OwnGateway, models: Any) -> None:
    """What a worker says that it has loaded: a post ends a worker that says something else."""
    with suppress(BadFrame, EOFError):
        worker, link = await own.worker("cpu", models)
        own.gateway.went(own.seats["cpu"], coming=True)
        link.abort()
        worker.writer.close()
    await turn()


def assembled(data: bytes) -> None:
    for header, content in Assembler(1 << 16).feed(data):
        assert isinstance(header, dict)
        assert len(content) <= 1 << 16


def received(data: bytes) -> None:
    """By a worker, from what it takes for its gateway."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(data[: 1 << 15])
        theirs.shutdown(socket.SHUT_WR)
        receive(ours, 1 << 16)


async def answered(sent: bytes, ask: Callable[[str], Coroutine[Any, Any, None]]) -> None:
    """Asked of a server that answers everything with the same bytes and hangs up."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1 << 16)
        writer.write(sent)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        await ask(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    finally:
        server.close()


async def upstream(url: str) -> None:
    server = Upstream(url)
    with suppress(Unreachable, CutOff):
        reply = await server.ask(UpstreamRequest("GET", "/v2", [], b""))
        try:
            b"".join([part async for part in reply.content])
        finally:
            reply.close()
    server.close()


async def load(url: str) -> None:
    raised: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: raised.append(context))
    with suppress(NoTarget):
        await drive(LoadPlan(url, "k", "scale", 1.0, 0.0, None, 1))
    assert not raised, raised


def request(body: bytes) -> None:
    head, _, tail = body.partition(b"\n")
    for whole, length in ((head + tail, len(head)), (body, len(body))):
        read_request(whole, length, lambda inputs, outputs: (len(inputs), len(outputs)))


def state(folder: Path) -> None:
    found = GatewayStateFolder(folder)
    address, learnt = found.read_address(), found.read_learnt()
    assert address is None or isinstance(address.url, str)
    assert all(seconds > 0 for of in learnt.values() for seconds in of.values())


def post(path: str, document: object, *more: str) -> bytes:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    lines = [f"POST {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {KEYS['alice']}", *more]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body


def get(path: str, name: str = "alice") -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: x\r\nX-API-Key: {KEYS[name]}\r\n\r\n".encode()


BINARY = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 1], "parameters": {"binary_data_size": 4}}]}
HEAD = json.dumps(BINARY | {"parameters": {"binary_data_output": True}}).encode()
CHATTING = {"model": "chat", "messages": [{"role": "user", "content": "?"}], "stream": False}
ASKED = (
    post("/v2/models/scale/infer", TENSOR, "X-Deadline-Ms: 200"),
    post("/v2/models/scale/infer", HEAD + b"\0\0\x80?", f"Inference-Header-Content-Length: {len(HEAD)}"),
    post("/v2/models/scale/infer", TENSOR | {"outputs": [{"name": "y"}], "id": "7"}, "Connection: close"),
    post("/v1/chat/completions", CHATTING),
    post("/v1/completions", CHATTING | {"prompt": "?"}),
    get("/v2/models/scale") + get("/v1/models"),
    get("/v2/models/scale/ready", "bob") + get("/metrics", "operator"),
)
ANSWERS = (
    [
        {
            "say": "end", "number": 0, "seconds": 0.1,
            "outputs": [{"name": "y", "datatype": "FP32", "shape": [1]}],
        }
    ],
    [{"say": "end", "number": 0, "status": 502, "why": "no"}],
    [{"say": "part", "number": 0, "http": 200, "type": "text/event-stream"}, {"say": "end", "number": 0}],
)  # fmt: skip
SIGNATURES = json.dumps({"name": "scale", **SCALE}).encode()
LEARNT = b'{"scale": {"cpu": 0.01, "gpu": 1}}'

TARGETS = (
    Target("gateway: HTTP, no unit up", in_loop(http), ASKED),
    Target("gateway: HTTP", in_loop(http_with_workers), ASKED),
    Target("gateway: frames of a worker", in_loop(frames), ANSWERS),
    Target(
        "gateway: greeting", in_loop(greeting), (b"".join(frame({"unit": "cpu", "proof": "x", "challenge": "y"})),)
    ),
    Target(
        "gateway: what a worker has loaded", in_loop(ready), ({"scale": SCALE}, {"scale": SCALE, "chat": CHAT})
    ),
    Target("frames", assembled, (b"".join(frame({"a": 1}, b"xyz")) * 2,), (BadFrame,)),
    Target("frame of a gateway", received, (b"".join(frame({"a": 1}, b"xyz")),), (BadFrame, EOFError)),
    Target(
        "request for tensors",
        request,
        (json.dumps(TENSOR).encode(),),
        (RequestRefused,),
    ),
    Target(
        "answer of another gateway",
        lambda sent: asyncio.run(answered(sent, upstream)),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        ),
    ),
    Target(
        "answer to a load",
        lambda sent: asyncio.run(answered(sent, load)),
        (b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(SIGNATURES), SIGNATURES),),
    ),
    Target(
        "configuration of a gateway",
        Beside(read_config, "serve.toml", BESIDE),
        (CONFIG.encode(),),
        names="serve.toml",
    ),
    Target(
        "keys of a tenant",
        Beside(
            lambda path: read_config(path.parent / "serve.toml"),
            "bob.keys",
            {"serve.toml": CONFIG.encode(), "scale.onnx": b""},
        ),
        (BESIDE["bob.keys"],),
        names="serve.toml",
    ),
    Target(
        "address of a gateway",
        Beside(state, "address.json", folder=True),
        (b'{"url": "http://h:1", "token": "t"}',),
        (),
    ),
    Target("what a gateway has learned", Beside(state, "learnt.json", folder=True), (LEARNT,), ()),
)
