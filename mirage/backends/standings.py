"""Fair shares, limits on running jobs and reservations of users, as far as Slurm reports them. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mirage.domain.decision import NO_LIMIT, Standing
from mirage.domain.job import ABSENT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mirage.domain.job import JobRequest, Seconds
    from mirage.simulator.cluster import Association, Qos
    from mirage.slurm.reservationtext import PartitionNodes, Reserved
    from mirage.slurm.sharetext import Owner

_USUAL_QOS = "normal"
"""Slurm's own default, for who asks for none."""


@dataclass(frozen=True, slots=True)
class RunningJob:
    """User, account and QOS against whose limits a job counts."""

    user: str
    account: str
    qos: str


@dataclass(frozen=True, slots=True)
class Limits:
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
    limits: Limits | None = None
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

    def _partition(self, request: JobRequest) -> PartitionNodes | None:
        if request.partition:
            return self.partitions.get(request.partition)
        return self.partitions.get(self.default_partition)

    @property
    def default_partition(self) -> str:
        """The partition of jobs that name none; empty: not known, or Slurm has no default."""
        return next((name for name, partition in self.partitions.items() if partition.default), "")
