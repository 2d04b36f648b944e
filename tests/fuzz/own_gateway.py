"""A gateway in the process that fuzzes it: real connections on loopback, workers that are answered for here."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import socket
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirage.allocation.inference.serving import addressbook
from mirage.allocation.inference.serving.admission import Admission, MemoryBudget
from mirage.allocation.inference.serving.app import App
from mirage.allocation.inference.serving.configfile import read_config
from mirage.allocation.inference.serving.gateway import Gateway, first_come
from mirage.allocation.inference.serving.httpserver import HttpListenAddress, make_server
from mirage.allocation.inference.serving.meters import ServingMeters
from mirage.allocation.inference.serving.request_queue import RequestQueue
from mirage.allocation.inference.serving.seating import estimates_of, seats_of, system_of
from mirage.allocation.inference.serving.service import GatewayIdentity, GatewayService, JsonThread, Tenants
from mirage.allocation.inference.serving.shortcut import Shortcut
from mirage.allocation.inference.serving.worker_connections import Assembler, WorkerListener, frame

if TYPE_CHECKING:
    from mirage.allocation.inference.serving.worker_connections import WorkerConnection
    from mirage.domain.inference import Dispatch, SystemView

KEYS = {name: f"{name}-key-0123456789" for name in ("alice", "bob", "operator")}


def digest(name: str) -> str:
    return hashlib.sha256(KEYS[name].encode()).hexdigest()


CONFIG = f"""[gateway]
listen = "127.0.0.1:0"
operators = ["{digest("operator")}"]
largest_body_mb = 1
[queue]
longest_wait = "10s"
[[model]]
name = "scale"
onnx = "scale.onnx"
warm = {{x = [1, 4]}}
[[model]]
name = "chat"
backend = ["serve", "--port={{port}}"]
[[unit]]
name = "cpu"
[[unit]]
name = "server"
models = ["chat"]
slots = 4
[[tenant]]
name = "alice"
keys = ["{digest("alice")}"]
deadline = "500ms"
rate = 1e9
[[tenant]]
name = "bob"
key_file = "bob.keys"
models = ["scale"]
"""
BESIDE = {"scale.onnx": b"", "bob.keys": KEYS["bob"].encode()}
SCALE = {
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, -1]}],
    "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1]}],
    "seconds": 0.01,
}
CHAT: dict[str, Any] = {"inputs": [], "outputs": []}
TENSOR = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1.0, 2.0]}]}
TURNS = 40
"""Of the loop, within which all that follows from what was sent has happened."""


class FirstCome:
    """The policy that a gateway goes back to, which needs no compiling."""

    name = "first-come"
    period = math.inf

    def begin(self) -> None:
        """Nothing is kept."""

    def decide(self, view: SystemView) -> Dispatch:
        return first_come(view)


class Worker:
    """A worker's end of its connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer, self._reader, self._frames = writer, reader, Assembler()

    async def hear(self) -> dict[str, Any]:
        while True:
            data = await self._reader.read(1 << 16)
            if not data:
                raise EOFError
            for header, _ in self._frames.feed(data):
                return header

    def say(self, header: dict[str, Any], data: bytes = b"") -> None:
        self.writer.writelines(frame(header, data))


class OwnGateway:
    """In a separate event loop, which runs only while something is tried."""

    def __init__(self, folder: Path) -> None:
        logging.getLogger("uvicorn.error").addHandler(logging.NullHandler())
        self.loop = asyncio.new_event_loop()
        self.raised: list[object] = []
        self.loop.set_exception_handler(lambda _, context: self.raised.append(context))
        for name, content in BESIDE.items():
            (folder / name).write_bytes(content)
            (folder / name).chmod(0o600)
        (folder / "serve.toml").write_text(CONFIG)
        self.plan = read_config(folder / "serve.toml")
        self.loop.run_until_complete(self._open())

    async def _open(self) -> None:
        plan, clock = self.plan, time.monotonic
        desk = RequestQueue(system_of(plan), estimates_of(plan, {}), len(plan.tenants), 100, 30.0)
        meters = ServingMeters([t.name for t in plan.tenants], [m.name for m in plan.models])
        self.gateway = Gateway(plan, desk, FirstCome(), meters)
        tenants = Tenants(plan.tenants, plan.gateway.operators, clock())
        self.service = GatewayService(
            plan,
            self.gateway,
            tenants,
            Admission(clock),
            clock,
            MemoryBudget(16 << 20),
            JsonThread(),
            GatewayIdentity("t", "u"),
        )
        self.server = make_server(App(self.service), HttpListenAddress("127.0.0.1", 0), Shortcut)
        self.seats = {seat.name: seat for seat in seats_of(plan, ("n0",), "n0")}
        self.gate = WorkerListener()
        await self.gate.open("127.0.0.1", "127.0.0.1")

    def check(self) -> None:
        """Nothing has come as far as the loop."""
        raised, self.raised = self.raised, []
        assert not raised, raised

    async def connect(self) -> Worker:
        """A client at the gate that has sent no key."""
        host, _, port = self.gate.address.partition(":")
        return Worker(*await asyncio.open_connection(host, int(port)))

    async def worker(self, seat: str, models: dict[str, Any]) -> tuple[Worker, WorkerConnection]:
        """One that has greeted and is ready. Raises ``BadFrame``, and ``EOFError`` where it is cut off."""
        worker = await self.connect()
        try:
            link = await self._greeted(worker, seat, models)
        except BaseException:
            worker.writer.transport.abort()
            await turn()
            raise
        return worker, link

    async def _greeted(self, worker: Worker, seat: str, models: dict[str, Any]) -> WorkerConnection:
        secret = addressbook.fresh()
        expected = self.gate.expect(seat, secret, {})
        challenge = await worker.hear()
        proven = addressbook.prove(secret, "worker", challenge["challenge"])
        worker.say({"unit": seat, "proof": proven, "challenge": "x"})
        await worker.hear()
        worker.say({"ready": models})
        gone = asyncio.ensure_future(worker.hear())
        await asyncio.wait((expected.ready, gone), return_when=asyncio.FIRST_COMPLETED)
        if not expected.ready.done():
            await gone
        gone.cancel()
        link, told = expected.ready.result()
        try:
            self.gateway.came(self.seats[seat], link, told)
        except BaseException:
            link.abort()
            raise
        return link

    async def asked_over_http(self, sent: bytes) -> bytes:
        """The answer to a connection that sends this and listens for a moment."""
        listening = socket.create_server(("127.0.0.1", 0))
        with listening, socket.create_connection(listening.getsockname()) as client:
            accepted, _ = listening.accept()
            config, state = self.server.config, self.server.server_state
            transport, _ = await self.loop.connect_accepted_socket(
                lambda: Shortcut(config=config, server_state=state, app_state={}), accepted
            )
            client.setblocking(False)
            await self.loop.sock_sendall(client, sent)
            answer = await self._heard(client)
            transport.abort()
            await turn()
        return answer

    async def _heard(self, client: socket.socket) -> bytes:
        found = b""
        for _ in range(3):
            await turn()
            try:
                while part := client.recv(1 << 16):
                    found += part
            except (BlockingIOError, ConnectionError):
                continue
            break
        return found


async def turn() -> None:
    """Run all callbacks that are ready."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


@cache
def own_gateway() -> OwnGateway:
    """One for all inputs. Its directory goes with the process."""
    FOLDERS.append(tempfile.TemporaryDirectory())
    return OwnGateway(Path(FOLDERS[-1].name))


FOLDERS: list[tempfile.TemporaryDirectory[str]] = []
