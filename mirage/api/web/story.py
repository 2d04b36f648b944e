"""Condensed journal: entries repeated in each cycle are shown once, with their number."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirage.api.documents.chains import EntryDocument

_NUMBERS = re.compile(r"[0-9]+")
_REPEATED = ("decision", "trouble")


@dataclass(slots=True)
class Passage:
    """The latest of ``times`` entries that differ only in numbers."""

    entry: EntryDocument
    first: str | None
    """Time of the earliest one."""
    times: int = 1


def condense(entries: Sequence[EntryDocument]) -> list[Passage]:
    """Condense a journal (newest first): drop entries of shadow predictors, fold repetitions."""
    told: list[Passage] = []
    for entry in entries:
        if entry.kind == "shadow":
            continue
        if told and _same(told[-1].entry, entry):
            told[-1].times += 1
            told[-1].first = entry.time
        else:
            told.append(Passage(entry, entry.time))
    return told


def _same(one: EntryDocument, other: EntryDocument) -> bool:
    return (
        one.kind == other.kind
        and one.kind in _REPEATED
        and one.link == other.link
        and one.predictor == other.predictor
        and _NUMBERS.sub("", one.text) == _NUMBERS.sub("", other.text)
    )
