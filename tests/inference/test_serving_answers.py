"""Answers that are larger than their requests are bounded, and count against who asks until they are read."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from serving_models import write_scale, write_wide
from serving_site import KEYS, Reply, Site, digest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from http.client import HTTPConnection

TEXT = f"""
[[model]]
name = "wide"
onnx = "wide.onnx"
[[model]]
name = "scale"
onnx = "scale.onnx"
[[unit]]
name = "cpu"
[[tenant]]
name = "alice"
keys = ["{digest("alice")}"]
[[tenant]]
name = "bob"
keys = ["{digest("bob")}"]
"""
INFER = "/v2/models/wide/infer"
MIB = 1 << 20
OF_A_ROW = 4 * 4096


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("answers")
    write_scale(folder / "scale.onnx")
    write_wide(folder / "wide.onnx")
    site = Site(folder, TEXT, gateway="largest_body_mb = 2\nall_bodies_mb = 64\nlargest_answer_mb = 16")
    yield site.start()
    assert site.stop() == 0, site.said


def asked(rows: int, *, binary: bool) -> dict[str, Any]:
    x = {"name": "x", "datatype": "FP32", "shape": [rows, 4], "data": [1] * (4 * rows)}
    return {"inputs": [x], "parameters": {"binary_data_output": binary}}


def infer(site: Site, rows: int, *, binary: bool = True, who: str = "alice", **more: str) -> Reply:
    return site.ask("POST", INFER, asked(rows, binary=binary), who=who, **more)


def test_answer_up_to_the_bound_is_whole(site: Site) -> None:
    rows = 16 * MIB // OF_A_ROW
    reply = infer(site, rows)
    assert reply.status == 200, reply.body[:300]
    length = int(reply.headers["inference-header-content-length"])
    assert (np.frombuffer(reply.body[length:], np.float32) == 4).all()
    assert len(reply.body) - length == rows * OF_A_ROW


def test_larger_answer_is_refused_and_its_worker_goes_on(site: Site) -> None:
    reply = infer(site, 16 * MIB // OF_A_ROW + 1)
    assert reply.status == 413
    assert "at most 16,777,216" in json.loads(reply.body)["error"]
    assert infer(site, 1, binary=False).status == 200


def test_answer_far_too_large_never_reaches_the_gateway(site: Site) -> None:
    before = site.most_memory
    assert infer(site, 20_000).status == 413
    assert site.most_memory - before < 64 * MIB


@pytest.mark.parametrize("shortcut", [True, False])
def test_answers_that_are_not_read_count_against_who_asked(shortcut: bool, site: Site) -> None:
    """Twelve of 15 MiB would be 180; one tenant has half of 64 at most."""
    rows = 15 * MIB // OF_A_ROW
    waiting: list[HTTPConnection] = []
    before = site.most_memory
    content = json.dumps(asked(rows, binary=True)).encode()
    # ``Expect`` is for the application, whose answers take another way.
    headers = {"Authorization": f"Bearer {KEYS['alice']}"} | ({} if shortcut else {"Expect": "100-continue"})
    try:
        for _ in range(12):
            connection = site.connect()
            connection.request("POST", INFER, content, headers)
            waiting.append(connection)
            time.sleep(0.1)
        time.sleep(2)
        assert site.most_memory - before < 160 * MIB
        assert site.infer("scale", who="bob").status == 200
        statuses = [connection.getresponse() for connection in waiting]
        assert {response.status for response in statuses} == {200, 503}
        whole = [response for response in statuses if response.status == 200]
        for response in whole:
            assert len(response.read()) > rows * OF_A_ROW
    finally:
        for connection in waiting:
            connection.close()
    end = time.monotonic() + 60
    while infer(site, rows).status != 200:
        assert time.monotonic() < end, "what was read, or left, holds nothing any more"
        time.sleep(0.2)
