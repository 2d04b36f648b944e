"""Every key of the configuration has a bound, so that what is checked is what can be started with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from mirage.cli.daemon import check_command
from mirage.config.loading import load_config
from mirage.config.model import Config
from mirage.domain.bounds import LONGEST_PATH
from mirage.domain.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Schema = dict[str, Any]


def unbounded(schema: Schema, place: str, names: Schema) -> Iterator[str]:
    """Keys whose number may be as large as it likes."""
    if "$ref" in schema:
        yield from unbounded(names[schema["$ref"].rpartition("/")[2]], place, names)
    for choice in (*schema.get("anyOf", ()), *schema.get("allOf", ())):
        yield from unbounded(choice, place, names)
    lower, upper = schema.keys() & {"minimum", "exclusiveMinimum"}, schema.keys() & {"maximum", "exclusiveMaximum"}
    if schema.get("type") in ("integer", "number") and not (lower and upper):
        yield place
    if schema.get("type") == "array":
        yield from unbounded(schema.get("items", {}), f"{place}.*", names)
    for name, inner in schema.get("properties", {}).items():
        yield from unbounded(inner, f"{place}.{name}".lstrip("."), names)


def test_config_every_number_has_a_bound() -> None:
    schema = Config.model_json_schema()
    assert list(unbounded(schema, "", schema["$defs"])) == []


@pytest.mark.parametrize(
    ("table", "line"),
    [
        ("cluster.simulated", "rate = 1e308"),
        ("cluster.simulated", "rate = inf"),
        ("cluster.simulated", "rate = nan"),
        ("loop", "interruption_price = nan"),
        ("loop", "interval = 99999999999999999999"),
        ("loop", "interval = 0"),
        ("loop", "budget = inf"),
        ("limits", "live_links = 99999999999999999999"),
        ("store.retention", 'jobs = "999999999d"'),
        ("store.retention", 'audit = "UNLIMITED"'),
        ("chains", 'max_overlap = "infinite"'),
        ("chains", 'grace = "-1"'),
        ("loop", 'predictor = "average:99999999999999999999999"'),
        ("loop", 'fallback = "average:99999999999999999999999"'),
        ("loop", 'shadows = ["average:99999999999999999999999"]'),
        ("service", f'name = "{"x" * (LONGEST_PATH + 1)}"'),
    ],
)
def test_config_check_refuses_what_the_daemon_cannot_start_with(tmp_path: Path, table: str, line: str) -> None:
    file = tmp_path / "mirage.toml"
    file.write_text(f"[{table}]\n{line}\n")
    with pytest.raises(ConfigError, match=line.partition(" ")[0]):
        check_command(str(file))


def test_config_as_it_is_by_default_is_within_bounds(tmp_path: Path) -> None:
    file = tmp_path / "mirage.toml"
    file.write_text("")
    assert load_config(file).config.loop.interval == 60
