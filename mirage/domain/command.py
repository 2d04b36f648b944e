"""Commands of users about their chains; executed by the loop at the start of its next cycle."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mirage.domain.chain import Chain, ChainId
    from mirage.domain.job import JobId, Seconds


@dataclass(frozen=True, slots=True)
class AdoptedJob:
    """A job that its owner has submitted, and that is to be the first link of a chain."""

    job_id: JobId
    submit: Seconds
    """Slurm's submit time of the job."""
    why: str = ""
    """Why the daemon adopts it by itself; empty: its owner asked for that."""


@dataclass(frozen=True, slots=True)
class AddChain:
    """Keep this service running from now on."""

    chain: Chain
    by: str
    """The calling user; the API has checked the right."""
    adopted: AdoptedJob | None = None
    """Link 1: a job of the chain's owner that bears its tag, as the border has seen; ``None``: it is submitted."""


@dataclass(frozen=True, slots=True)
class PauseChain:
    """No further link until resumed; those on the cluster stay."""

    chain_id: ChainId
    by: str


@dataclass(frozen=True, slots=True)
class ResumeChain:
    """Continue; rejections are forgotten."""

    chain_id: ChainId
    by: str


@dataclass(frozen=True, slots=True)
class CancelChain:
    """End the chain, running links too."""

    chain_id: ChainId
    by: str


@dataclass(frozen=True, slots=True)
class UpdateChain:
    """Continue by other settings; rejected where they are no longer ``before``."""

    before: Chain
    """The chain as the caller knew it."""
    after: Chain
    by: str

    @property
    def chain_id(self) -> ChainId:
        """ID of the chain; an update never changes it."""
        return self.before.chain_id


@dataclass(frozen=True, slots=True)
class LiftProtection:
    """End protected mode: all chains may submit again immediately."""

    by: str


@dataclass(frozen=True, slots=True)
class PutAway:
    """End all chains of a user whose name is another's now; they become the UID's."""

    name: str
    uid: int
    """The former user's."""
    by: str = "mirage"


ChainCommand = AddChain | PauseChain | ResumeChain | CancelChain | UpdateChain
"""Concerns one chain."""
Command = ChainCommand | LiftProtection | PutAway


@dataclass(frozen=True, slots=True)
class PendingCommand:
    """A command and the promise of its answer."""

    command: Command
    answer: Future[str] = field(default_factory=Future)
    """The sentence that says what was done, once it is stored; or a ``MirageError``."""
