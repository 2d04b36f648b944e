"""The references leave nothing out: commands, options, settings, metrics, entry points, addresses, errors."""

from __future__ import annotations

import html
import json
import re
import tomllib
from typing import TYPE_CHECKING, Any

import pytest
from sitepages.commands import commands_page
from sitepages.interface import interface_page
from sitepages.measures import daemon_registry, measures_page
from sitepages.sdk import errors_page, sdk_page
from sitepages.settings import settings_page
from typer.main import get_command

from mirage import plugin
from mirage.allocation.inference.serving.meters import ServingMeters
from mirage.cli.main import app
from mirage.config.loading import settings
from mirage.config.model import Config
from mirage.domain.errors import MirageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from prometheus_client import CollectorRegistry


def section(page: str, heading: str) -> str:
    """The text below a heading, up to the next one of its level or above."""
    level = len(heading) - len(heading.lstrip("#"))
    found = re.search(rf"^{re.escape(heading)}$(.*?)(?=^#{{1,{level}}} |\Z)", page, re.MULTILINE | re.DOTALL)
    assert found, heading
    return found[1]


def codes(page: str) -> set[str]:
    return {html.unescape(each) for each in re.findall(r"<code>(.*?)</code>", page)}


def names_of(registry: CollectorRegistry) -> list[str]:
    ending = {"counter": "_total", "info": "_info"}
    return [metric.name + ending.get(metric.type, "") for metric in registry.collect()]


def shown(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    yield name, command
    for word, each in getattr(command, "commands", {}).items():
        if not each.hidden:
            yield from shown(f"{name} {word}", each)


COMMANDS = [each for each in shown("mirage", get_command(app)) if each[0] not in ("mirage", "mirage submit")]


@pytest.mark.parametrize(("name", "command"), COMMANDS, ids=[name for name, _ in COMMANDS])
def test_every_command_is_there_with_every_option(name: str, command: Any) -> None:
    here = section(commands_page(), f"{'#' * len(name.split())} {name}")
    for param in command.params:
        if param.param_type_name == "option" and not param.hidden:
            assert {*param.opts, *param.secondary_opts} <= codes(here), name


def test_a_chain_is_submitted_by_what_the_command_itself_says_of_its_options() -> None:
    from mirage.cli.submit import USAGE

    assert USAGE.strip() in section(commands_page(), "## mirage submit")


@pytest.mark.parametrize("key", [".".join(key) for key, _ in settings(Config())])
def test_every_setting_is_in_the_section_that_it_belongs_to(key: str) -> None:
    table, _, name = key.rpartition(".")
    assert name in codes(section(settings_page(), f"## [{table}]"))


def test_settings_have_the_defaults_that_hold() -> None:
    """Read from the page as from a file, they change nothing."""
    read: dict[str, Any] = {}
    table: dict[str, Any] = {}
    for line in settings_page().splitlines():
        if heading := re.fullmatch(r"## \[([\w.]+)\]", line):
            table = read
            for name in heading[1].split("."):
                table = table.setdefault(name, {})
        elif line.startswith("### [["):
            table = {}
        elif row := re.match(r"\| <code>(\w+)</code> \| <code>(.*?)</code> \|", line):
            table[row[1]] = tomllib.loads(f"it = {html.unescape(row[2])}")["it"]
    assert len(read) > 5
    assert Config.model_validate(read) == Config()


def test_every_metric_is_told_of_and_in_the_reference(root: Path) -> None:
    told = (root / "docs/observability.md").read_text()
    daemons = names_of(daemon_registry())
    assert len(daemons) > 20
    own = [name for name in daemons if not name.startswith("mirage_process_")]
    assert [name for name in own if f"`{name}`" not in told] == [], "docs/observability.md has no row for these"
    gateways = names_of(ServingMeters((), ()).registry)
    short = (root / "docs/serving.md").read_text()
    assert [name for name in gateways if name.removeprefix("mirage_serving") not in short] == []
    assert {*daemons, *gateways} <= codes(measures_page())


def test_what_is_told_of_is_measured(root: Path) -> None:
    told = re.findall(r"^\| `(mirage_\w+)` \|", (root / "docs/observability.md").read_text(), re.MULTILINE)
    assert set(told) <= set(names_of(daemon_registry())) | {"mirage_process_"}


def test_labels_are_those_that_are_told_of(root: Path) -> None:
    """``action: submit, hold; predictor`` are two, the first with its values; so are ``version, python``."""
    rows = re.findall(
        r"^\| `(mirage_\w+)` \|([^|]*)\|", (root / "docs/observability.md").read_text(), re.MULTILINE
    )
    made = re.findall(r"^\| <code>(mirage.*?)</code> \| \w+ \|([^|]*)\|", measures_page(), re.MULTILINE)
    labelled = {html.unescape(name): labels.replace(",", " ").split() for name, labels in made}
    for name, told in rows:
        if name in labelled:
            parts = told.split(";") if ":" in told else told.split(",")
            found = [part.partition(":")[0].strip() for part in parts if part.strip()]
            assert sorted(found) == sorted(labelled[name]), name


def test_every_group_of_entry_points_is_told_of(root: Path) -> None:
    groups = set()
    for file in (root / "plugins").glob("*/pyproject.toml"):
        groups |= tomllib.loads(file.read_text())["project"].get("entry-points", {}).keys()
    assert groups == {"mirage.predictors", "mirage.trainers"}
    for text in ((root / "plugins/README.md").read_text(), (root / "docs/predictors.md").read_text(), sdk_page()):
        assert [group for group in groups if group not in text] == []


def test_all_that_a_plugin_may_import_is_there() -> None:
    page = sdk_page()
    assert [name for name in plugin.__all__ if f"\n::: mirage.plugin.{name}\n" not in page] == []


def test_every_address_and_every_document_is_there(root: Path) -> None:
    description = json.loads((root / "docs/openapi.json").read_text())
    page = interface_page(description).replace("\\", "")
    for path, methods in description["paths"].items():
        for method, about in methods.items():
            here = section(page, f"### {method.upper()} {path}")
            assert {each["name"] for each in about.get("parameters", [])} <= codes(here)
            assert all(f"| {status} |" in here for status in about["responses"])
    for name, schema in description["components"]["schemas"].items():
        assert schema.get("properties", {}).keys() <= codes(section(page, f"### {name}"))


def test_every_error_is_in_the_tree_and_below_it() -> None:
    page = errors_page()
    every = (MirageError, *MirageError.__subclasses__())
    kinds = [kind.__name__ for kind in every if kind.__module__ == MirageError.__module__]
    assert [kind for kind in kinds if f"::: mirage.domain.errors.{kind}" not in page] == []
    tree = page[page.index("```text") : page.index("\n```\n")]
    assert [kind for kind in kinds if kind not in tree] == [], "the tree atop mirage/domain/errors.py"
