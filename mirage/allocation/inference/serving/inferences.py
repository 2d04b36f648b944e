"""One inference request by the Open Inference Protocol, as it is asked of a unit and answered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mirage.allocation.inference.serving.openinference import HEADER_LENGTH, Asked, read_request, write_answer
from mirage.allocation.inference.serving.refusals import Refusal
from mirage.allocation.inference.serving.service import DEADLINE, Service, trace_of
from mirage.allocation.inference.serving.tensors import check_signature, cut

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mirage.allocation.inference.serving.desk import Wish
    from mirage.allocation.inference.serving.exchanges import Answer


@dataclass(frozen=True, slots=True)
class Inference:
    """It is what its model takes."""

    model: str
    asked: Asked
    wish: Wish

    @property
    def header(self) -> dict[str, Any]:
        """What the worker is told."""
        inputs = [each.document() for each in self.asked.tensors]
        return {"model": self.model, "inputs": inputs, "outputs": self.asked.outputs}

    @property
    def content(self) -> Sequence[memoryview]:
        """The bytes behind it."""
        return [each.data for each in self.asked.tensors]

    def reply(self, answer: Answer) -> tuple[bytes, dict[str, str]]:
        """A body and its headers. Raises ``Refusal``."""
        content, headers = write_answer(self.model, self.asked, cut(answer.header["outputs"], answer.data))
        return content, headers | trace_of(answer)


def read_inference(service: Service, tenant: int, name: str, headers: Mapping[str, str], body: bytes) -> Inference:
    """Raises ``Refusal``."""
    model = service.model(tenant, name)
    if service.plan.models[model].onnx is None:
        raise Refusal(400, f"model {name!r} answers texts: POST /v1/chat/completions or /v1/completions")
    asked = read_request(body, headers.get(HEADER_LENGTH))
    _check(service, name, asked)
    wish = service.wish(tenant, model, headers.get(DEADLINE, asked.parameters.get("deadline_ms")))
    return Inference(name, asked, wish)


def _check(service: Service, name: str, asked: Asked) -> None:
    signatures = service.gateway.signatures.get(name)
    if signatures is None:
        raise Refusal(503, f"no unit has loaded model {name!r} yet", 1)
    check_signature(asked.tensors, signatures[0])
    if unknown := set(asked.outputs) - {each.name for each in signatures[1]}:
        there = ", ".join(each.name for each in signatures[1])
        raise Refusal(400, f"outputs: there is no {sorted(unknown)[0]!r}; there are: {there}")
