"""OpenAI's API: forwarded to the model's server, on the unit that the policy chooses."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from starlette.responses import JSONResponse, Response

from mirage.allocation.inference.serving.bodies import Streamed, key_of, read_body
from mirage.allocation.inference.serving.openinference import read_object
from mirage.allocation.inference.serving.refusals import Refusal
from mirage.allocation.inference.serving.service import DEADLINE, Service, trace_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request

    from mirage.allocation.inference.serving.desk import Wish
    from mirage.allocation.inference.serving.exchanges import Unread
    from mirage.allocation.inference.serving.service import Admission


async def list_models(request: Request) -> Response:
    """``GET /v1/models``."""
    service: Service = request.app.state
    row = service.tenants.find(key_of(request.headers))
    models = [{"id": model.name, "object": "model", "owned_by": "mirage"} for model in service.models_of(row)]
    return JSONResponse({"object": "list", "data": models})


async def complete(request: Request) -> Response:
    """``POST /v1/completions`` and ``/v1/chat/completions``."""
    service: Service = request.app.state
    with ExitStack() as stack:
        admission = stack.enter_context(service.admitted(request.headers))
        asked = await _read(request, admission)
        header = {"model": asked.model, "path": request.url.path, "stream": asked.stream}
        exchange, answer = await service.answer(request, asked.wish, header, [asked.content], admission.memory)
        headers = {"Content-Type": str(answer.header.get("type", "application/json"))} | trace_of(answer)
        status = int(answer.header.get("http", 200))
        if answer.parts is None:
            return Response(bytes(answer.data), status, headers=headers)
        stack.callback(service.gateway.withdraw, exchange)
        return Streamed(_parts(answer.parts), status, headers, stack.pop_all().close)


@dataclass(frozen=True, slots=True)
class _Completion:
    """A text request, as sent to the model's server."""

    model: str
    stream: bool
    wish: Wish
    content: bytes


async def _read(request: Request, admission: Admission) -> _Completion:
    service: Service = request.app.state
    body = await read_body(request, service.plan.gateway.largest_body, admission.memory)
    convert = partial(_convert, service, admission.tenant, request.headers.get(DEADLINE), body)
    asked = await service.convert(admission.tenant, len(body), convert)
    admission.memory.resize(len(asked.content))
    return asked


def _convert(service: Service, tenant: int, deadline: str | None, body: bytes) -> _Completion:
    """Parse a request. Any thread."""
    document = read_object(body)
    row = _model(service, tenant, document.get("model"))
    model = service.plan.models[row]
    wish = service.wish(tenant, row, deadline)
    try:
        content = json.dumps(document | {"model": model.served_as}).encode()
    except RecursionError:
        raise Refusal(400, "the body is nested too deeply") from None
    return _Completion(model.name, document.get("stream") is True, wish, content)


def _model(service: Service, tenant: int, name: object) -> int:
    if not isinstance(name, str):
        raise Refusal(400, "model: missing; name a model")
    row = service.model(tenant, name)
    if service.plan.models[row].onnx is not None:
        raise Refusal(400, f"model {name!r} takes tensors; use POST /v2/models/{name}/infer")
    return row


async def _parts(parts: Unread) -> AsyncIterator[bytes]:
    """Report an error within an answer that has begun, as OpenAI's protocol does, and end it."""
    while (part := await parts.take()) is not None:
        if not isinstance(part, memoryview):
            error = {"error": {"message": str(part), "type": "server_error"}}
            yield f"data: {json.dumps(error)}\n\n".encode()
            return
        yield bytes(part)
