"""Accounts, users and limits as the kernel's tables: the association tree and the groups that carry limits."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mirage.simulator.cluster import Association, ClusterConfig, Qos, TresLimit
from mirage.simulator.kernel.layout import (
    ASSOCIATION,
    G_MAX_JOBS,
    G_SUBMIT,
    G_TRES,
    GROUPS_PER_JOB,
)

if TYPE_CHECKING:
    from collections.abc import Hashable

    from mirage.simulator.model import Resources

Int64 = NDArray[np.int64]
ROOT = 0
NO_TRES_LIMIT = TresLimit()


@dataclass(frozen=True, slots=True)
class Ceiling:
    """Limits of one group of jobs at a time; -1: no limit."""

    jobs: int = -1
    submit: int = -1
    tres: TresLimit = NO_TRES_LIMIT

    @property
    def bounds(self) -> bool:
        """Whether any of the limits is set."""
        return self.jobs >= 0 or self.submit >= 0 or bool(self.tres.limits)


@dataclass(slots=True)
class Accounts:
    """Rows of the association tree (parents before children) and of the limit groups, by name.

    Grows when a user without a row appears.
    """

    cluster: ClusterConfig
    resources: Resources
    rows: list[Association] = field(default_factory=lambda: [Association(account="root")])
    parents: list[int] = field(default_factory=lambda: [-1])
    by_name: dict[tuple[str, str], int] = field(default_factory=lambda: {("root", ""): ROOT})
    groups: list[Ceiling] = field(default_factory=list)
    group_words: list[tuple[str, str]] = field(default_factory=list)
    """By group, Slurm's reason before and after the limited thing: ``("QOSMax", "PerUserLimit")``."""
    group_keys: dict[Hashable, int] = field(default_factory=dict)

    @classmethod
    def of(cls, cluster: ClusterConfig, resources: Resources) -> Accounts:
        """The accounts that the cluster file lists; of a user's the first is the default one."""
        accounts = cls(cluster, resources)
        accounts._add_all(list(cluster.associations))
        for association in cluster.associations:
            if association.user:
                own = accounts.by_name[association.account, association.user]
                accounts.by_name.setdefault(("", association.user), own)
        return accounts

    def _add_all(self, waiting: list[Association]) -> None:
        """Add associations, parents first; what hangs in a cycle goes under the root."""
        while waiting:
            ready = [a for a in waiting if self._parent(a) >= 0]
            for association in ready:
                self._add(association)
            waiting = [a for a in waiting if a not in ready]
            if not ready:
                for association in waiting:
                    self._add(replace(association, parent="root"))
                break

    def _parent(self, association: Association) -> int:
        if association.user:
            return self.by_name.get((association.account, ""), -1)
        return self.by_name.get((association.parent or "root", ""), -1)

    def _add(self, association: Association) -> int:
        key = (association.account, association.user)
        if key in self.by_name:
            return self.by_name[key]
        self.parents.append(max(self._parent(association), ROOT))
        self.rows.append(association)
        self.by_name[key] = len(self.rows) - 1
        return self.by_name[key]

    def association(self, user: str, account: str) -> int:
        """The row of a user in an account, made from the cluster's template if missing.

        Returns -1 where the cluster enforces associations and has none for them.
        """
        if (account, user) in self.by_name:
            return self.by_name[account, user]
        if not account:
            own = [row for (a, u), row in self.by_name.items() if u == user]
            if own:
                self.by_name["", user] = own[0]
                return own[0]
        if self.cluster.enforce_associations:
            return -1
        template = self.cluster.default_association
        if account and (account, "") not in self.by_name:
            self._add(Association(account=account, parent="root"))
        row = self._add(replace(template, account=account or "root", user=user, parent=""))
        self.by_name[account, user] = row
        return row

    def inherited(self, row: int, name: str) -> int:
        """A limit of the row or, where it has none, of the nearest account above that has one."""
        while row >= 0:
            value = int(getattr(self.rows[row], name))
            if value >= 0:
                return value
            row = self.parents[row]
        return -1

    def groups_of(self, row: int, user: str, account: str, qos: tuple[Qos, ...]) -> list[int]:
        """The limit groups of a job: its association, the accounts above, and the QOS of job and partition."""
        if not self.cluster.enforce_limits:
            return []
        found = [self._association_group(row)]
        above = row
        while above >= 0:
            found.append(self._account_group(above))
            above = self.parents[above]
        for quality in qos:
            found += self._qos_groups(quality, user, account)
        kept = [g for g in found if g >= 0]
        if len(kept) > GROUPS_PER_JOB:
            raise ValueError(
                f"user {user}: {len(kept)} limits hold for one job; at most {GROUPS_PER_JOB} are supported"
            )
        return kept

    def _association_group(self, row: int) -> int:
        if row < 0:
            return -1
        ceiling = Ceiling(self.inherited(row, "max_jobs"), self.inherited(row, "max_submit"))
        return self.group(("association", row), ceiling, ("AssocMax", "Limit"))

    def _account_group(self, row: int) -> int:
        held = self.rows[row]
        ceiling = Ceiling(held.grp_jobs, held.grp_submit, held.grp_tres)
        return self.group(("group", row), ceiling, ("AssocGrp", "Limit"))

    def _qos_groups(self, quality: Qos, user: str, account: str) -> list[int]:
        per_user = Ceiling(quality.max_jobs_per_user, quality.max_submit_per_user, quality.max_tres_per_user)
        per_account = Ceiling(quality.max_jobs_per_account, -1, quality.max_tres_per_account)
        whole = Ceiling(quality.grp_jobs, quality.grp_submit, quality.grp_tres)
        return [
            self.group(("qos", quality.name), whole, ("QOSGrp", "Limit")),
            self.group(("qos user", quality.name, user), per_user, ("QOSMax", "PerUserLimit")),
            self.group(("qos account", quality.name, account), per_account, ("QOSMax", "PerAccountLimit")),
        ]

    def group(self, key: Hashable, ceiling: Ceiling, words: tuple[str, str]) -> int:
        """The group known by ``key``, made on first use; -1 for a ceiling without limits."""
        if not ceiling.bounds:
            return -1
        if key not in self.group_keys:
            self.group_keys[key] = len(self.groups)
            self.groups.append(ceiling)
            self.group_words.append(words)
        return self.group_keys[key]

    def throttle(self, array: int, most: int) -> int:
        """The group of one array job's tasks, of which ``most`` may run at the same time."""
        return self.group(("array", array), Ceiling(jobs=most), ("", "JobArrayTaskLimit"))

    def limit_reason(self, group: int, resource: int) -> str:
        """Slurm's pending reason for a limit on ``resource`` (-1: on jobs); squeue(1), JOB REASON CODES."""
        before, after = self.group_words[group]
        if not before:
            return after
        return f"{before}{self._limited(resource)}{after}"

    def _limited(self, resource: int) -> str:
        if resource < 0:
            return "Jobs"
        names = {"cpu": "Cpu", "mem": "Mem"}
        return names.get(self.resources.names[resource], "GRES") if resource < len(self.resources) else "Node"

    def copy(self) -> Accounts:
        """Return a copy that shares no rows, groups or names with this one."""
        twin = replace(self)
        twin.rows, twin.parents, twin.by_name = list(self.rows), list(self.parents), dict(self.by_name)
        twin.groups, twin.group_words = list(self.groups), list(self.group_words)
        twin.group_keys = dict(self.group_keys)
        return twin

    def group_rows(self, first: int = 0) -> Int64:
        """The kernel's rows of the groups from ``first`` on, nothing in use."""
        width = len(self.resources) + 1
        rows = np.full((len(self.groups) - first, G_TRES + 2 * width), -1, dtype=np.int64)
        rows[:, 1] = rows[:, 3] = 0
        rows[:, G_TRES + width :] = 0
        for row, ceiling in zip(rows, self.groups[first:], strict=True):
            row[G_MAX_JOBS], row[G_SUBMIT] = ceiling.jobs, ceiling.submit
            for name, most in ceiling.tres.limits:
                column = self.resources.index(name)
                if column >= 0:
                    row[G_TRES + column] = most
        return rows

    def tree_rows(self, start: int) -> NDArray[np.void]:
        """The kernel's association table as of ``start``, with the usage that the cluster file gives."""
        table = np.zeros(len(self.rows), dtype=ASSOCIATION)
        table["parent"] = self.parents
        table["user"] = [1 if row.user else 0 for row in self.rows]
        table["at"], table["first_child"], table["next_sibling"], table["factor"] = start, -1, -1, 1.0
        for i, row in enumerate(self.rows):
            above = i
            while above >= 0:
                table["usage"][above] += row.usage
                above = self.parents[above]
        self._link(table)
        return table

    def _link(self, table: NDArray[np.void]) -> None:
        """Fill shares and the child lists."""
        shares = np.array([max(row.shares, 0) for row in self.rows], dtype=float)
        siblings = np.zeros(len(self.rows))
        for i, parent in enumerate(self.parents):
            if parent >= 0:
                siblings[parent] += shares[i]
        table["normal"][ROOT] = table["shares"][ROOT] = 1.0
        for i, parent in enumerate(self.parents):
            if parent < 0:
                continue
            table["shares"][i] = shares[i] / siblings[parent] if siblings[parent] else 0.0
            table["normal"][i] = table["shares"][i] * table["normal"][parent]
            table["next_sibling"][i] = table["first_child"][parent]
            table["first_child"][parent] = i
