"""Bounds of versions: for a package whose internals are used, and between the plugins and Mirage."""

from __future__ import annotations

import re
import tomllib

from house.sources import ROOT, project, sources

INTERNAL = {"numba.core": "numba", "uvicorn.protocols": "uvicorn"}
"""Modules outside a package's public interface, and the package."""


def _internal(module: str) -> str:
    """The package whose internals ``module`` belongs to; empty: to none."""
    package, *rest = module.split(".")
    if package != "mirage" and any(part.startswith("_") and not part.startswith("__") for part in rest):
        return package
    return next((owner for name, owner in INTERNAL.items() if f"{module}.".startswith(f"{name}.")), "")


def test_packages_whose_internals_are_used_have_an_upper_bound() -> None:
    used = {_internal(module) for source in sources("mirage") for module in source.imports if "." in module} - {""}
    assert used >= {"numba", "uvicorn"}
    wanted = {re.match(r"[\w-]+", line)[0]: line for line in project()["project"]["dependencies"]}
    assert not {package for package in used if "<" not in wanted.get(package, "")}


def test_plugins_accept_this_minor_version_of_mirage_only() -> None:
    """Before 1.0 the interface of plugins may change with a minor version."""
    major, minor, _ = map(int, project()["project"]["version"].split("."))
    bound = f">={major}.{minor},<{major}.{minor + 1}"
    files = sorted((ROOT / "plugins").glob("*/pyproject.toml"))
    assert len(files) >= 5
    for file in files:
        plugin = tomllib.loads(file.read_text())["project"]
        assert plugin["version"] == project()["project"]["version"], file
        groups = [plugin["dependencies"], *plugin.get("optional-dependencies", {}).values()]
        needed = [need for group in groups for need in group]
        ours = [re.sub(r"\[.*\]", "", need) for need in needed if need.startswith("mirage-")]
        assert ours, file
        assert {re.sub(r"^[\w-]+", "", need) for need in ours} == {bound}, file
