"""Entries of the journal: what happened, was decided and was done, each as one sentence."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mirage.domain.chain import ChainId, Outcome
    from mirage.domain.decision import Prediction
    from mirage.domain.job import Seconds


class EntryKind(StrEnum):
    """What an entry is about."""

    COMMAND = "command"
    """Somebody asked for something."""
    EVENT = "event"
    """Something changed on the cluster."""
    DECISION = "decision"
    SHADOW = "shadow"
    """What a predictor would have decided that is not in charge."""
    ACTION = "action"
    OUTCOME = "outcome"
    """A hand-over is complete."""
    TROUBLE = "trouble"
    """A predictor failed, a submission was refused, the controller did not answer."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the journal."""

    time: Seconds
    chain: ChainId | None
    """``None``: about the whole service."""
    kind: EntryKind
    text: str
    link: int = 0
    """Index of the link it is about (for an outcome: the predecessor's); 0: none in particular."""
    predictor: str = ""
    """Decisions, also in shadow: who predicted."""
    prediction: Prediction | None = None
    """What was predicted; ``None`` where none was asked."""
    outcome: Outcome | None = None
