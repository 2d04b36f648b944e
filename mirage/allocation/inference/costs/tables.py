"""Cost tables by name: a built-in one (``edge``), or the path of a file."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from mirage.allocation.inference.costs.manifest import ManifestError, read_manifest
from mirage.allocation.inference.costs.tablefile import read_table
from mirage.domain.errors import MirageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirage.allocation.inference.costs.manifest import Manifest
    from mirage.domain.request import CostTable


class UnknownCostTable(MirageError):
    """Neither the name of a table nor a file; the text lists the built-in tables."""


def table_names() -> tuple[str, ...]:
    """Names of the built-in tables."""
    return tuple(sorted(path.stem for path in _folder().glob("*.csv")))


def cost_table(name: str) -> CostTable:
    """The table of a name or path. Raises ``UnknownCostTable``, ``CostTableError``, ``ManifestError``."""
    path = table_path(name)
    read_manifest(path)
    return read_table(path)


def cost_manifest(name: str) -> Manifest | None:
    """The manifest of a table; ``None`` without one."""
    return read_manifest(table_path(name))


def sources(names: Sequence[str]) -> list[Manifest]:
    """Manifests of tables. Raises ``ManifestError`` for one without a manifest."""
    found = [(name, cost_manifest(name)) for name in names]
    unknown = [name for name, manifest in found if manifest is None]
    if unknown:
        raise ManifestError(f"no manifest next to {', '.join(unknown)}, so the origin of the figures is unknown")
    return [manifest for _, manifest in found if manifest is not None]


def table_path(name: str) -> Path:
    """The file of a name. A name without a slash and a suffix is a built-in table."""
    if name in table_names():
        return _folder() / f"{name}.csv"
    path = Path(name)
    try:
        there = path.is_file()
    except OSError:  # such as a name that is too long
        there = False
    if not there:
        known = ", ".join(table_names())
        raise UnknownCostTable(f"no cost table {name!r}: no such file, and the built-in tables are: {known}")
    return path


def _folder() -> Path:
    return Path(str(resources.files(__package__).joinpath("data")))
