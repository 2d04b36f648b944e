"""Cost tables by the names that users write: those that come with Mirage (``edge``), or a file's path."""

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
    """Neither the name of a table nor a file. Says which tables there are."""


def table_names() -> tuple[str, ...]:
    """The tables that come with Mirage."""
    return tuple(sorted(path.stem for path in _folder().glob("*.csv")))


def cost_table(name: str) -> CostTable:
    """The table that a user calls ``name``. Raises ``UnknownCostTable``, ``CostTableError``, ``ManifestError``."""
    path = table_path(name)
    read_manifest(path)
    return read_table(path)


def cost_manifest(name: str) -> Manifest | None:
    """Where the table comes from; None where nothing lies next to it."""
    return read_manifest(table_path(name))


def sources(names: Sequence[str]) -> list[Manifest]:
    """Where tables come from. Raises ``ManifestError`` for one without a manifest."""
    found = [(name, cost_manifest(name)) for name in names]
    unknown = [name for name, manifest in found if manifest is None]
    if unknown:
        raise ManifestError(f"no manifest lies next to {', '.join(unknown)}: it is not known how they were made")
    return [manifest for _, manifest in found if manifest is not None]


def table_path(name: str) -> Path:
    """The file behind a name. A name without a slash and an ending is one of Mirage's own."""
    if name in table_names():
        return _folder() / f"{name}.csv"
    path = Path(name)
    try:
        there = path.is_file()
    except OSError:  # such as a name that is too long
        there = False
    if not there:
        known = ", ".join(table_names())
        raise UnknownCostTable(f"there is no cost table {name!r}: no such file, and Mirage's own are: {known}")
    return path


def _folder() -> Path:
    return Path(str(resources.files(__package__).joinpath("data")))
