"""Plan of a replay: the service, the policies, and when episodes begin."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mirage.domain.bounds import format_instant
from mirage.domain.chain import Chain, ChainId, DoneCondition, HandoverPolicy, HandoverSettings, Steering
from mirage.domain.errors import BadSpelling, ConfigError
from mirage.domain.job import JobRequest
from mirage.domain.objective import Weights
from mirage.predictors.members import AUTO
from mirage.slurm.duration import parse_human

if TYPE_CHECKING:
    from mirage.domain.job import Seconds
    from mirage.domain.jobtable import JobTable

SERVICE_USER = "mirage-service"
"""The user who runs the service: one without history or other jobs in the trace."""

MINUTE = 60


MOST_EPISODES = 100_000


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """The settings of a closed-loop replay. Times in seconds."""

    policies: tuple[str, ...]
    """Predictors as the user names them, or ways of steering (see ``split_policy``); each is replayed on every
    episode."""
    nodes: int
    limit: Seconds
    start: Seconds
    """First episode."""
    end: Seconds
    """No episode starts after this."""
    every: Seconds
    tick: Seconds = 10 * MINUTE
    links: int = 2
    partition: str = ""
    cpus: int = 0
    """Of each link on each of its nodes, which it shares with other jobs; 0: whole nodes."""
    user: str = SERVICE_USER
    """Owner of the links; a user of the trace has the usage and the limits of their jobs there."""
    one_writer: bool = False
    """Whether no two links may run together, as of a training that writes checkpoints."""
    weights: Weights = field(default_factory=Weights)
    seed: int = 0

    def check(self, trace: JobTable) -> None:
        """Raise ``ConfigError`` for a plan that cannot be played on this trace."""
        positive = ("nodes", "limit", "every", "tick")
        for name in positive:
            if getattr(self, name) <= 0:
                raise ConfigError(f"--{name}", f"must be positive, not {getattr(self, name)}")
        if self.links < 2:
            raise ConfigError("--links", f"a handover needs two links, not {self.links}")
        if self.end < self.start:
            raise ConfigError("--end", f"{format_instant(self.end)} is before --start")
        if (self.end - self.start) // self.every >= MOST_EPISODES:
            raise ConfigError("--every", f"more than {MOST_EPISODES} episodes between --start and --end")
        if not len(trace):
            raise ConfigError(trace.source or "trace", "has no jobs")
        if self.user != SERVICE_USER and self.user not in trace.user.vocabulary:
            raise ConfigError("--user", f"{self.user!r} has no jobs in the trace")
        first, last = int(trace.submit[0]), int(trace.submit[-1])
        if not first < self.start <= last:
            raise ConfigError(
                "--start",
                f"{format_instant(self.start)} is not within the trace, {format_instant(first)} to "
                f"{format_instant(last)}: what comes before an episode is its history",
            )

    def episode_starts(self) -> tuple[Seconds, ...]:
        """When each episode's first link is submitted."""
        return tuple(range(self.start, self.end + 1, self.every))

    def chain(self, steering: Steering = Steering.OFF, lead: Seconds = 0) -> Chain:
        """The service: links that run to their limit."""
        request = JobRequest(
            "service",
            self.user,
            self.limit,
            self.nodes,
            self.partition,
            cpus_per_node=self.cpus,
            exclusive=not self.cpus,
        )
        done = DoneCondition(exit_code=None, links=self.links)
        handover = HandoverSettings(HandoverPolicy.NONE if self.one_writer else HandoverPolicy.OVERLAP)
        return Chain(
            ChainId("replay"), "service", self.user, request, done, handover=handover, steering=steering, lead=lead
        )


def split_policy(policy: str) -> tuple[str, Steering, Seconds]:
    """The predictor that a policy names, and the steering with its lead: ``hold:10m``, ``pin``, ``nice:1h``.

    A steered successor is submitted as its predecessor starts, whatever a predictor would say. With ``auto`` the
    predictor of that name decides where a successor cannot be steered. Raises ``ConfigError``.
    """
    name, _, lead = policy.partition(":")
    if policy == Steering.AUTO:
        return AUTO, Steering.AUTO, 0
    if name not in (Steering.NICE, Steering.HOLD, Steering.PIN):
        return policy, Steering.OFF, 0
    try:
        return "reactive", Steering(name), parse_human(lead) if lead else 0
    except BadSpelling as error:
        raise ConfigError("--predictor", f"{policy!r}: {error}") from error
