"""Fair shares, running-job limits and reservations of users, queried by Slurm's commands next to the loop."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from mirage.domain.decision import NO_LIMIT, Standing
from mirage.domain.errors import BadSpelling, ClusterUnavailable, ConfigError
from mirage.domain.job import ABSENT
from mirage.simulator.configuration.accountdump import parse_associations, parse_qos
from mirage.slurm import shares_and_partitions
from mirage.slurm.conf import ENFORCED, read_settings
from mirage.slurm.error_messages import one_line
from mirage.slurm.shares_and_partitions import (
    PARTITION_ARGUMENTS,
    RESERVATION_ARGUMENTS,
    SETTINGS,
    read_partition_nodes,
    read_reservations,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from mirage.backends.execution import CommandRunner
    from mirage.domain.job import JobRequest, Seconds
    from mirage.ports import Clock
    from mirage.simulator.cluster import Association, Qos
    from mirage.slurm.shares_and_partitions import Owner, PartitionNodes, Reserved

_USUAL_QOS = "normal"
"""Slurm's own default, for who asks for none."""


@dataclass(frozen=True, slots=True)
class RunningJob:
    """User, account and QOS against whose limits a job counts."""

    user: str
    account: str
    qos: str


@dataclass(frozen=True, slots=True)
class RunningJobLimits:
    """Limits on simultaneously running jobs, and the jobs that run now."""

    associations: Mapping[Owner, Association]
    """Users in accounts, and accounts with no user."""
    qos: Mapping[str, Qos]
    running: tuple[RunningJob, ...]

    def left(self, user: str, account: str, qualities: tuple[str, ...]) -> int:
        """Number of further jobs of this kind that may run; ``NO_LIMIT`` where nothing bounds them."""
        bounds = [*self._by_association(user, account), *self._by_qos(user, account, qualities)]
        left = [max(most - taken, 0) for most, taken in bounds if most >= 0]
        return min(left, default=NO_LIMIT)

    def _by_association(self, user: str, account: str) -> Iterator[tuple[int, int]]:
        """(limit, running): the user's own, inherited where it is not set, and each account's above."""
        accounts = tuple(self._accounts_above(account))
        rows = [self.associations.get(key) for key in ((account, user), *((name, "") for name in accounts))]
        own = next((row.max_jobs for row in rows if row is not None and row.max_jobs >= 0), -1)
        theirs = sum(job.user == user and job.account == account for job in self.running)
        yield own, theirs
        yield getattr(rows[0], "grp_jobs", -1), theirs
        for name in accounts:
            row = self.associations.get((name, ""))
            if row is not None and row.grp_jobs >= 0:
                yield row.grp_jobs, sum(name in self._accounts_above(job.account) for job in self.running)

    def _accounts_above(self, account: str) -> Iterator[str]:
        seen = set()
        while account and account not in seen:
            seen.add(account)
            yield account
            row = self.associations.get((account, ""))
            account = row.parent if row is not None else ""

    def _by_qos(self, user: str, account: str, qualities: tuple[str, ...]) -> Iterator[tuple[int, int]]:
        for name in qualities:
            quality = self.qos.get(name)
            if quality is None:
                continue
            under = [job for job in self.running if job.qos == name]
            yield quality.grp_jobs, len(under)
            yield quality.max_jobs_per_user, sum(job.user == user for job in under)
            yield quality.max_jobs_per_account, sum(job.account == account for job in under)


@dataclass(frozen=True, slots=True)
class Granted:
    """All values of one query; empty if Slurm reported none."""

    shares: Mapping[Owner, float] = field(default_factory=dict)
    accounts: Mapping[str, str] = field(default_factory=dict)
    """Each user's default account."""
    limits: RunningJobLimits | None = None
    """``None``: not known."""
    reservations: tuple[Reserved, ...] | None = None
    """``None``: not known."""
    partitions: Mapping[str, PartitionNodes] = field(default_factory=dict)

    def standing(self, request: JobRequest, now: Seconds) -> Standing:
        """That of the user for such a job."""
        account = request.account or self.accounts.get(request.user, "")
        return Standing(
            fair_share=self.shares.get((account, request.user), float("nan")),
            jobs_left=self._jobs_left(request, account),
            reserved_nodes=self._reserved(request, account, now),
            unreserved=self._unreserved(request, account, now),
        )

    def _jobs_left(self, request: JobRequest, account: str) -> int:
        if self.limits is None:
            return ABSENT
        partition = self._partition(request)
        qualities = (request.qos or _USUAL_QOS, partition.qos if partition is not None else "")
        return self.limits.left(request.user, account, tuple(dict.fromkeys(qualities)))

    def _reserved(self, request: JobRequest, account: str, now: Seconds) -> int:
        partition = self._partition(request)
        if partition is None or self.reservations is None:
            return ABSENT
        taken: set[str] = set()
        for reserved in self.reservations:
            due = reserved.start < now + request.limit and reserved.end > now
            if due and not reserved.admits(request.user, account):
                taken |= reserved.nodes & partition.nodes
        return len(taken)

    def _unreserved(self, request: JobRequest, account: str, now: Seconds) -> Seconds:
        partition = self._partition(request)
        if partition is None or self.reservations is None or request.reservation:
            return ABSENT
        others = [each for each in self.reservations if each.end > now and not each.admits(request.user, account)]
        for start in sorted({now, *(each.end for each in others)}):
            due = (each for each in others if each.start < start + request.limit and each.end > start)
            taken = frozenset[str]().union(*(each.nodes for each in due))
            if len(partition.nodes - taken) >= request.nodes:
                return ABSENT if start == now else start
        return ABSENT

    def _partition(self, request: JobRequest) -> PartitionNodes | None:
        if request.partition:
            return self.partitions.get(request.partition)
        return self.partitions.get(self.default_partition)

    @property
    def default_partition(self) -> str:
        """The partition of jobs that name none; empty: not known, or Slurm has no default."""
        return next((name for name, partition in self.partitions.items() if partition.default), "")


