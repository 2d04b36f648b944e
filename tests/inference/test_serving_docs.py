"""The documented configuration is one; what the documents say of metrics and headers is there."""

from __future__ import annotations

import re
from pathlib import Path

from mirage.allocation.inference.serving.configfile import read_config
from mirage.allocation.inference.serving.meters import ServingMeters

ROOT = Path(__file__).parents[2]


def test_the_example_is_read_as_it_stands(tmp_path: Path) -> None:
    path = tmp_path / "serve.toml"
    path.write_text((ROOT / "docs/examples/serve.toml").read_text())
    for name, content in (("models/resnet50.onnx", ""), ("keys/vision", "a-key-that-is-long-enough\n")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
        (tmp_path / name).chmod(0o600)
    plan = read_config(path)
    assert [unit.models for unit in plan.units] == [("resnet50",), ("llama",)]
    assert plan.tenants[0].deadline == 0.05


def test_every_metric_is_documented() -> None:
    registry = ServingMeters(["t"], ["m"]).registry
    text = (ROOT / "docs/serving.md").read_text()
    said = set(re.findall(r"_[a-z_]+", text))
    for family in registry.collect():
        name = family.name.removeprefix("mirage_serving")
        assert any(each.endswith((name, f"{name}_total")) for each in said), family.name
