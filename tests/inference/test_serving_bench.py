"""``mirage bench serving``: its rows."""

from __future__ import annotations

import pytest

from mirage.bench import requests

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


def test_the_bench_asks_the_gateway_and_the_front(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "SECONDS", 0.5)
    direct, fronted = (dict(section.rows) for section in requests.measure_serving(lambda step: None))
    for rows in (direct, fronted):
        answered, _, asked = rows["answered"].partition(" of ")
        assert answered == asked != "0"
        assert rows["added"].startswith("p50 ")
        assert "ms a request" in rows["CPU time of the gateway"]
    assert "CPU time of the front" not in direct
    assert "ms a request" in fronted["CPU time of the front"]


def test_what_does_not_start_is_told_with_its_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "_CONFIG", requests._CONFIG.replace('"edf"', '"nothing"'))
    with pytest.raises(requests.NotReady, match="unknown policy 'nothing'"):
        requests.measure_serving(lambda step: None)
