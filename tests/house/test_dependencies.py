"""A package whose internals are used has an upper bound: internals may change with any release."""

from __future__ import annotations

import re

from house.sources import project, sources

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
