"""The gateway's HTTP API: Open Inference Protocol, OpenAI's API, health, metrics and drain."""

from __future__ import annotations

import asyncio
import logging
import re
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from mirage.allocation.inference.serving import addressbook
from mirage.allocation.inference.serving.admission import Closed, RequestRefused
from mirage.allocation.inference.serving.bodies import (
    ClientDisconnect,
    key_of,
    origin_of,
    read_body,
    unless_gone,
)
from mirage.allocation.inference.serving.calls import complete, list_models, read_inference
from mirage.allocation.inference.serving.openinference import HEADER_LENGTH, json_length, read_object
from mirage.allocation.inference.serving.replies import PIECE, PacedAnswer, inquiry_of, pass_back
from mirage.allocation.inference.serving.upstream import Unreachable, Upstream

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.types import Receive, Scope, Send

    from mirage.allocation.inference.serving.calls import Inference
    from mirage.allocation.inference.serving.service import AdmittedRequest, GatewayService

    Endpoint = Callable[[Request], Awaitable[Response]]

_NAME = {"name": "mirage", "extensions": ["binary_tensor_data"]}
_GONE = 499
_HERE = "mirage.here"
"""Releases the request's place in the quota and its bytes, once a large answer has been sent."""
_MODEL = re.compile(r"/v2/models/([A-Za-z0-9_.-]{1,64})((?:/[a-z]+)?)")
_LOG = logging.getLogger(__name__)