_T = TypeVar("_T")

EVERY: Seconds = 3_600
"""Maximum age of an answer."""

_ASSOCIATIONS = (
    *("--parsable2", "show", "assoc"),
    "format=Cluster,Account,User,ParentName,Partition,GrpJobs,MaxJobs",
)
_QOS = ("--parsable2", "show", "qos", "format=Name,GrpJobs,MaxJobsPU,MaxJobsPA")
_RUNNING = ("--noheader", "--states=RUNNING,SUSPENDED", "--format=%u|%a|%q")


class CliStandings:
    """Answers from the result of the last ``refresh``; before that nothing is known."""

    def __init__(self, commands: CommandRunner, clock: Clock) -> None:
        self._commands = commands
        self._clock = clock
        self._granted = Granted()
        self._asked: Seconds | None = None
        self._hides_jobs = True

    def standing(self, request: JobRequest) -> Standing:
        """That of the request's user; asks nothing."""
        return self._granted.standing(request, self._clock.now())

    def default_partition(self) -> str:
        """The default partition of the last ``refresh``; sends no query."""
        return self._granted.default_partition

    def hides_jobs(self) -> bool:
        """Whether ``PrivateData`` hides the jobs of others from users; true until Slurm has answered."""
        return self._hides_jobs

    def refresh(self) -> str:
        """Query again where an hour has passed; returns what is missing, or an empty text where nothing is due.

        The queries run one after the other, each about all users. What is not answered counts as not known.
        """
        now = self._clock.now()
        if self._asked is not None and 0 <= now - self._asked < EVERY:
            return ""
        self._asked = now
        silent: list[str] = []
        self._granted = self._ask_all(silent)
        return (
            f"not available: {'; '.join(silent)}"
            if silent
            else "fair shares, limits and reservations are available"
        )

    def _ask_all(self, silent: list[str]) -> Granted:
        def ask(argv: Sequence[str], read: Callable[[str], _T], otherwise: _T) -> _T:
            try:
                return read(self._answer(argv))
            except (BadSpelling, ClusterUnavailable, ConfigError) as trouble:
                silent.append(str(trouble))
                return otherwise

        unknown = Granted()
        return Granted(
            ask(
                ("sshare", *shares_and_partitions.SHARE_ARGUMENTS),
                shares_and_partitions.read_shares,
                unknown.shares,
            ),
            ask(
                ("sacctmgr", *shares_and_partitions.USER_ARGUMENTS),
                shares_and_partitions.read_default_accounts,
                unknown.accounts,
            ),
            ask(("scontrol", "show", "config"), self._limits, unknown.limits),
            ask(("scontrol", *RESERVATION_ARGUMENTS), read_reservations, unknown.reservations),
            ask(("scontrol", *PARTITION_ARGUMENTS), read_partition_nodes, unknown.partitions),
        )

    def _limits(self, config: str) -> RunningJobLimits:
        """Without any where the configuration enforces none."""
        settings = read_settings(config)
        self._hides_jobs = "jobs" in settings.get("privatedata", "jobs").lower()
        if not ENFORCED & set(settings.get("accountingstorageenforce", "").lower().split(",")):
            return RunningJobLimits({}, {}, ())
        name = settings.get("clustername", "")
        rows, _ = parse_associations(self._answer(("sacctmgr", *_ASSOCIATIONS)), "sacctmgr show assoc", name)
        qos, _ = parse_qos(self._answer(("sacctmgr", *_QOS)), "sacctmgr show qos")
        running = self._answer(("squeue", *_RUNNING)).splitlines()
        return RunningJobLimits(
            {(row.account, row.user): row for row in rows},
            {quality.name: quality for quality in qos},
            tuple(RunningJob(*cells) for cells in (line.split("|") for line in running) if len(cells) == 3),
        )

    def _answer(self, argv: Sequence[str]) -> str:
        environment = self._commands.environment | SETTINGS
        answer = self._commands.run(argv, environment=environment)
        if answer.status:
            raise ClusterUnavailable(f"{argv[0]}: exit {answer.status}: {one_line(answer.said)}")
        return answer.out
