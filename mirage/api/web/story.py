"""The journal as a story: what the loop says at every cycle is told once, with how often."""

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
    """One sentence, the latest of ``times`` that say the same but for numbers."""

    entry: EntryDocument
    first: str | None
    """When the earliest of them was said."""
    times: int = 1


def condense(entries: Sequence[EntryDocument]) -> list[Passage]:
    """The journal (newest first) without what predictors in shadow would have done, repetitions folded."""
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
