"""Run one gateway, from start to exit code, and hand over between the gateways of two links."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from mirage.allocation.inference.serving import addressbook
from mirage.allocation.inference.serving.addressbook import GatewayAddress, GatewayStateFolder
from mirage.allocation.inference.serving.admission import Admission, MemoryBudget
from mirage.allocation.inference.serving.app import App
from mirage.allocation.inference.serving.configfile import digest_of
from mirage.allocation.inference.serving.gateway import Gateway
from mirage.allocation.inference.serving.httpserver import HttpListenAddress, make_server
from mirage.allocation.inference.serving.meters import ServingMeters
from mirage.allocation.inference.serving.request_queue import RequestQueue
from mirage.allocation.inference.serving.seating import estimates_of, seats_of, system_of
from mirage.allocation.inference.serving.service import GatewayIdentity, GatewayService, JsonThread, Tenants
from mirage.allocation.inference.serving.shortcut import Shortcut
from mirage.allocation.inference.serving.upstream import CutOff, Unreachable, Upstream, UpstreamRequest
from mirage.allocation.inference.serving.worker_connections import WorkerListener
from mirage.allocation.inference.serving.worker_supervisor import WorkerSupervisor, Workshop
from mirage.domain.errors import ConfigError
from mirage.tlshandshake import serve_bounded

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirage.allocation.engine.run import Place
    from mirage.allocation.inference.serving.plan import ServingPlan
    from mirage.allocation.inference.serving.worker_supervisor import Seat
    from mirage.ports import RequestPolicy

_PATIENCE = 10.0


async def take_over(folder: GatewayStateFolder, own: GatewayAddress) -> str:
    """Become the gateway that clients find, and notify the predecessor; returns the result for the log.

    The address is written first: clients that have read the old address are still answered there.
    """
    before = folder.read_address()
    folder.write_address(own)
    if before is None or before.url == own.url:
        return "ready"
    headers = [(b"authorization", f"Bearer {before.token}".encode()), (b"content-type", b"application/json")]
    inquiry = UpstreamRequest("POST", "/drain", headers, json.dumps({"to": own.url}).encode())
    upstream = Upstream(before.url, before.token)
    try:
        async with asyncio.timeout(_PATIENCE):
            reply = await upstream.ask(inquiry)
            async for _ in reply.content:
                pass
    except (Unreachable, CutOff, TimeoutError):
        return f"ready; the predecessor's gateway {before.url} is gone"
    reply.close()
    upstream.close()
    if reply.status != 202:
        return f"ready; {before.url} is no longer the predecessor's gateway (status {reply.status})"
    return f"ready; {before.url} forwards its requests to this gateway and drains"


_LOOK = 0.1
_LINGER = 10.0
"""Seconds without a request to forward after which a gateway exits that has a successor."""
_LAST = 15.0
"""Seconds before the allocation's end from which new requests are rejected."""
_KEEP_EVERY = 30.0
_WRITE_AGAIN = 5.0
_TOLD = (signal.SIGTERM, signal.SIGINT)


