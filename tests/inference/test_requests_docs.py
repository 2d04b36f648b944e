"""Policies, scenarios and columns are as the documents describe them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from mirage.allocation.inference.comparison import COLUMNS
from mirage.allocation.inference.registry import POLICIES
from mirage.allocation.inference.workload import scenario
from mirage.allocation.inference.workload.scenario import built_in_scenarios, find_scenario

DOCS = Path(__file__).resolve().parents[2] / "docs"
TEXT = (DOCS / "requests.md").read_text()


def table_of(heading: str) -> list[list[str]]:
    """The cells of the table that begins with these."""
    rows = TEXT[TEXT.index(heading) :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_every_policy_is_named() -> None:
    named = set(re.findall(r"`([a-z]+)[`:]", TEXT))
    assert {name.rstrip(":") for name in POLICIES} <= named


def test_every_option_takes_part_in_the_table() -> None:
    """``edf:`` in the registry: it has options; and what takes none has none in the table."""
    for name, _, _, options in table_of("| name | order"):
        for each in re.findall(r"`([a-z]+)", name):
            assert bool(options) == (f"{each}:" in POLICIES), each


def test_every_scenario_that_comes_along_is_named() -> None:
    assert set(built_in_scenarios()) <= set(re.findall(r"`([a-z-]+)`", TEXT))


def test_every_column_has_its_meaning() -> None:
    said = {heading for cells in table_of("| column | meaning |") for heading in cells[0].split(", ")}
    assert said == {column.heading.split(", ")[0].split(" / ")[0] for column in COLUMNS}


def test_the_example_of_a_scenario_is_one_and_has_every_key(tmp_path: Path) -> None:
    [example] = [block for block in re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL) if "[system]" in block]
    path = tmp_path / "my.toml"
    path.write_text(example)
    found = find_scenario(str(path))
    assert [tenant.name for tenant in found.tenants] == ["vision"]
    document = tomllib.loads(example)
    assert set(document) == set(scenario._ScenarioFile.model_fields)
    assert set(document["system"]) == set(scenario._SystemEntry.model_fields)
    assert set(document["system"]["units"][0]) == set(scenario._UnitEntry.model_fields)
    assert set(document["tenants"][0]) == set(scenario._TenantEntry.model_fields)
    assert set(document["arrivals"]) | {"path"} == set(scenario._ArrivalEntry.model_fields)  # of a trace alone
