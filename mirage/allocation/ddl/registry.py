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
    "drf": "service_orderings:DominantShare",
    "edf": "scored_orderings:EarliestDeadline",
    "f1": "scored_orderings:F1",
    "fifo": "scored_orderings:Fifo",
    "las": "service_orderings:las",
    "las:": "service_orderings:las",
    "lpt": "service_orderings:lpt",
    "qssf": "service_orderings:QuasiShortest",
    "searched": "search:searched",
    "searched:": "search:searched",
    "sjf": "scored_orderings:ShortestFirst",
    "srsf": "service_orderings:srsf",
    "srsf:": "service_orderings:srsf",
    "srtf": "service_orderings:srtf",
    "ssf": "service_orderings:smallest_service",
    "tetris": "scored_orderings:Tetris",
    "wfp3": "scored_orderings:Wfp3",
}
PLACERS: dict[str, str] = {
    "das:": "das.policies:das_placer",
    "first-fit": "placers:first_fit",
    "best-fit": "placers:best_fit",
    "best-fit-all": "placers:best_fit_all",
    "load-balance": "placers:load_balance",
    "consolidate": "placers:consolidate",
    "random": "placers:at_random",
    "dot-product": "placers:dot_product",
    "pack": "placers:pack",
    "fgd": "placers:fgd",
    "foresight": "placers:foresight",
    "interference": "interference:BestResponse",
    "patient:": "placers:patient",
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
