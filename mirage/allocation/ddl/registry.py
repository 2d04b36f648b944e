"""Ordering policies and placement policies by name, as in options: ``sjf``, ``best-fit``,
``das:models/das``."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mirage.domain.errors import MirageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirage.ports import Ordering, Placer

# Where each is built: "module:maker", relative to this package, imported on request. The maker is called without
# arguments or, if the name ends in a colon ("das:"), with the text behind it.
ORDERINGS: dict[str, str] = {
    "das:": "das.policies:das_ordering",
    "drf": "orderings.fair:DominantShare",
    "edf": "orderings.scoring:EarliestDeadline",
    "f1": "orderings.scoring:F1",
    "fifo": "orderings.plain:Fifo",
    "las": "orderings.fair:las",
    "las:": "orderings.fair:las",
    "lpt": "orderings.service:lpt",
    "qssf": "orderings.history:QuasiShortest",
    "searched": "search.ordering:searched",
    "searched:": "search.ordering:searched",
    "sjf": "orderings.plain:ShortestFirst",
    "srsf": "orderings.service:srsf",
    "srsf:": "orderings.service:srsf",
    "srtf": "orderings.service:srtf",
    "ssf": "orderings.service:smallest_service",
    "tetris": "orderings.scoring:Tetris",
    "wfp3": "orderings.scoring:Wfp3",
}
PLACERS: dict[str, str] = {
    "das:": "das.policies:das_placer",
    "first-fit": "placers.compiled:first_fit",
    "best-fit": "placers.compiled:best_fit",
    "best-fit-all": "placers.compiled:best_fit_all",
    "load-balance": "placers.compiled:load_balance",
    "consolidate": "placers.compiled:consolidate",
    "random": "placers.compiled:at_random",
    "dot-product": "placers.compiled:dot_product",
    "pack": "placers.compiled:pack",
    "fgd": "placers.compiled:fgd",
    "foresight": "placers.compiled:foresight",
    "interference": "placers.interference:BestResponse",
    "patient:": "placers.patience:patient",
}


class UnknownPolicy(MirageError):
    """An unknown name of an ordering or placement policy; the text lists the known names."""


def ordering(name: str) -> Ordering:
    """The ordering policy with this name. Raises ``UnknownPolicy``."""
    made: Ordering = _make("ordering policy", ORDERINGS, name)
    return made


def placer(name: str) -> Placer:
    """The placement policy with this name. Raises ``UnknownPolicy``."""
    made: Placer = _make("placement policy", PLACERS, name)
    return made


def _make(what: str, makers: Mapping[str, str], name: str) -> Any:
    kind, colon, argument = name.partition(":")
    where = makers.get(kind + colon)
    if where is None:
        known = ", ".join(sorted(makers))
        raise UnknownPolicy(f"unknown {what} {name!r} (choose from {known})")
    module, _, maker = where.partition(":")
    make = getattr(import_module(f"{__package__}.{module}"), maker)
    return make(argument) if colon else make()
