"""Tensors and requests of the Open Inference Protocol: what goes in comes out; what does not fit is rejected."""

from __future__ import annotations

import json
import math
import tracemalloc
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from mirage.allocation.inference.serving.admission import RequestRefused
from mirage.allocation.inference.serving.openinference import (
    DATATYPES,
    InferenceRequest,
    Signature,
    Tensor,
    check_signature,
    cut,
    from_json,
    json_length,
    read_request,
    write_answer,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

FINITE = {"allow_nan": False, "allow_infinity": False}


def any_array(datatype: str) -> st.SearchStrategy[np.ndarray]:
    dtype = DATATYPES[datatype]
    elements = arrays.from_dtype(dtype, **(FINITE if dtype.kind == "f" else {}))
    return arrays.arrays(
        dtype, arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4), elements=elements
    )


def anything(*_: object) -> None:
    """A model that accepts any input."""


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
    asked = read_request(head + tail, len(head), anything)
    for tensor, array in zip(asked.tensors, found, strict=True):
        assert tensor.array().dtype == array.dtype
        assert np.array_equal(tensor.array(), array)


@given(st.lists(ANY, min_size=1, max_size=4), st.booleans())
def test_an_answer_is_written_as_it_can_be_read(found: list[np.ndarray], binary: bool) -> None:
    tensors = [Tensor.of(f"y{number}", array) for number, array in enumerate(found)]
    body, headers = write_answer("m", InferenceRequest("", None, [], (), {}, binary), tensors)
    at = int(headers.get("inference-header-content-length", len(body)))
    outputs = json.loads(body[:at])["outputs"]
    read = cut(outputs, memoryview(body)[at:]) if binary else [from_json(output) for output in outputs]
    for tensor, array in zip(read, found, strict=True):
        assert np.array_equal(tensor.array(), array)


@given(st.binary(max_size=200), st.one_of(st.none(), st.text(max_size=8), st.integers(0, 200).map(str)))
def test_whatever_comes_is_a_request_or_refused_as_the_senders_fault(body: bytes, length: str | None) -> None:
    try:
        read_request(body, json_length(length, len(body)), anything)
    except RequestRefused as refusal:
        status = refusal.status
        assert status == 400


@pytest.mark.parametrize(
    ("datatype", "data", "why"),
    [
        ("INT8", [128], "out of the range of INT8"),
        ("UINT8", [-1], "out of the range of UINT8"),
        ("INT32", [1.5], "does not hold numbers of datatype INT32"),
        ("INT64", [2**63], "out of the range of INT64"),
        ("INT64", [2**80], "out of the range of INT64"),
        ("FP16", [70_000.0], "out of the range of FP16"),
        ("FP32", [True], "does not hold numbers"),
        ("FP32", [True, False, 1, 2], "does not hold numbers"),
        ("FP64", [[1.5, 2], [3, True]], "does not hold numbers"),
        ("INT32", [0, True], "does not hold numbers"),
        ("BOOL", [1], "does not hold numbers"),
        ("FP32", [None], "does not hold numbers"),
        ("FP32", ["1"], "does not hold numbers"),
        ("FP32", {"a": 1}, "does not hold numbers"),
    ],
)
def test_a_number_is_never_cut_off_or_wrapped_around(datatype: str, data: object, why: str) -> None:
    with pytest.raises(RequestRefused, match=why):
        from_json({"name": "x", "datatype": datatype, "shape": [1], "data": data})


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e400", "-1e999"])
def test_request_with_a_number_that_is_not_finite_is_refused(number: str) -> None:
    body = f'{{"inputs": [{{"name": "x", "datatype": "FP32", "shape": [2], "data": [1, {number}]}}]}}'
    with pytest.raises(RequestRefused) as refused:
        read_request(body.encode(), len(body), anything)
    assert refused.value.status == 400


def test_what_json_cannot_say_is_refused_not_written() -> None:
    tensor = Tensor.of("y", np.array([math.nan], np.float32))
    with pytest.raises(RequestRefused, match="request binary_data"):
        write_answer("m", InferenceRequest("", None, [], (), {}, False), [tensor])
    body, _ = write_answer("m", InferenceRequest("", None, [], (), {"y": True}, False), [tensor])
    assert body.endswith(tensor.data)


