"""One inference request of the Open Inference Protocol, towards a unit and back."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from mirage.allocation.inference.serving.openinference import (
    HEADER_LENGTH,
    Asked,
    json_length,
    read_request,
    write_answer,
)
from mirage.allocation.inference.serving.refusals import Refusal
from mirage.allocation.inference.serving.service import DEADLINE, Service, trace_of
from mirage.allocation.inference.serving.tensors import check_signature, cut, shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mirage.allocation.inference.serving.desk import Wish
    from mirage.allocation.inference.serving.exchanges import Answer
    from mirage.allocation.inference.serving.memorybudget import Reservation
    from mirage.allocation.inference.serving.tensors import Signature


@dataclass(frozen=True, slots=True)
class Inference:
    """Raise ``Refusal`` unless the inputs are those of the model."""

    model: str
    asked: Asked
    wish: Wish
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

    def json_size(self, answer: Answer, memory: Reservation) -> int:
        """Largest JSON reply in bytes, which is held in addition to the answer. Raises ``Refusal``."""
        size = self.asked.json_size(cut(answer.header["outputs"], answer.data))
        memory.resize(len(answer.data) + size)
        return size

    def reply(self, answer: Answer) -> tuple[bytes, dict[str, str]]:
        """Body and headers of the reply. Raises ``Refusal``. Any thread."""
        content, headers = write_answer(self.model, self.asked, cut(answer.header["outputs"], answer.data))
        return content, headers | trace_of(answer)


def read_inference(service: Service, tenant: int, name: str, headers: Mapping[str, str], body: bytes) -> Inference:
    """Parse a request. Raises ``Refusal``. Any thread."""
    model = service.model(tenant, name)
    if service.plan.models[model].onnx is None:
        raise Refusal(400, f"model {name!r} takes text; use POST /v1/chat/completions or /v1/completions")
    signatures = service.gateway.signatures.get(name)
    if signatures is None:
        raise Refusal(503, f"no unit has loaded model {name!r} yet", 1)
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
        raise Refusal(400, f"outputs: unknown output {shown(min(unknown))} (available: {there})")
