"""Reports on chains: entries of the journal (what happened, was decided, was done), and notifications."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2s
from typing import TYPE_CHECKING

from mirage.domain.texts import storable

if TYPE_CHECKING:
    from mirage.domain.chain import ChainId
    from mirage.domain.decision import Prediction
    from mirage.domain.job import Seconds
    from mirage.domain.objective import Outcome


class NoticeKind(StrEnum):
    """The event that a notification reports; the configuration lists these values under ``events``."""

    SUBMITTED = "link-submitted"
    GAP = "gap"
    """A service is down for longer than is tolerated, or runs again after that."""
    DONE = "chain-done"
    STUCK = "chain-stuck"
    """The chain paused or stopped by itself, or its link waits far longer than predicted."""
    NOT_ADOPTED = "job-not-adopted"
    """A job of plain ``sbatch`` asks for a chain and cannot have one."""
    WEEK = "week"
    """Losses of the last week's handovers, and what was saved."""
    PROTECTED = "protected-mode"
    UNREACHABLE = "controller-unreachable"
    TEST = "test"
    """A test message."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A message about a chain or the service, before it is formatted for a channel."""

    kind: NoticeKind
    time: Seconds
    """On Slurm's clock."""
    text: str
    """One sentence."""
    chain: str = ""
    """Its id; empty: about the whole service, for the site alone."""
    name: str = ""
    owner: str = ""
    link: int = 0
    """0: about no link in particular."""
    over: bool = False
    """The problem of an earlier notice has ended."""


class EntryKind(StrEnum):
    """The kind of a journal entry."""

    COMMAND = "command"
    """A user's command."""
    EVENT = "event"
    """Something changed on the cluster."""
    DECISION = "decision"
    SHADOW = "shadow"
    """The decision that a shadow predictor would have made."""
    ACTION = "action"
    OUTCOME = "outcome"
    """A handover is complete."""
    TROUBLE = "trouble"
    """A predictor failed, a submission was rejected, the controller did not answer."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One journal entry, such as a command, an event or a decision with its reason."""

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
    """The prediction; ``None`` where no predictor was called."""
    outcome: Outcome | None = None
    asked: str = ""
    """Decisions: who was asked, where another user answered."""
    model: str = ""
    """Decisions by a trained model: which version of it."""

    @property
    def key(self) -> str:
        """What log, journal and interface call this entry: its time and a digest.

        Only entries with the same text about the same link within a second have the same key.
        """
        said = (self.chain or "", self.kind, str(self.link), self.predictor, self.text)
        digest = blake2s("\n".join(map(storable, said)).encode(), digest_size=4)
        return f"{self.time:x}-{digest.hexdigest()}"

    @property
    def submits(self) -> bool:
        """Decisions: whether the successor was to be submitted."""
        return self.text.startswith("submit")
