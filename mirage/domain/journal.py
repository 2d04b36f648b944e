"""Entries of the journal: what happened, was decided and was done, each as one sentence."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mirage.domain.chain import ChainId
    from mirage.domain.job import Seconds


class EntryKind(StrEnum):
    """What an entry is about."""

    EVENT = "event"
    """Something changed on the cluster."""
    DECISION = "decision"
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