def test_whole_numbers_of_64_bits_are_read_exactly() -> None:
    values = [0, 2**63, 2**64 - 1]
    read = from_json({"name": "x", "datatype": "UINT64", "shape": [3], "data": values})
    assert read.array().tolist() == values
    for wrong in ([0, 2**64], [-1, 2**63]):
        with pytest.raises(RequestRefused, match="out of the range of UINT64"):
            from_json({"name": "x", "datatype": "UINT64", "shape": [2], "data": wrong})
    with pytest.raises(RequestRefused, match="does not hold numbers"):
        from_json({"name": "x", "datatype": "UINT64", "shape": [2], "data": [0.5, 2**63]})


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"shape": [2**40 + 1]}, "integers from 0 to"),
        ({"shape": [10**4_000] * 500}, "integers from 0 to"),
        ({"shape": [2**40] * 32}, "more than 1099511627776 elements"),
        ({"shape": [2**40, 2**40, 0], "data": []}, "more than 1099511627776 elements"),
        ({"shape": [1] * 33}, "a list of at most 32"),
        ({"shape": [True]}, "integers from 0 to"),
        ({"name": "x" * 257}, "a name of at most 256"),
        ({"name": 7}, "a name of at most 256"),
        ({"datatype": "FLOAT" * 100_000}, "choose from BOOL"),
        ({"datatype": [1] * 100_000}, "choose from BOOL"),
        ({"data": [1, [1]]}, "differ in length"),
        ({"data": [[1], [1, 2]]}, "differ in length"),
        ({"data": json.loads("[" * 40 + "1" + "]" * 40)}, "nested more than 32 deep"),
        ({"datatype": "FP64", "data": [2**1024]}, "out of the range of FP64"),
        ({"parameters": {"binary_data_size": 10**4_000}}, "expected a number of bytes"),
        ({"parameters": []}, "expected an object"),
    ],
)
def test_tensor_beyond_a_bound_is_rejected_in_a_short_text(change: dict[str, object], why: str) -> None:
    body = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1]} | change]}).encode()
    with pytest.raises(RequestRefused, match=why) as refused:
        read_request(body, len(body), anything)
    assert (refused.value.status, len(str(refused.value)) < 300) == (400, True)


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({"inputs": [{"name": "x", "datatype": "FP32", "shape": [0], "data": []}] * 1_025}, "at most 1024"),
        ({"outputs": [{"name": f"y{number}"} for number in range(1_025)]}, "at most 1024"),
        ({"outputs": [{"name": "y"}] * 2}, "duplicate name"),
        ({"outputs": [{"name": 1}]}, "objects with a name"),
        ({"id": "x" * 1_025}, "at most 1024 characters"),
        ({"parameters": {"a": [0] * 200_001}}, "more than 200000 values"),
    ],
)
def test_request_beyond_a_bound_is_rejected(document: dict[str, object], why: str) -> None:
    body = json.dumps(
        {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}]} | document
    ).encode()
    with pytest.raises(RequestRefused, match=why):
        read_request(body, len(body), anything)


def test_shape_that_no_model_takes_is_rejected_before_numbers_are_read() -> None:
    def check(inputs: Sequence[Signature], outputs: Sequence[str]) -> None:
        check_signature(inputs, [Signature("x", "FP32", (-1, 4))])
        assert not outputs

    body = b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 5], "data": "no numbers"}]}'
    with pytest.raises(RequestRefused, match="expected \\[-1, 4\\]"):
        read_request(body, len(body), check)


def test_long_text_among_numbers_takes_no_memory() -> None:
    data = ["x" * 10_000, *[1] * 100_000]
    tracemalloc.start()
    try:
        with pytest.raises(RequestRefused, match="does not hold numbers"):
            from_json({"name": "x", "datatype": "FP32", "shape": [1], "data": data})
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_answer_of_too_many_numbers_is_bytes_only() -> None:
    many = Tensor.of("y", np.ones(200_001, np.int8))
    with pytest.raises(RequestRefused, match="request binary_data"):
        write_answer("m", InferenceRequest("", None, [], (), {}, False), [many])
    assert len(write_answer("m", InferenceRequest("", None, [], (), {"y": True}, False), [many])[0]) > 200_000


def test_answer_in_several_parts_is_one_list() -> None:
    array = np.arange(10_000, dtype=np.int32).reshape(2, 5_000)
    body, _ = write_answer("m", InferenceRequest("a", None, [], (), {}, False), [Tensor.of("y", array)])
    assert json.loads(body) == {
        "model_name": "m",
        "outputs": [{"name": "y", "datatype": "INT32", "shape": [2, 5_000], "data": list(range(10_000))}],
        "id": "a",
    }