class RunningGateway:
    """A running gateway, in the event loop that creates it."""

    def __init__(
        self, plan: ServingPlan, place: Place, policy: RequestPolicy, here: str, say: Callable[[str], None]
    ) -> None:
        """``here``: this node's name. Raises ``ConfigError``."""
        # Reading longer numbers takes quadratic time, and no request has any.
        sys.set_int_max_str_digits(sys.int_info.str_digits_check_threshold)
        self._plan, self._place, self._say = plan, place, say
        self._loop = asyncio.get_running_loop()
        self._folder = GatewayStateFolder(plan.gateway.state)
        self._folder.make()
        seats = seats_of(plan, place.allocation.nodes, here)
        estimates = estimates_of(plan, self._folder.read_learnt())
        self._desk = RequestQueue(
            system_of(plan), estimates, len(plan.tenants), plan.queue.most, plan.queue.longest_wait
        )
        meters = ServingMeters([t.name for t in plan.tenants], [m.name for m in plan.models])
        say(f"preparing policy {policy.name}")
        policy.begin()
        policy.decide(self._desk.view(time.monotonic()))  # compile compiled policies before the first request
        self.gateway = Gateway(plan, self._desk, policy, meters)
        self._identity = GatewayIdentity(addressbook.fresh())
        operators = (*plan.gateway.operators, digest_of(self._identity.token))
        tenants = Tenants(plan.tenants, operators, time.monotonic())
        self.doors = Admission(time.monotonic)
        self._said: set[str] = set()
        self._json, memory = JsonThread(), MemoryBudget(plan.gateway.all_bodies)
        service = GatewayService(
            plan, self.gateway, tenants, self.doors, time.monotonic, memory, self._json, self._identity
        )
        self._app = App(service)
        self._seats: list[Seat] = seats
        self.posts = list[WorkerSupervisor]()
        self._gate = WorkerListener()
        self._hands = ThreadPoolExecutor(1, "engine")
        self._told = list[str]()

    @property
    def url(self) -> str:
        """URL on which it listens; empty before it does."""
        return self._identity.url

    async def run(self) -> int:
        """Run until a successor has taken over, a signal, or the allocation's end; returns the exit code."""
        plan = self._plan.gateway
        listening = HttpListenAddress(plan.host, plan.port, plan.certificate, plan.certificate_key)
        server, bound = make_server(self._app, listening, Shortcut), listening.bind()
        self._identity.url = listening.url(bound)
        await self._open_gate()
        self._obey_signals()
        workshop = self._workshop()
        self.posts = [WorkerSupervisor(seat, workshop, self.gateway) for seat in self._seats]
        tasks = [asyncio.create_task(post.keep()) for post in self.posts]
        tasks.append(asyncio.create_task(self.gateway.watch(self._kill)))
        serving = asyncio.create_task(serve_bounded(server, bound))
        self._say(f"starting {len(self.posts)} workers; the gateway listens on {self.url}")
        try:
            return await self._live(serving)
        finally:
            server.should_exit = True
            await asyncio.gather(serving, return_exceptions=True)
            await _end(tasks)
            self._gate.close()
            self._hands.shutdown(wait=False)
            self._json.close()
            self._keep_learnt()

    async def _live(self, serving: asyncio.Task[None]) -> int:
        taken_over, kept, again = False, time.monotonic(), 0.0
        while not self._is_over():
            if serving.done():
                await serving
                raise ConfigError("gateway.listen", "the HTTP server has ended unexpectedly")
            if not taken_over and self.gateway.ready and self.doors.open and time.monotonic() >= again:
                gc.freeze()  # loaded objects stay: to scan them takes tens of milliseconds
                taken_over, again = await self._take_over(), time.monotonic() + _WRITE_AGAIN
            if time.monotonic() - kept > _KEEP_EVERY:
                kept = time.monotonic()
                self._keep_learnt()
            if self._must_end() and self.doors.open:
                self._say("new requests are rejected; waiting requests are still answered")
                self.doors.drain(None)
            await asyncio.sleep(_LOOK)
        self._say("the gateway ends")
        return 0

    async def _take_over(self) -> bool:
        """Whether the state directory names this gateway now; without room there it answers all the same."""
        try:
            self._say(await take_over(self._folder, GatewayAddress(self.url, self._identity.token)))
        except OSError as error:
            self._say_once(f"{self._folder.path}: cannot write this gateway's address: {error.strerror}")
            return False
        return True

    def _keep_learnt(self) -> None:
        """Save the estimates for the next gateway; without room on the disk the gateway continues."""
        try:
            self._folder.write_learnt(self._desk.estimates.document())
        except OSError as error:
            self._say_once(f"{self._folder.path}: cannot write estimates: {error.strerror}")

    def _say_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._say(text)

    def _is_over(self) -> bool:
        if sum(name != "SIGUSR1" for name in self._told) > 1:
            return True
        if self.doors.open or self.doors.passing or not self.gateway.idle:
            return False
        return self._must_end() or time.monotonic() - self.doors.forwarded_at > _LINGER

    def _must_end(self) -> bool:
        """Whether to end: a warning signal alone is no reason before a successor exists."""
        end = self._place.allocation.end
        return any(name != "SIGUSR1" for name in self._told) or (end is not None and time.time() > end - _LAST)

    def _kill(self, unit: int) -> None:
        for post in self.posts:
            if unit in post.seat.units:
                self._say(f"unit {post.seat.name}: the worker hangs")
                post.kill()

    async def _open_gate(self) -> None:
        """Listen for workers; srun may start them on other nodes."""
        if self._place.engine.name == "srun":
            await self._gate.open("0.0.0.0", socket.gethostname())  # noqa: S104 - workers must authenticate
        else:
            await self._gate.open("127.0.0.1", "127.0.0.1")

    def _workshop(self) -> Workshop:
        folder = self._folder.path / "links" / f"{time.time_ns():x}.{os.getpid()}"
        folder.mkdir(mode=0o700, parents=True)
        return Workshop(
            self._place.engine, self._hands, self._gate, folder, self._plan.workers.ready_within, self._say
        )

    def _obey_signals(self) -> None:
        for number in (signal.SIGUSR1, *_TOLD):
            self._loop.add_signal_handler(number, self._told.append, signal.Signals(number).name)


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
