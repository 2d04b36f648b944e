"""Tensors and requests of the Open Inference Protocol: what goes in comes out; what does not fit is refused."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from mirage.allocation.inference.serving.openinference import Asked, read_request, write_answer
from mirage.allocation.inference.serving.refusals import Refusal
from mirage.allocation.inference.serving.tensors import DATATYPES, Tensor, cut, from_json

FINITE = {"allow_nan": False, "allow_infinity": False}


def any_array(datatype: str) -> st.SearchStrategy[np.ndarray]:
    dtype = DATATYPES[datatype]
    elements = arrays.from_dtype(dtype, **(FINITE if dtype.kind == "f" else {}))
    return arrays.arrays(
        dtype, arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4), elements=elements
    )


ANY = st.sampled_from(sorted(DATATYPES)).flatmap(any_array)


@given(st.lists(ANY, min_size=1, max_size=4), st.data())
def test_a_request_is_read_as_it_was_written_in_json_or_bytes(
    found: list[np.ndarray], data: st.DataObject
) -> None:
    inputs, tail = [], b""
    for number, array in enumerate(found):
        name = next(name for name, dtype in DATATYPES.items() if dtype == array.dtype)
        entry = {"name": f"x{number}", "datatype": name, "shape": list(array.shape)}
        if data.draw(st.booleans()):
            inputs.append(entry | {"parameters": {"binary_data_size": array.nbytes}})
            tail += array.tobytes()
        else:
            inputs.append(entry | {"data": (array.reshape(-1) if data.draw(st.booleans()) else array).tolist()})
    head = json.dumps({"inputs": inputs}).encode()
    asked = read_request(head + tail, str(len(head)))
    for tensor, array in zip(asked.tensors, found, strict=True):
        assert tensor.array().dtype == array.dtype
        assert np.array_equal(tensor.array(), array)


@given(st.lists(ANY, min_size=1, max_size=4), st.booleans())
def test_an_answer_is_written_as_it_can_be_read(found: list[np.ndarray], binary: bool) -> None:
    tensors = [Tensor.of(f"y{number}", array) for number, array in enumerate(found)]
    body, headers = write_answer("m", Asked("", {"binary_data_output": binary}, [], (), {}), tensors)
    at = int(headers.get("inference-header-content-length", len(body)))
    outputs = json.loads(body[:at])["outputs"]
    read = cut(outputs, memoryview(body)[at:]) if binary else [from_json(output) for output in outputs]
    for tensor, array in zip(read, found, strict=True):
        assert np.array_equal(tensor.array(), array)


@given(st.binary(max_size=200), st.one_of(st.none(), st.text(max_size=8), st.integers(0, 200).map(str)))
def test_whatever_comes_is_a_request_or_refused_as_the_senders_fault(body: bytes, length: str | None) -> None:
    try:
        read_request(body, length)
    except Refusal as refusal:
        status = refusal.status
        assert status == 400


@pytest.mark.parametrize(
    ("datatype", "data", "why"),
    [
        ("INT8", [128], "beyond INT8"),
        ("UINT8", [-1], "beyond UINT8"),
        ("INT32", [1.5], "does not hold numbers of datatype INT32"),
        ("INT64", [2**63], "beyond INT64"),
        ("INT64", [2**80], "beyond INT64"),
        ("FP16", [70_000.0], "beyond FP16"),
        ("FP32", [True], "does not hold numbers"),
        ("BOOL", [1], "does not hold numbers"),
        ("FP32", [None], "does not hold numbers"),
        ("FP32", ["1"], "does not hold numbers"),
        ("FP32", {"a": 1}, "does not hold numbers"),
    ],
)
def test_a_number_is_never_cut_off_or_wrapped_around(datatype: str, data: object, why: str) -> None:
    with pytest.raises(Refusal, match=why):
        from_json({"name": "x", "datatype": datatype, "shape": [1], "data": data})


def test_what_json_cannot_say_is_refused_not_written() -> None:
    tensor = Tensor.of("y", np.array([math.nan], np.float32))
    with pytest.raises(Refusal, match="ask for binary_data"):
        write_answer("m", Asked("", {}, [], (), {}), [tensor])
    body, _ = write_answer("m", Asked("", {}, [], (), {"y": True}), [tensor])
    assert body.endswith(tensor.data)


def test_whole_numbers_of_64_bits_are_read_exactly() -> None:
    values = [0, 2**63, 2**64 - 1]
    read = from_json({"name": "x", "datatype": "UINT64", "shape": [3], "data": values})
    assert read.array().tolist() == values
    for wrong in ([0, 2**64], [-1, 2**63]):
        with pytest.raises(Refusal, match="beyond UINT64"):
            from_json({"name": "x", "datatype": "UINT64", "shape": [2], "data": wrong})
    with pytest.raises(Refusal, match="does not hold numbers"):
        from_json({"name": "x", "datatype": "UINT64", "shape": [2], "data": [0.5, 2**63]})
