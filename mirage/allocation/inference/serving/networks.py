"""ONNX networks of a worker, which run one request at a time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from mirage.allocation.inference.serving.admission import RequestRefused
from mirage.allocation.inference.serving.openinference import DATATYPES, NAMES, Signature, Tensor, cut
from mirage.allocation.inference.serving.worker_connections import LONGEST_BYTES, too_large
from mirage.modelgraph.checking import read_network
from mirage.onnximport import onnx_runtime

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_WARM = 3
_MEASURED = 5
_PROVIDERS = {"cpu": ["CPUExecutionProvider"], "cuda": ["CUDAExecutionProvider"]}
_ONNX_TYPES = {
    "bool": "BOOL", "float16": "FP16", "float": "FP32", "double": "FP64",
    **{f"{sign}int{bits}": f"{sign.upper()}INT{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}  # fmt: skip


class LoadedNetwork:
    """A network loaded by ONNX Runtime."""

    def __init__(self, path: str, threads: int, provider: str, warm: Mapping[str, Sequence[int]]) -> None:
        """Load it and warm it up. Raises any exception of the runtime: the worker cannot work then."""
        runtime = onnx_runtime("running networks")
        options = runtime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        self._session = runtime.InferenceSession(read_network(path), options, providers=_PROVIDERS[provider])
        self.inputs = tuple(_signature(each) for each in self._session.get_inputs())
        self.outputs = tuple(_signature(each) for each in self._session.get_outputs())
        self.seconds = self._warm_up(warm)

    def run(self, tensors: Sequence[Tensor], outputs: Sequence[str]) -> list[Tensor]:
        """Run it and return the outputs of these names, or all."""
        names = list(outputs) or [each.name for each in self.outputs]
        found = self._session.run(names, {tensor.name: tensor.array() for tensor in tensors})
        return [Tensor.of(name, array) for name, array in zip(names, found, strict=True)]

    def _warm_up(self, warm: Mapping[str, Sequence[int]]) -> float:
        """Median seconds of a few runs on zeros."""
        shapes = {
            each.name: tuple(warm.get(each.name, [max(1, size) for size in each.shape])) for each in self.inputs
        }
        zeros = [
            Tensor.of(each.name, np.zeros(shapes[each.name], DATATYPES[each.datatype])) for each in self.inputs
        ]
        seconds = []
        for _ in range(_WARM + _MEASURED):
            began = time.perf_counter()
            self.run(zeros, ())
            seconds.append(time.perf_counter() - began)
        return float(np.median(seconds[_WARM:]))


class Networks:
    """All networks of a worker."""

    def __init__(self, setup: Mapping[str, Any]) -> None:
        """``setup``: ``models`` (name, onnx, warm), ``threads``, ``provider``, ``largest_answer`` (bytes)."""
        self._largest = int(setup.get("largest_answer", LONGEST_BYTES))
        self._networks = {
            model["name"]: LoadedNetwork(model["onnx"], setup["threads"], setup["provider"], model.get("warm", {}))
            for model in setup["models"]
        }

    def signatures(self) -> dict[str, Any]:
        """The worker's report about each model."""
        return {
            name: {
                "seconds": network.seconds,
                "inputs": [each.document() for each in network.inputs],
                "outputs": [each.document() for each in network.outputs],
            }
            for name, network in self._networks.items()
        }

    def run(self, header: Mapping[str, Any], data: memoryview) -> tuple[dict[str, Any], list[memoryview]]:
        """The answer to one request and its bytes. An error of the network is returned unchanged."""
        end, began = {"say": "end", "number": header["number"]}, time.perf_counter()
        try:
            tensors = self._networks[header["model"]].run(cut(header["inputs"], data), header["outputs"])
        except (RequestRefused, KeyError) as error:
            return end | {"status": 400, "why": str(error)}, []
        except Exception as error:  # onnxruntime raises various classes, and the worker continues
            return end | {"status": 500, "why": _first_line(error)}, []
        if (size := sum(len(tensor.data) for tensor in tensors)) > self._largest:
            return end | {"status": 413, "why": too_large(size, self._largest)}, []
        documents = [tensor.document() for tensor in tensors]
        answer = end | {"seconds": time.perf_counter() - began, "outputs": documents}
        return answer, [tensor.data for tensor in tensors]


def _signature(found: Any) -> Signature:
    """Shape with -1 for open dimensions, which are named or ``None`` in the file."""
    inner = found.type.removeprefix("tensor(").removesuffix(")")
    if inner not in _ONNX_TYPES:
        raise TypeError(f"{found.name!r} is a {found.type}; only tensors of numbers are supported")
    assert _ONNX_TYPES[inner] in NAMES.values()
    return Signature(
        found.name, _ONNX_TYPES[inner], tuple(size if isinstance(size, int) else -1 for size in found.shape)
    )


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:500]
