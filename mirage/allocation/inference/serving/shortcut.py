"""Inference requests between connection and gateway without ASGI, because each Python step of a request delays
all requests.

uvicorn keeps the connections. A request that arrives completely, alone on its connection, while the gateway is
open, is answered here. Every other request goes to the application: in parts, pipelined, announced by ``Expect``,
of another kind, or while the gateway drains. The application answers inference requests by the same functions.
"""

from __future__ import annotations

import asyncio
import logging
import re
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from mirage.allocation.inference.serving.admission import RequestRefused
from mirage.allocation.inference.serving.calls import Inference, read_inference
from mirage.allocation.inference.serving.httpserver import GuardedProtocol
from mirage.allocation.inference.serving.openinference import HEADER_LENGTH, LARGEST_INLINE, has_small_json
from mirage.allocation.inference.serving.replies import PATIENCE, PIECE, pieces_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirage.allocation.inference.serving.exchanges import Exchange, WorkerAnswer
    from mirage.allocation.inference.serving.service import AdmittedRequest, GatewayService

_INFER = re.compile(rb"/v2/models/([A-Za-z0-9_.-]{1,64})/infer")
_LOG = logging.getLogger(__name__)


class Shortcut(GuardedProtocol):
    """A client's connection to a gateway."""

    def __init__(self, *args: Any, **more: Any) -> None:
        """Arguments as uvicorn passes them."""
        super().__init__(*args, **more)
        self._service: GatewayService = self.app.state
        self._held: bytes | None = None
        """The model of a request that is not complete yet."""
        self._parts: list[bytes] = []
        self._call: Call | None = None

    def on_headers_complete(self) -> None:
        """Keep the head until the rest of the received data is parsed."""
        self._held = self._model()
        if self._held is None:
            super().on_headers_complete()
        else:
            self.end_headers()
            self._parts = []

    def on_body(self, body: bytes) -> None:
        """Part of the body, or all of it."""
        if self._held is None:
            super().on_body(body)
        else:
            self._parts.append(body)

    def on_message_complete(self) -> None:
        """The request is complete."""
        if self._held is None:
            super().on_message_complete()
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(self.headers)}
        if not has_small_json(headers.get(HEADER_LENGTH), sum(map(len, self._parts))):
            self._let_go()
            super().on_message_complete()
            return
        name, self._held = self._held.decode(), None
        keep = self.parser.get_http_version() == "1.1" and self.parser.should_keep_alive()
        self.cycle = self._call = Call(self, self._service, keep_alive=keep)  # type: ignore[assignment]
        self._call.begin(name, headers, b"".join(self._parts))

    def data_received(self, data: bytes) -> None:
        """Hand an incomplete request to the application."""
        super().data_received(data)
        if self._held is not None and not self.transport.is_closing():
            self._let_go()
            self.rest()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has disconnected."""
        super().connection_lost(exc)
        if self._call is not None:
            self._call.leave()

    def _let_go(self) -> None:
        """Hand what is kept to the application."""
        self._held = None
        super().on_headers_complete()
        for part in self._parts:
            super().on_body(part)
        self._parts = []

    def _model(self) -> bytes | None:
        found = _INFER.fullmatch(self.url)
        alone = self.cycle is None or self.cycle.response_complete
        if found is None or not alone or self.expect_100_continue or not self._service.doors.open:
            return None
        return found[1] if self.parser.get_method() == b"POST" else None


class Call:
    """One request, in the place of uvicorn's ``RequestResponseCycle``. Implements ``exchanges.Promise``."""

    def __init__(self, connection: Shortcut, service: GatewayService, *, keep_alive: bool) -> None:
        self._connection, self._service = connection, service
        self._exchange: Exchange | None = None
        self._inference: Inference | None = None
        self._admission: AdmittedRequest | None = None
        self._here = ExitStack()
        """Releases the request's place in the tenant's quota and its bytes."""
        self._headers: Mapping[str, str] = {}
        self._writing: asyncio.Task[None] | None = None
        self._due: asyncio.TimerHandle | None = None
        """When a delayed rejection is sent."""
        self.keep_alive, self.response_complete, self.disconnected = keep_alive, False, False
        self.message_event = self
        """Required by uvicorn; set when the client disconnects, which the connection also reports."""

    def set(self) -> None:
        """Same as ``message_event``."""

    def begin(self, name: str, headers: Mapping[str, str], body: bytes) -> None:
        """Submit the request, or reject it."""
        service = self._service
        self._headers = headers
        try:
            self._admission = self._here.enter_context(service.admitted(headers))
            if len(body) > service.plan.gateway.largest_body:
                raise RequestRefused(413, f"request too large (at most {service.plan.gateway.largest_body} bytes)")
            self._admission.memory.resize(len(body))
            self._inference = read_inference(service, self._admission.tenant, name, headers, body)
            self._admission.memory.resize(self._inference.held)
            self._exchange = service.gateway.ask(
                self._inference.wish,
                self._inference.header,
                self._inference.content,
                self,
                self._admission.memory,
            )
        except RequestRefused as refusal:
            self._refuse(refusal)
        except Exception:
            self._fail()

    def leave(self) -> None:
        """The client has disconnected."""
        self.disconnected = True
        if not self.response_complete:
            self._close()
            if self._exchange is not None:
                self._service.gateway.withdraw(self._exchange)

    def done(self) -> bool:
        """See ``Promise``."""
        return self.response_complete

    def set_result(self, answer: WorkerAnswer) -> None:
        """See ``Promise``."""
        assert self._inference is not None
        assert self._admission is not None
        try:
            size = self._inference.json_size(answer, self._admission.memory)
            if size > LARGEST_INLINE:
                self._writing = asyncio.get_running_loop().create_task(self._write_later(answer, size))
                return
            content, headers = self._inference.reply(answer)
        except RequestRefused as refusal:
            self._refuse(refusal)
        except Exception:
            self._fail()
        else:
            self._write(200, content, headers)

    async def _write_later(self, answer: WorkerAnswer, size: int) -> None:
        """Write a large answer."""
        assert self._inference is not None
        assert self._admission is not None
        write = partial(self._inference.reply, answer)
        try:
            content, headers = await self._service.convert(self._admission.tenant, size, write)
        except RequestRefused as refusal:
            self._refuse(refusal)
        except Exception:
            self._fail()
        else:
            self._write(200, content, headers)

    def set_exception(self, refusal: RequestRefused) -> None:
        """See ``Promise``."""
        self._refuse(refusal)

    def _fail(self) -> None:
        _LOG.exception("an inference request")
        self._refuse(RequestRefused(500, "internal error (bug in Mirage); see the gateway's log"))

    def _refuse(self, refusal: RequestRefused) -> None:
        if self._admission is not None:
            self._service.count(self._admission.tenant, refusal)
        headers = {"Content-Type": "application/json"} | refusal.headers
        delay = self._delay(refusal.status)
        if delay and not self.response_complete:
            self._here.close()
            self._connection.presence.hold()
            write = partial(self._write, refusal.status, refusal.body, headers)
            self._due = self._connection.loop.call_later(delay, write)
        else:
            self._write(refusal.status, refusal.body, headers)

    def _delay(self, status: int) -> float:
        """Seconds until a rejection is sent."""
        pace = self._service.paces.of("POST", status)
        return pace.delay(self._service.client(self._headers, self._connection.origin)) if pace else 0.0

    def _write(self, status: int, content: bytes, headers: Mapping[str, str]) -> None:
        """Send head and body together, so that the client wakes once; does nothing if it has disconnected."""
        if self.response_complete:
            return
        own = [name + b": " + value for name, value in self._connection.server_state.default_headers]
        own += [f"{name}: {value}".encode("latin-1") for name, value in headers.items()]
        own.append(b"Content-Length: %d" % len(content))
        if not self.keep_alive:
            own.append(b"Connection: close")
        head = (STATUS_LINE[status], b"\r\n".join(own), b"\r\n\r\n")
        if len(content) > PIECE:
            self._connection.transport.writelines(head)
            self._writing = asyncio.get_running_loop().create_task(self._write_as_taken(content))
            return
        self._connection.transport.writelines((*head, content))
        self._complete()

    async def _write_as_taken(self, content: bytes) -> None:
        """Send in parts; a client that takes nothing for a minute is disconnected."""
        transport, flow = self._connection.transport, self._connection.flow
        try:
            for piece in pieces_of(content):
                if self.disconnected:
                    return
                transport.write(piece)
                await asyncio.wait_for(flow.drain(), PATIENCE)
        except TimeoutError:
            transport.abort()
            return
        self._complete()

    def _complete(self) -> None:
        self._close()
        if not self.keep_alive:
            self._connection.transport.close()
        self._connection.on_response_complete()

    def _close(self) -> None:
        self.response_complete = True
        self._connection.presence.held = False
        if self._due is not None:
            self._due.cancel()
        self._here.close()
