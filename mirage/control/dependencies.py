"""What the loop is given: all that it touches, and how it decides."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mirage.control.commands import NoCommands
from mirage.features.summary import QueueWindows
from mirage.provisioner.decide import DecisionRule
from mirage.provisioner.limits import Limits, Quotas

if TYPE_CHECKING:
    from mirage.control.restored import RestoredDatabase
    from mirage.control.startplans import PlanBudget
    from mirage.domain.job import Seconds
    from mirage.ports import (
        Actuator,
        ChainStore,
        Clock,
        Cluster,
        CommandSource,
        Files,
        JobHistory,
        Journal,
        NodeSharing,
        OwnerLimitSource,
        StartEstimator,
        WaitHistory,
    )


@dataclass(frozen=True, slots=True)
class LoopDependencies:
    """All that the loop touches; one object may serve several ports."""

    cluster: Cluster
    actuator: Actuator
    estimator: StartEstimator
    waits: WaitHistory
    clock: Clock
    store: ChainStore
    journal: Journal
    files: Files
    commands: CommandSource = field(default_factory=NoCommands)
    history: JobHistory | None = None
    standings: OwnerLimitSource | None = None
    sharing: NodeSharing | None = None
    restored: RestoredDatabase | None = None
    windows: QueueWindows = field(default_factory=QueueWindows)
    """The summaries of the queue's last day so far."""


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """How the loop decides."""

    rule: DecisionRule = field(default_factory=DecisionRule)
    limits: Limits = field(default_factory=Limits)
    quotas: Quotas = field(default_factory=Quotas)
    """What one user may have stored here."""
    settle: Seconds = 120
    """Submission grace period, s: a submitted link that no snapshot shows by then is submitted again."""
    decision_seconds: float | None = None
    """Real seconds of a cycle for the decisions of all owners; see ``Turns``. ``None``: no bound."""
    plans: PlanBudget | None = None
    """Query budget for Slurm's planned starts; ``None``: query for each decision. Fixed at start."""
    clock_slack: Seconds = 60
    """Tolerated difference between this clock and Slurm's, s. Fixed at start."""
    between_polls: bool = False
    """Whether a cycle comes when a forecast says that a submission is due. Replays decide at their ticks alone."""
    queue_age: Seconds = 0
    """Maximum age of the queue while no chain has anything due, s; 0: it is read in each cycle, as in replays."""
    appraise: Seconds = 0
    """Seconds after a predecessor's end in which what the handover saved is predicted; 0: never, as in replays."""
