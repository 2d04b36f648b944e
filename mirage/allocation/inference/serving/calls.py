"""One request towards a unit and back: of the Open Inference Protocol, or of OpenAI's API.

Those of OpenAI's API are forwarded to the model's server, on the unit that the policy chooses.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse, Response

from mirage.allocation.inference.serving.admission import RequestRefused
from mirage.allocation.inference.serving.bodies import Streamed, key_of, read_body
from mirage.allocation.inference.serving.openinference import (
    HEADER_LENGTH,
    InferenceRequest,
    check_signature,
    cut,
    json_length,
    read_object,
    read_request,
    shown,
    write_answer,
)
from mirage.allocation.inference.serving.service import DEADLINE, GatewayService, trace_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from starlette.requests import Request

    from mirage.allocation.inference.serving.admission import BudgetReservation
    from mirage.allocation.inference.serving.exchanges import Unread, WorkerAnswer
    from mirage.allocation.inference.serving.openinference import Signature
    from mirage.allocation.inference.serving.request_queue import ArrivedRequest
    from mirage.allocation.inference.serving.service import AdmittedRequest


@dataclass(frozen=True, slots=True)
class Inference:
    """Raise ``RequestRefused`` unless the inputs are those of the model."""

    model: str
    asked: InferenceRequest
    wish: ArrivedRequest
    kept_json: int
    """Bytes of JSON that are kept, because they share one buffer with the data behind them."""

    @property
    def header(self) -> dict[str, Any]:
        """The message to the worker."""
        inputs = [each.document() for each in self.asked.tensors]
        return {"model": self.model, "inputs": inputs, "outputs": self.asked.outputs}

    @property
    def content(self) -> Sequence[memoryview]:
        """The bytes that follow the message."""
        return [each.data for each in self.asked.tensors]

    @property
    def held(self) -> int:
        """Bytes that it holds while it waits."""
        return self.kept_json + sum(map(len, self.content))

    def json_size(self, answer: WorkerAnswer, memory: BudgetReservation) -> int:
        """Largest JSON reply in bytes, which is held in addition to the answer. Raises ``RequestRefused``."""
        size = self.asked.json_size(cut(answer.header["outputs"], answer.data))
        memory.resize(len(answer.data) + size)
        return size

    def reply(self, answer: WorkerAnswer) -> tuple[bytes, dict[str, str]]:
        """Body and headers of the reply. Raises ``RequestRefused``. Any thread."""
        content, headers = write_answer(self.model, self.asked, cut(answer.header["outputs"], answer.data))
        return content, headers | trace_of(answer)


def read_inference(
    service: GatewayService, tenant: int, name: str, headers: Mapping[str, str], body: bytes
) -> Inference:
    """Parse a request. Raises ``RequestRefused``. Any thread."""
    model = service.model(tenant, name)
    if service.plan.models[model].onnx is None:
        raise RequestRefused(400, f"model {name!r} takes text; use POST /v1/chat/completions or /v1/completions")
    signatures = service.gateway.signatures.get(name)
    if signatures is None:
        raise RequestRefused(503, f"no unit has loaded model {name!r} yet", 1)
    length = json_length(headers.get(HEADER_LENGTH), len(body))
    asked = read_request(body, length, partial(_check, signatures))
    wish = service.wish(tenant, model, headers.get(DEADLINE, asked.deadline))
    return Inference(name, asked, wish, length if length < len(body) else 0)


def _check(
    signatures: tuple[Sequence[Signature], Sequence[Signature]],
    inputs: Sequence[Signature],
    outputs: Sequence[str],
) -> None:
    check_signature(inputs, signatures[0])
    if unknown := set(outputs) - {each.name for each in signatures[1]}:
        there = ", ".join(each.name for each in signatures[1])
        raise RequestRefused(400, f"outputs: unknown output {shown(min(unknown))} (available: {there})")


async def list_models(request: Request) -> Response:
    """``GET /v1/models``."""
    service: GatewayService = request.app.state
    row = service.tenants.find(key_of(request.headers))
    models = [{"id": model.name, "object": "model", "owned_by": "mirage"} for model in service.models_of(row)]
    return JSONResponse({"object": "list", "data": models})


async def complete(request: Request) -> Response:
    """``POST /v1/completions`` and ``/v1/chat/completions``."""
    service: GatewayService = request.app.state
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
    wish: ArrivedRequest
    content: bytes


async def _read(request: Request, admission: AdmittedRequest) -> _Completion:
    service: GatewayService = request.app.state
    body = await read_body(request, service.plan.gateway.largest_body, admission.memory)
    convert = partial(_convert, service, admission.tenant, request.headers.get(DEADLINE), body)
    asked = await service.convert(admission.tenant, len(body), convert)
    admission.memory.resize(len(asked.content))
    return asked


def _convert(service: GatewayService, tenant: int, deadline: str | None, body: bytes) -> _Completion:
    """Parse a request. Any thread."""
    document = read_object(body)
    row = _model(service, tenant, document.get("model"))
    model = service.plan.models[row]
    wish = service.wish(tenant, row, deadline)
    try:
        content = json.dumps(document | {"model": model.served_as}).encode()
    except RecursionError:
        raise RequestRefused(400, "the body is nested too deeply") from None
    return _Completion(model.name, document.get("stream") is True, wish, content)


def _model(service: GatewayService, tenant: int, name: object) -> int:
    if not isinstance(name, str):
        raise RequestRefused(400, "model: missing; name a model")
    row = service.model(tenant, name)
    if service.plan.models[row].onnx is not None:
        raise RequestRefused(400, f"model {name!r} takes tensors; use POST /v2/models/{name}/infer")
    return row


async def _parts(parts: Unread) -> AsyncIterator[bytes]:
    """Report an error within an answer that has begun, as OpenAI's protocol does, and end it."""
    while (part := await parts.take()) is not None:
        if not isinstance(part, memoryview):
            error = {"error": {"message": str(part), "type": "server_error"}}
            yield f"data: {json.dumps(error)}\n\n".encode()
            return
        yield bytes(part)
