"""Imports of plugins: of Mirage only the SDK; libraries for training only where they are trained."""

from __future__ import annotations

import ast
import sys
from importlib import import_module
from pathlib import Path

import pytest

from mirage import plugin
from mirage.domain.errors import MissingExtra

PLUGINS = Path(__file__).resolve().parents[2] / "plugins"
SOURCES = sorted(PLUGINS.glob("mirage-*/mirage_*/**/*.py"))


def imported(source: Path) -> set[str]:
    """The modules that a file names in its imports, those for type checking too."""
    found = set()
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{source}: a relative import"
            found.add(node.module or "")
    return found


def test_there_are_plugins_to_test() -> None:
    packages = {source.relative_to(PLUGINS).parts[0] for source in SOURCES}
    assert {"mirage-dqn", "mirage-policy-gradient", "mirage-random-forest", "mirage-xgboost"} <= packages


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: f"{source.parent.name}/{source.name}")
def test_plugins_import_the_sdk_and_nothing_else_of_mirage(source: Path) -> None:
    ours = {name for name in imported(source) if name.split(".")[0] == "mirage"}
    assert ours <= {"mirage.plugin"}


def test_what_the_sdk_names_is_there() -> None:
    assert all(hasattr(plugin, name) for name in plugin.__all__)


@pytest.mark.parametrize(
    ("module", "factory", "taught_by", "library"),
    [
        ("mirage_random_forest", "trainer", "training", "sklearn.ensemble"),
        ("mirage_xgboost", "trainer", "training", "xgboost"),
        ("mirage_dqn", "mlp_trainer", "learning", "torch"),
        ("mirage_policy_gradient", "ppo_trainer", "learning", "mirage_encoders.trainer"),
    ],
)
def test_a_missing_library_is_named_with_what_installs_it(
    module: str, factory: str, taught_by: str, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, f"{module}.{taught_by}", raising=False)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingExtra) as caught:
        getattr(import_module(module), factory)()
    assert library in str(caught.value)
    assert f"pip install '{module.replace('_', '-')}[train]'" in str(caught.value)
