"""The documented configuration is one; what the documents say of metrics and headers is there."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from mirage.allocation.inference.serving import configfile
from mirage.allocation.inference.serving.configfile import ServingDocument, read_config
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


ENTRIES = {
    "gateway": configfile.GatewayEntry,
    "queue": configfile.QueueEntry,
    "workers": configfile.WorkersEntry,
    "costs": configfile.CostsEntry,
    "model": configfile.ModelEntry,
    "unit": configfile.UnitEntry,
    "tenant": configfile.TenantEntry,
}


@pytest.fixture(scope="module")
def whole_example() -> dict[str, Any]:
    """The example with what it only mentions: lines such as ``# threads = 1``, ``# [costs]``."""
    text = (ROOT / "docs/examples/serve.toml").read_text()
    return tomllib.loads(re.sub(r"^# (?=\[|[a-z_]+ = )", "", text, flags=re.MULTILINE))


def test_all_that_the_example_mentions_is_valid(whole_example: dict[str, Any]) -> None:
    ServingDocument.model_validate(whole_example)


def test_every_key_is_in_the_example_and_no_other(whole_example: dict[str, Any]) -> None:
    assert set(ENTRIES) == set(ServingDocument.model_fields)
    for name, entry in ENTRIES.items():
        found = whole_example[name]
        keys = {key for one in (found if isinstance(found, list) else [found]) for key in one}
        assert keys == set(entry.model_fields), name


def test_defaults_are_those_that_the_example_shows(whole_example: dict[str, Any]) -> None:
    for name in ("queue", "workers"):
        assert ENTRIES[name].model_validate(whole_example[name]) == ENTRIES[name]()


def test_every_metric_is_documented_and_no_other() -> None:
    text = (ROOT / "docs/serving.md").read_text()
    rows = text[text.index("| metric | meaning |") :].split("\n\n")[0].splitlines()[2:]
    said = {name for row in rows for name in re.findall(r"`(?:mirage_serving)?(_[a-z_]+)", row.split("|")[1])}
    families = ServingMeters(["t"], ["m"]).registry.collect()
    there = {f"{family.name}{'_total' * (family.type == 'counter')}" for family in families}
    assert {f"mirage_serving{name}" for name in said} == there
