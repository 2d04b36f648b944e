"""What the daemon tells, as dataclasses.

Instants are aware ``datetime``s, durations seconds, ``None`` is not known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class Link:
    """One Slurm job of a chain."""

    index: int
    """From 1."""
    state: str
    """planned, submitted, pending, running, ended or lost."""
    job_id: int | None = None
    job_state: str = ""
    """Slurm's."""
    submit: datetime | None = None
    start: datetime | None = None
    end: datetime | None = None
    """Running: when its limit ends it."""
    exit_code: int = 0
    reason: str = ""
    """The sentence that decided its submission."""


@dataclass(frozen=True, slots=True)
class LinkRequest:
    """What each link asks of Slurm."""

    job_name: str = ""
    partition: str = ""
    """Empty: the cluster's default partition."""
    account: str = ""
    qos: str = ""
    nodes: int = 0
    limit: int = 0
    gres_per_node: Mapping[str, int] = field(default_factory=dict)
    directory: str = ""


@dataclass(frozen=True, slots=True)
class Chain:
    """A service longer than the walltime limit: its links, and how they handed over."""

    id: str
    name: str
    owner: str
    status: str
    """active, paused, done or stopped."""
    reason: str = ""
    """Why it is paused, done or stopped."""
    sentence: str = ""
    """What the last cycle did about it."""
    predictor: str = ""
    aim: str = ""
    steering: str = ""
    handover: str = ""
    failures: int = 0
    refusals: int = 0
    not_before: datetime | None = None
    request: LinkRequest = field(default_factory=LinkRequest)
    links: tuple[Link, ...] = ()
    handovers: int = 0
    interruption: int = 0
    """Seconds without a running link, over all hand-overs."""
    overlap: int = 0
    """Seconds with two running links, over all hand-overs."""

    @property
    def running(self) -> Link | None:
        """The running link that ends last."""
        running = [link for link in self.links if link.state == "running"]
        return max(running, key=lambda link: link.end.timestamp() if link.end else 0.0, default=None)

    @property
    def over(self) -> bool:
        """Whether no further link will ever be submitted."""
        return self.status in ("done", "stopped")


@dataclass(frozen=True, slots=True)
class ChainPage:
    """Some chains in order of creation, and the state of the loop that keeps them."""

    chains: tuple[Chain, ...]
    time: datetime | None = None
    sentence: str = ""
    stale_since: datetime | None = None
    """When the cluster last answered, where it does not answer now."""
    next: str | None = None
    """Where the next page begins; ``None``: this is the last."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a command."""

    id: str
    sentence: str
    chain: Chain | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the journal."""

    time: datetime | None
    kind: str
    text: str
    link: int | None = None
    predictor: str = ""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a chain is as it is; entries newest first."""

    id: str
    sentence: str
    entries: tuple[Entry, ...] = ()


@dataclass(frozen=True, slots=True)
class Event:
    """Something that has just happened."""

    id: str
    """``Client.events`` goes on after it."""
    kind: str
    data: Any
    """The document that came with it."""
