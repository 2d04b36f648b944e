"""The gateway with real workers on tiny networks: what tenants get for right and for wrong requests."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from serving_models import write_layers, write_scale
from serving_site import Site, digest, tensor

if TYPE_CHECKING:
    from collections.abc import Iterator

CONFIG = """
largest_body_mb = 1
[[model]]
name = "scale"
onnx = "scale.onnx"
[[model]]
name = "layers"
onnx = "layers.onnx"
warm = {{ x = [2, 64] }}
[[unit]]
name = "one"
watts = 50
[[unit]]
name = "two"
models = ["scale"]
watts = 10
[[tenant]]
name = "alice"
keys = ["{alice}"]
deadline = "10s"
[[tenant]]
name = "bob"
keys = ["sha256:{bob}"]
models = ["layers"]
rate = 0.001
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("serving")
    write_scale(folder / "scale.onnx")
    write_layers(folder / "layers.onnx")
    head, _, rest = CONFIG.format(alice=digest("alice"), bob=digest("bob")).partition("[[model]]")
    site = Site(folder, f"[[model]]{rest}", gateway=head)
    yield site.start()
    assert site.stop() == 0, site.said


def test_numbers_in_json_are_answered_in_json(site: Site) -> None:
    reply = site.infer("scale", [1.0, -2.5, 0.0, 4.0])
    assert reply.values == [2.0, -5.0, 0.0, 8.0]
    assert reply.document["model_name"] == "scale"
    assert reply.headers["x-mirage-unit"] in ("one", "two")


def test_bytes_are_answered_in_bytes_and_both_may_be_mixed(site: Site) -> None:
    x = np.arange(8, dtype="<f4").reshape(2, 4)
    head = json.dumps(
        {
            "id": "r1",
            "inputs": [
                {"name": "x", "datatype": "FP32", "shape": [2, 4], "parameters": {"binary_data_size": x.nbytes}}
            ],
            "outputs": [{"name": "y", "parameters": {"binary_data": True}}],
        }
    ).encode()
    length = {"Inference_Header_Content_Length": str(len(head))}
    reply = site.ask("POST", "/v2/models/scale/infer", head + x.tobytes(), **length)
    assert reply.status == 200, reply.body
    at = int(reply.headers["inference-header-content-length"])
    document = json.loads(reply.body[:at])
    assert (document["id"], document["outputs"][0]["shape"]) == ("r1", [2, 4])
    assert document["outputs"][0]["parameters"] == {"binary_data_size": 32}
    assert np.array_equal(np.frombuffer(reply.body[at:], "<f4").reshape(2, 4), 2 * x)


def test_a_network_of_several_layers_on_one_of_its_units(site: Site) -> None:
    reply = site.infer("layers", [3.0] * 64)
    assert reply.values == pytest.approx([3.0] * 64)
    assert reply.headers["x-mirage-unit"] == "one"


def test_metadata_and_health(site: Site) -> None:
    document = site.get("/v2/models/scale").document
    assert document["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]
    assert site.get("/v2/models/layers/ready").document == {"name": "layers", "ready": True}
    assert "binary_tensor_data" in site.get("/v2", who="").document["extensions"]
    for path in ("/health/live", "/health/ready", "/v2/health/live", "/v2/health/ready"):
        assert site.get(path, who="").status == 200


X = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"name": "z"}, "the model's inputs are x; given: z"),
        ({"datatype": "INT32"}, "input 'x' is FP32, not INT32"),
        ({"datatype": "FLOAT"}, "unknown datatype 'FLOAT' (choose from BOOL"),
        ({"shape": [1, 5], "data": [1, 2, 3, 4, 5]}, "has shape [1, 5], expected [-1, 4]"),
        ({"shape": [4]}, "has shape [4], expected [-1, 4]"),
        ({"shape": [1, -4]}, "shape must be a list"),
        ({"data": [1, 2, 3]}, "has 4 elements, data 3"),
        ({"data": [1, 2, 3, "4"]}, "does not hold numbers"),
        ({"data": [1, 2, 3, 1e60]}, "out of the range of FP32"),
        ({"data": [[1, 2], [3]]}, "differ in length"),
        ({"parameters": {"binary_data_size": 16}}, "the tensors need 16 bytes, 0 were sent"),
    ],
)
def test_what_a_model_does_not_take_is_refused_with_the_reason(
    site: Site, change: dict[str, object], why: str
) -> None:
    reply = site.ask("POST", "/v2/models/scale/infer", {"inputs": [X | change]})
    assert reply.status == 400
    assert why in reply.document["error"]


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b"\xff\xfe", b"[" * 100_000, b'{"inputs": []}', b'{"inputs": [1]}']
)
def test_what_is_no_request_is_refused(site: Site, body: bytes) -> None:
    assert site.ask("POST", "/v2/models/scale/infer", body).status == 400


@pytest.mark.parametrize(
    ("deadline", "status"), [("0", 400), ("-5", 400), ("soon", 400), ("nan", 400), ("9000", 200)]
)
def test_a_deadline_that_has_passed_or_is_none_is_refused(site: Site, deadline: str, status: int) -> None:
    assert site.infer("scale", X_Deadline_Ms=deadline).status == status
    said = site.ask("POST", "/v2/models/scale/infer", {"inputs": [X], "parameters": {"deadline_ms": deadline}})
    assert said.status == status


def test_who_may_ask_what(site: Site) -> None:
    assert site.infer("scale", who="").status == 401
    assert site.infer("scale", who="somebody").status == 401
    unknown = site.infer("nothing")
    assert (unknown.status, "your models: scale, layers" in unknown.document["error"]) == (404, True)
    assert site.infer("scale", who="bob").status == 404, "bob may not ask this model"
    assert site.get("/metrics").status == 403
    assert site.ask("POST", "/drain").status == 403
    assert (
        site.ask("POST", "/v2/models/scale/infer", tensor([1]), who="", X_API_Key="alice-key-0123456789").status
        == 400
    )


def test_a_body_that_is_too_large_is_not_read(site: Site) -> None:
    assert site.infer("scale", [1.0] * 400_000).status == 413


def test_over_the_quota_is_429_with_a_time_to_come_back(site: Site) -> None:
    replies = [site.infer("layers", [1.0] * 64, who="bob") for _ in range(2)]
    assert replies[-1].status == 429
    assert "exceeds 0.001 requests per second" in replies[-1].document["error"]
    assert int(replies[-1].headers["retry-after"]) > 100


def test_metrics_by_tenant(site: Site) -> None:
    labels = {"tenant": "alice", "model": "scale"}
    kept, late = (site.metric("requests_total", result=result, **labels) for result in ("kept", "late"))
    joules, count = site.metric("energy_joules_total", **labels), site.metric("latency_seconds_count", **labels)
    assert site.infer("scale", X_Deadline_Ms="0.001").status == 200
    assert site.infer("scale").status == 200
    assert site.metric("requests_total", result="kept", **labels) == kept + 1
    assert site.metric("requests_total", result="late", **labels) == late + 1
    assert site.metric("latency_seconds_count", **labels) == count + 2
    assert site.metric("energy_joules_total", **labels) > joules
    assert site.metric("unit_up", unit="one") == 1