class App:
    """The ASGI application. It has no middleware: each Python step of a request delays all requests."""

    def __init__(self, service: GatewayService) -> None:
        self.state = service
        self._fixed: dict[tuple[str, str], Endpoint] = {
            ("GET", "/v2"): _server,
            ("GET", "/v2/health/live"): _live,
            ("GET", "/v2/health/ready"): _ready,
            ("GET", "/v1/models"): list_models,
            ("POST", "/v1/completions"): _passed_on(complete),
            ("POST", "/v1/chat/completions"): _passed_on(complete),
            ("GET", "/health/live"): _live,
            ("GET", "/health/ready"): _ready,
            ("GET", "/metrics"): _metrics,
            ("POST", "/drain"): _drain,
            ("GET", addressbook.PLACE): _proof,
        }
        self._of_model: dict[tuple[str, str], Endpoint] = {
            ("GET", ""): _metadata,
            ("GET", "/ready"): _model_ready,
            ("POST", "/infer"): _passed_on(_infer),
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI entry point."""
        request = Request({**scope, "app": self, "path_params": {}}, receive)
        try:
            response = await self._answer(request)
            await self._await_turn(request, response.status_code)
            await response(scope, receive, send)
        finally:
            if (here := request.scope.pop(_HERE, None)) is not None:
                here.close()

    async def _await_turn(self, request: Request, status: int) -> None:
        """Return when the answer is due at its pace."""
        pace = self.state.paces.of(request.method, status)
        if pace is None or (request.scope["path"] == addressbook.PLACE and self.state.paces.prove(request.scope)):
            return
        await pace.hold(self.state.client(request.headers, origin_of(request)), request.scope)

    async def _answer(self, request: Request) -> Response:
        """Answer with the rejection."""
        try:
            return await self._find(request)(request)
        except RequestRefused as refusal:
            return _refused(request, refusal)
        except ClientDisconnect:
            return Response(status_code=_GONE)
        except Exception:
            _LOG.exception("%s %s", request.method, request.scope["path"])
            return _refused(request, RequestRefused(500, "internal error (bug in Mirage); see the gateway's log"))

    def _find(self, request: Request) -> Endpoint:
        """Raises ``RequestRefused``."""
        method, path = request.method, request.scope["path"]
        found = _MODEL.fullmatch(path)
        if found is None:
            endpoints, rest = self._fixed, path
        else:
            endpoints, rest = self._of_model, found[2]
            request.path_params["model"] = found[1]
        endpoint = endpoints.get((method, rest))
        if endpoint is None:
            others = [other for other, there in endpoints if there == rest]
            raise (
                RequestRefused(405, f"{path}: method not allowed (use {', '.join(others)})")
                if others
                else RequestRefused(404, f"{path}: not found")
            )
        return endpoint


def _refused(request: Request, refusal: RequestRefused) -> Response:
    if request.scope["path"].startswith("/v1/"):
        kind = "invalid_request_error" if refusal.status < 500 else "server_error"
        document = {"error": {"message": str(refusal), "type": kind}}
        return JSONResponse(document, refusal.status, headers=refusal.headers)
    return Response(refusal.body, refusal.status, headers=refusal.headers, media_type="application/json")


def _service(request: Request) -> GatewayService:
    service: GatewayService = request.app.state
    return service


def _passed_on(endpoint: Endpoint) -> Endpoint:
    """Forward the request to the successor, once that has taken over."""

    async def passed_on(request: Request) -> Response:
        successor = _service(request).doors.way_on()
        return await (endpoint(request) if successor is None else _forward(request, successor))

    return passed_on


async def _forward(request: Request, successor: Upstream) -> Response:
    service = _service(request)
    try:
        with service.memory.reserved(origin_of(request)) as memory:
            body = await read_body(request, service.plan.gateway.largest_body, memory)
            asking = asyncio.ensure_future(successor.ask(inquiry_of(request, body)))
            return pass_back(await unless_gone(request, asking), service.doors.passed)
    except BaseException as error:
        service.doors.passed()
        if isinstance(error, Unreachable):
            raise Closed(502, f"the successor's gateway does not answer: {error}", 1) from error
        raise


async def _infer(request: Request) -> Response:
    service, name = _service(request), request.path_params["model"]
    with ExitStack() as here:
        admission = here.enter_context(service.admitted(request.headers))
        service.model(admission.tenant, name)
        inference = await _read_inference(request, admission)
        _, answer = await service.answer(
            request, inference.wish, inference.header, inference.content, admission.memory
        )
        size = inference.json_size(answer, admission.memory)
        content, headers = await service.convert(admission.tenant, size, partial(inference.reply, answer))
        if len(content) <= PIECE:
            return Response(content, headers=headers)
        request.scope[_HERE] = here.pop_all()
        return PacedAnswer(content, headers=headers)


async def _read_inference(request: Request, admission: AdmittedRequest) -> Inference:
    service, name = _service(request), request.path_params["model"]
    body = await read_body(request, service.plan.gateway.largest_body, admission.memory)
    size = json_length(request.headers.get(HEADER_LENGTH), len(body))
    read = partial(read_inference, service, admission.tenant, name, request.headers, body)
    inference = await service.convert(admission.tenant, size, read)
    admission.memory.resize(inference.held)
    return inference


async def _server(request: Request) -> Response:
    from mirage import __version__

    del request
    return JSONResponse(_NAME | {"version": __version__})


async def _live(request: Request) -> Response:
    del request
    return JSONResponse({"live": True})


async def _ready(request: Request) -> Response:
    service = _service(request)
    ready = service.doors.open and service.gateway.ready
    return JSONResponse({"ready": ready}, 200 if ready else 503)


async def _metadata(request: Request) -> Response:
    service, name = _service(request), request.path_params["model"]
    service.model(service.tenants.find(key_of(request.headers)), name)
    inputs, outputs = service.gateway.signatures.get(name, ((), ()))
    return JSONResponse(
        {
            "name": name,
            "versions": ["1"],
            "platform": "onnxruntime" if inputs else "openai",
            "inputs": [each.document() for each in inputs],
            "outputs": [each.document() for each in outputs],
        }
    )


async def _model_ready(request: Request) -> Response:
    service, name = _service(request), request.path_params["model"]
    row = service.model(service.tenants.find(key_of(request.headers)), name)
    ready = service.doors.open and service.gateway.serves(row)
    return JSONResponse({"name": name, "ready": ready}, 200 if ready else 503)


async def _metrics(request: Request) -> Response:
    service = _service(request)
    service.tenants.check_operator(key_of(request.headers))
    content, content_type = service.gateway.meters.expose(request.headers.get("accept", ""))
    return Response(content, headers={"Content-Type": content_type})


async def _proof(request: Request) -> Response:
    """Prove to a client that can read the token there that this is the gateway of the state directory."""
    challenge = request.headers.get(addressbook.CHALLENGE, "")
    if not 0 < len(challenge) <= addressbook.LONGEST_CHALLENGE:
        longest = addressbook.LONGEST_CHALLENGE
        raise RequestRefused(400, f"{addressbook.CHALLENGE}: expected a challenge of at most {longest} characters")
    return Response(_service(request).identity.prove(challenge), media_type="text/plain")


async def _drain(request: Request) -> Response:
    """``{"to": "http://HOST:PORT"}``: the successor that is ready; without it new requests are rejected."""
    service = _service(request)
    service.tenants.check_operator(key_of(request.headers))
    with service.memory.reserved(None) as memory:
        to = read_object(await read_body(request, 4096, memory) or b"{}").get("to")
    try:
        successor = None if to is None else service.successor_at(str(to))
    except ValueError as error:
        raise RequestRefused(400, f"to: {error}") from None
    service.doors.drain(successor)
    return JSONResponse({"draining": True, "to": successor.url if successor else None}, 202)
