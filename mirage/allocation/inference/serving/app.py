"""The gateway's HTTP interface: the Open Inference Protocol, OpenAI's, health, metrics and drain."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from mirage.allocation.inference.serving.bodies import ClientDisconnect, key_of, read_body, unless_gone
from mirage.allocation.inference.serving.doors import Closed
from mirage.allocation.inference.serving.openaicalls import complete, list_models
from mirage.allocation.inference.serving.openinference import (
    HEADER_LENGTH,
    read_object,
    read_request,
    write_answer,
)
from mirage.allocation.inference.serving.passing import inquiry_of, pass_back
from mirage.allocation.inference.serving.refusals import Refusal
from mirage.allocation.inference.serving.service import DEADLINE, Service, trace_of
from mirage.allocation.inference.serving.tensors import Tensor, check_signature, cut
from mirage.allocation.inference.serving.upstream import Unreachable, Upstream

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request

    Endpoint = Callable[[Request], Awaitable[Response]]

_NAME = {"name": "mirage", "extensions": ["binary_tensor_data"]}
_GONE = 499


def create_app(service: Service) -> Starlette:
    """The application; ``request.app.state.service`` is the service."""
    routes = [
        Route("/v2", _server),
        Route("/v2/health/live", _live),
        Route("/v2/health/ready", _ready),
        Route("/v2/models/{model}", _guarded(_metadata)),
        Route("/v2/models/{model}/ready", _guarded(_model_ready)),
        Route("/v2/models/{model}/infer", _guarded(_passed_on(_infer)), methods=["POST"]),
        Route("/v1/models", _guarded(list_models)),
        Route("/v1/completions", _guarded(_passed_on(complete)), methods=["POST"]),
        Route("/v1/chat/completions", _guarded(_passed_on(complete)), methods=["POST"]),
        Route("/health/live", _live),
        Route("/health/ready", _ready),
        Route("/metrics", _guarded(_metrics)),
        Route("/drain", _guarded(_drain), methods=["POST"]),
    ]
    app = Starlette(routes=routes)
    app.state.service = service
    return app


def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


def _guarded(endpoint: Endpoint) -> Endpoint:
    """A refusal is an answer too."""

    async def guarded(request: Request) -> Response:
        try:
            return await endpoint(request)
        except Refusal as refusal:
            openai = request.url.path.startswith("/v1/")
            said = str(refusal)
            error = {"message": said, "type": "invalid_request_error" if refusal.status < 500 else "server_error"}
            document = {"error": error if openai else said}
            return JSONResponse(document, refusal.status, headers=refusal.headers)
        except ClientDisconnect:
            return Response(status_code=_GONE)

    return guarded


def _passed_on(endpoint: Endpoint) -> Endpoint:
    """To the successor, when it has taken over."""

    async def passed_on(request: Request) -> Response:
        successor = _service(request).doors.way_on()
        return await (endpoint(request) if successor is None else _forward(request, successor))

    return passed_on


async def _forward(request: Request, successor: Upstream) -> Response:
    service = _service(request)
    try:
        inquiry = inquiry_of(request, await read_body(request, service.plan.gateway.largest_body))
        return pass_back(await unless_gone(request, successor.ask(inquiry)), service.doors.passed)
    except BaseException as error:
        service.doors.passed()
        if isinstance(error, Unreachable):
            raise Closed(502, f"the gateway that has taken over does not answer: {error}", 1) from error
        raise


async def _infer(request: Request) -> Response:
    service, name = _service(request), request.path_params["model"]
    with service.admitted(request) as tenant:
        model = service.model(tenant, name)
        if service.plan.models[model].onnx is None:
            raise Refusal(400, f"model {name!r} answers texts: POST /v1/chat/completions or /v1/completions")
        body = await read_body(request, service.plan.gateway.largest_body)
        asked = read_request(body, request.headers.get(HEADER_LENGTH))
        _check(service, name, asked.outputs, asked.tensors)
        wish = service.wish(tenant, model, request.headers.get(DEADLINE, asked.parameters.get("deadline_ms")))
        header = {"model": name, "inputs": [each.document() for each in asked.tensors], "outputs": asked.outputs}
        _, answer = await service.answer(request, wish, header, [each.data for each in asked.tensors])
        content, headers = write_answer(name, asked, cut(answer.header["outputs"], answer.data))
        return Response(content, headers=headers | trace_of(answer))


def _check(service: Service, name: str, outputs: tuple[str, ...], tensors: list[Tensor]) -> None:
    signatures = service.gateway.signatures.get(name)
    if signatures is None:
        raise Refusal(503, f"no unit has loaded model {name!r} yet", 1)
    check_signature(tensors, signatures[0])
    if unknown := set(outputs) - {each.name for each in signatures[1]}:
        there = ", ".join(each.name for each in signatures[1])
        raise Refusal(400, f"outputs: there is no {sorted(unknown)[0]!r}; there are: {there}")


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
    service.model(service.tenants.find(key_of(request)), name)
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
    row = service.model(service.tenants.find(key_of(request)), name)
    ready = service.doors.open and service.gateway.serves(row)
    return JSONResponse({"name": name, "ready": ready}, 200 if ready else 503)


async def _metrics(request: Request) -> Response:
    service = _service(request)
    service.tenants.check_operator(key_of(request))
    content, content_type = service.gateway.meters.expose(request.headers.get("accept", ""))
    return Response(content, headers={"Content-Type": content_type})


async def _drain(request: Request) -> Response:
    """``{"to": "http://HOST:PORT"}``: the successor that is ready; without it new requests are refused."""
    service = _service(request)
    service.tenants.check_operator(key_of(request))
    to = read_object(await read_body(request, 4096) or b"{}").get("to")
    try:
        successor = None if to is None else Upstream(str(to))
    except ValueError as error:
        raise Refusal(400, f"to: {error}") from None
    service.doors.drain(successor)
    return JSONResponse({"draining": True, "to": successor.url if successor else None}, 202)
