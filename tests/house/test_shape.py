"""The shape of the house: what is long, who imports whom, and that nothing stands there unused.

What is let off stands in a table here with its reason, and a reason that no longer applies fails as well.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, Any

import pytest
from house.sources import ROOT, project, sources

if TYPE_CHECKING:
    from house.sources import Source

ALL = ("mirage", "plugins", "slurm-testbed", "tests", "docs")
PRODUCT = ("mirage", "plugins", "slurm-testbed")

LINES_OF_A_FILE, LINES_OF_A_FUNCTION = 400, 60

LONG = {
    "mirage/cli/bench.py:_measure": "a case for each benchmark, imported where it is asked for",
}
"""``path`` or ``path:function``, and why it is clearer whole."""

STARTED = {
    "mirage.__main__": "python -m mirage",
    "mirage.api.openapi": "make openapi",
    "mirage.bench.accasim_easy": "AccaSim loads it",
    "mirage.cli.man": "make man",
    "mirage.store.migrations.env": "Alembic runs it",
}
"""Modules without importers, and who starts them."""

FOUND_IN_A_FOLDER = ("mirage.store.migrations.versions.",)
"""Alembic looks for its versions in their directory."""

FOR_OTHERS = {
    "mirage.backends.recorded": "the Cluster of a shadow replay over kept snapshots, which no command offers yet",
    "mirage.training.relmas.environment": "for learners of others: docs/relmas.md",
}
"""Modules that nothing here uses, and for whom they are."""

UNUSED_NAMES = {
    "posterior_covariance": "the plain formula to which the compiled process is held",
    "posterior_mean": "the plain formula to which the compiled process is held",
    "read_samples": "what published traces say of speeds: a test holds the tables to it",
    "RecordedTicks": "with mirage.backends.recorded",
    "SimulatedEnv": "with mirage.training.environment",
    "get_id": "called by AccaSim",
    "http_open": "called by urllib",
    "https_open": "called by urllib",
    "redirect_request": "called by urllib",
    "scheduling_method": "called by AccaSim",
    "chain_page": "for programs of others: mirage.client",
}
"""Public names that nothing of the product uses, and why they are there."""

TESTBED_USES = {
    "mirage.allocation.inference.costs.examples",
    "mirage.allocation.inference.serving.load_client",
    "mirage.client",
    "mirage.domain.chain",
    "mirage.domain.errors",
    "mirage.domain.job",
    "mirage.domain.link",
    "mirage.store.opening",
}
"""Modules that programs on a real Slurm may take from Mirage: load clients, small models, and stored data."""


def test_no_file_is_longer_than_one_reads_and_no_function_than_one_sees() -> None:
    found = {}
    for source in chain.from_iterable(map(sources, ALL)):
        lines = source.text.count("\n")
        if lines > LINES_OF_A_FILE:
            found[str(source.path)] = lines
        found |= {f"{source.path}:{name}": long for name, long in source.functions if long > LINES_OF_A_FUNCTION}
    assert not found.keys() - LONG.keys(), f"split these, or say in LONG why not: {found}"
    assert not LONG.keys() - found.keys(), "these are short now: take them out of LONG"


def test_no_two_files_of_tests_have_one_name() -> None:
    """Their directories are no packages: pytest takes the second for the first and leaves it out with an error."""
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, files in names.items() if files > 1] == []


def _contract(kind: str) -> dict[str, Any]:
    (found,) = (each for each in project()["tool"]["importlinter"]["contracts"] if each["type"] == kind)
    return found


def test_the_contract_of_layers_names_every_package() -> None:
    contract = _contract("layers")
    assert contract["exhaustive"]
    layers = [name.strip() for layer in contract["layers"] for name in layer.split("|")]
    assert len(layers) == len(set(layers))
    packages = {source.name.split(".")[1] for source in sources("mirage") if source.name != "mirage"}
    assert {*layers, *contract["exhaustive_ignores"]} == packages


def test_the_inside_of_an_allocation_imports_only_from_the_lowest_layers() -> None:
    """Its contract forbids every package of the layers down to that of the simulator, and no other."""
    layers = [layer.split(" | ") for layer in _contract("layers")["layers"]]
    (last,) = (place for place, names in enumerate(layers) if "simulator" in names)
    above = set(chain.from_iterable(layers[: last + 1])) - {"allocation"}
    contract = _contract("forbidden")
    assert contract["source_modules"] == ["mirage.allocation"]
    assert set(contract["forbidden_modules"]) == {f"mirage.{name}" for name in above}
    assert contract.keys() == {"name", "type", "source_modules", "forbidden_modules"}, "no exceptions"


@pytest.mark.parametrize("folder", sorted(path.name for path in (ROOT / "plugins").glob("mirage-*")))
def test_plugins_import_nothing_of_mirage_but_what_is_made_for_them(folder: str) -> None:
    for source in sources(f"plugins/{folder}"):
        used = {name for name in source.imports if name.split(".")[0] == "mirage"}
        assert all(f"{name}.".startswith("mirage.plugin.") for name in used), f"{source.path}: {used}"


def test_programs_on_a_real_slurm_use_mirage_as_others_do() -> None:
    modules = {source.name for source in sources("mirage")}
    used = set(chain.from_iterable(source.imports for source in sources("slurm-testbed"))) & modules
    assert used == TESTBED_USES


def _entries() -> set[str]:
    scripts = project()["project"]["scripts"].values()
    return {script.partition(":")[0] for script in scripts} | STARTED.keys()


def _named_in(source: Source) -> set[str]:
    """Modules that a registry names by texts such as ``scored_orderings:Fifo``, in its package or whole."""
    package = source.name if source.path.name == "__init__.py" else source.name.rpartition(".")[0]
    texts = {text.partition(":")[0] for text in source.texts}
    return texts | {f"{package}.{text}" for text in texts}


def test_every_module_is_used_or_is_where_something_begins() -> None:
    used = set()
    for source in chain.from_iterable(map(sources, PRODUCT)):
        used |= (source.imports | _named_in(source)) - {source.name}
    modules = {source.name for source in sources("mirage") if source.path.name != "__init__.py"}
    unused = {name for name in modules - used - _entries() if not name.startswith(FOUND_IN_A_FOLDER)}
    assert unused == set(FOR_OTHERS)


def test_every_public_name_is_used_somewhere() -> None:
    """By the word alone: a name that occurs one time in all of the product, its templates and documents."""
    texts = [source.text for source in chain.from_iterable(map(sources, PRODUCT))]
    texts += [path.read_text() for folder in ("mirage", "docs") for path in (ROOT / folder).rglob("*.j2")]
    texts += [path.read_text() for path in (ROOT / "docs").rglob("*.md")]
    words = Counter(word for text in texts for word in re.findall(r"[A-Za-z_]\w*", text))
    names = set(chain.from_iterable(source.public for source in sources("mirage")))
    assert {name for name in names if words[name] <= 1} == set(UNUSED_NAMES)
