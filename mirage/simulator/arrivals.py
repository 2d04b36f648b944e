"""A trace turned into the kernel's arrivals.

Jobs of a trace have few distinct shapes and owners; each is encoded once, then rows are gathered.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mirage.domain.errors import SubmissionRejected, TraceError
from mirage.domain.job import ABSENT, JobState
from mirage.simulator.encode import (
    Fit,
    JobCeiling,
    Shape,
    association_priority,
    blank_rows,
    fit,
    job_ceiling,
    known_qos,
    quality_priority,
)
from mirage.simulator.kernel.layout import GROUPS_PER_JOB, NEVER

if TYPE_CHECKING:
    from mirage.domain.jobtable import JobTable, Names
    from mirage.simulator.accounts import Accounts
    from mirage.simulator.model import ClusterTables

Int64 = NDArray[np.int64]
Table = NDArray[np.void]


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Arrivals of a trace: rows by submission, and the rejected ones."""

    jobs: Table
    needs: Int64
    rejected: dict[str, int]
    """Jobs that could never be submitted, by Slurm's reason."""
    notes: tuple[str, ...]


def no_arrivals(model: ClusterTables) -> Arrivals:
    """A cluster on which nothing arrives by itself."""
    width = 2 * len(model.resources) + 1 + GROUPS_PER_JOB
    return Arrivals(blank_rows(0), np.zeros((0, width), dtype=np.int64), {}, ())


def encode_trace(model: ClusterTables, accounts: Accounts, table: JobTable) -> Arrivals:
    """Encode every job of ``table`` that the cluster can run; the others are counted by Slurm's reason.

    Raises ``TraceError`` where the cluster can run none of them.
    """
    shape_keys, shape_of = _distinct(_shape_columns(model, table))
    owner_keys, owner_of = _distinct(_owner_columns(model, table))
    fits, reasons = _fit_all(model, table, shape_keys)
    owned, owner_reasons = _resolve_owners(model, accounts, table, owner_keys)
    refused = np.where(reasons[shape_of] != "", reasons[shape_of], owner_reasons[owner_of])
    refused = np.where((refused == "") & (table.submit == ABSENT), "NoSubmitTime", refused)
    refused = _refuse_by_ceiling(refused, fits, shape_of, owned, owner_of)
    kept = np.flatnonzero(refused == "")
    jobs = _fill_times(model, table, kept)
    needs = _gather(model, jobs, fits, owned, shape_of[kept], owner_of[kept])
    jobs["partition"] = shape_keys[shape_of[kept], 0]
    jobs["tier"] = np.array([p.priority_tier for p in model.cluster.partitions])[jobs["partition"]]
    jobs["nodes"] = shape_keys[shape_of[kept], 1]
    counted = Counter(str(r) for r in refused if r)
    if len(table) and not len(kept):
        raise TraceError(table.source, 0, "", _all_rejected(model, table, counted))
    return Arrivals(jobs, needs, dict(counted.most_common()), _notes(table))


def _all_rejected(model: ClusterTables, table: JobTable, counted: Counter[str]) -> str:
    """A simulation without any job would look like an idle cluster."""
    reasons = ", ".join(f"{reason} {count:,}" for reason, count in counted.most_common())
    text = f"cluster {model.cluster.name} rejects all {len(table):,} jobs ({reasons})"
    if counted.keys() <= {"PartitionInvalid"}:
        wanted = ", ".join(table.partition.vocabulary[:5])
        known = ", ".join(partition.name for partition in model.cluster.partitions[:5])
        return (
            f"{text}: the trace has partitions {wanted}, the cluster has {known}; rename them in the cluster file"
        )
    return f"{text}; choose a cluster file that fits the trace"


def _distinct(columns: list[Int64]) -> tuple[Int64, Int64]:
    """Distinct rows of the columns, and for each row which one it is."""
    stacked = np.column_stack(columns)
    order = np.lexsort(stacked.T)
    changed = np.ones(len(stacked), dtype=bool)
    changed[1:] = (stacked[order][1:] != stacked[order][:-1]).any(axis=1)
    inverse = np.empty(len(stacked), dtype=np.int64)
    inverse[order] = np.cumsum(changed) - 1
    return stacked[order][changed], inverse


def _translate(names: Names, index: dict[str, int], default: int) -> Int64:
    """Codes of a text column as cluster numbers: ``default`` where absent, -1 where unknown."""
    lookup = np.array([index.get(name, -1) for name in names.vocabulary] + [default], dtype=np.int64)
    return lookup[names.codes]


def nodes_of(model: ClusterTables, table: JobTable) -> Int64:
    """Nodes of each job; where the trace has only CPUs, so many as they need in its partition."""
    partition = _translate(table.partition, model.partition_index, model.default_partition)
    cpus_of_node = np.array([model.capacity[m, 0].max(initial=1) for m in model.members], dtype=np.int64)
    cpus = np.maximum(table.cpus.astype(np.int64), 1)
    return np.where(table.nodes > 0, table.nodes, -(-cpus // cpus_of_node[partition])).astype(np.int64)


def _shape_columns(model: ClusterTables, table: JobTable) -> list[Int64]:
    """partition, nodes, limit, CPUs per node, memory per node, constraint, GRES per node..."""
    partition = _translate(table.partition, model.partition_index, model.default_partition)
    cpus, nodes = np.maximum(table.cpus.astype(np.int64), 1), nodes_of(model, table)
    memory = np.maximum(table.memory_mb, 0)
    if "mem" not in model.resources.names:
        memory = np.zeros_like(memory)
    constraint = table.constraint.codes.astype(np.int64)
    columns: list[Int64] = [partition, nodes, table.limit, -(-cpus // nodes), -(-memory // nodes), constraint]
    return columns + [-(-table.gres[:, g].astype(np.int64) // nodes) for g in range(len(table.gres_names))]


def _fit_all(model: ClusterTables, table: JobTable, keys: Int64) -> tuple[list[Fit | None], NDArray[np.str_]]:
    """The fit of each distinct shape, or the reason why it has no fit."""
    fits: list[Fit | None] = []
    reasons = []
    for key in keys.tolist():
        try:
            fits.append(fit(model, _shape(model, table, key)))
            reasons.append("")
        except SubmissionRejected as refusal:
            fits.append(None)
            reasons.append(refusal.reason)
    return fits, np.array(reasons, dtype=np.str_)


def _shape(model: ClusterTables, table: JobTable, key: list[int]) -> Shape:
    partition, nodes, limit, cpus, memory, constraint, *gres = key
    if partition < 0:
        raise SubmissionRejected("PartitionInvalid", "the cluster file has no such partition")
    text = table.constraint.vocabulary[constraint] if constraint >= 0 else ""
    # A total per type includes the total of the name: the typed count alone says both.
    typed = {name.partition(":")[0] for name in table.gres_names if ":" in name}
    wanted = tuple(
        (name, count)
        for name, count in zip(table.gres_names, gres, strict=True)
        if count > 0 and not (name in typed and _typed_count(table, name, gres) >= count)
    )
    whole = model.cluster.partitions[partition].exclusive
    return Shape(
        partition,
        nodes,
        limit,
        1 if whole else cpus,
        0 if whole else memory,
        wanted,
        tuple(filter(None, text.split("&"))),
    )


def _typed_count(table: JobTable, name: str, gres: list[int]) -> int:
    return sum(n for g, n in zip(table.gres_names, gres, strict=True) if g.startswith(name + ":"))


def _owner_columns(model: ClusterTables, table: JobTable) -> list[Int64]:
    partition = _translate(table.partition, model.partition_index, model.default_partition)
    codes = (table.user.codes, table.account.codes, table.qos.codes)
    return [*(c.astype(np.int64) for c in codes), partition]


@dataclass(frozen=True, slots=True)
class _Owners:
    """By distinct owner: association, limit groups (padded with -1), weighted QOS and association factors."""

    association: Int64
    groups: Int64
    priority: NDArray[np.float64]
    ceilings: tuple[JobCeiling, ...]


def _refuse_by_ceiling(
    refused: NDArray[np.str_], fits: list[Fit | None], shape_of: Int64, owned: _Owners, owner_of: Int64
) -> NDArray[np.str_]:
    """Add the reasons of jobs that are over what their owner may ask for in one job."""
    bounded = [i for i, ceiling in enumerate(owned.ceilings) if ceiling != JobCeiling()]
    reasons = refused.tolist()
    for job in np.flatnonzero((refused == "") & np.isin(owner_of, bounded)).tolist():
        found = fits[shape_of[job]]
        if found is not None:
            reasons[job] = owned.ceilings[owner_of[job]].refusal(found.limit, found.total)
    return np.array(reasons, dtype=np.str_)


def _resolve_owners(
    model: ClusterTables, accounts: Accounts, table: JobTable, keys: Int64
) -> tuple[_Owners, NDArray[np.str_]]:
    associations = np.full(len(keys), -1, dtype=np.int64)
    groups = np.full((len(keys), GROUPS_PER_JOB), -1, dtype=np.int64)
    priorities, reasons, ceilings = np.zeros(len(keys)), [""] * len(keys), [JobCeiling()] * len(keys)
    for i, (user, account, qos, partition) in enumerate(keys.tolist()):
        names = (_name(table.user, user), _name(table.account, account), _name(table.qos, qos))
        row = accounts.association(names[0], names[1])
        if row < 0 or not known_qos(model, names[2]):
            reasons[i] = "InvalidAccount" if row < 0 else "InvalidQOS"
            continue
        qualities = (names[2], model.cluster.partitions[partition].qos)
        ceilings[i] = job_ceiling(model, accounts, row, qualities)
        found = accounts.groups_of(
            row, names[0], names[1], tuple(model.qos[q] for q in qualities if q in model.qos)
        )
        associations[i], groups[i, : len(found)] = row, found
        priorities[i] = quality_priority(model, names[2]) + association_priority(model, accounts, row)
    return _Owners(associations, groups, priorities, tuple(ceilings)), np.array(reasons, dtype=np.str_)


def _name(names: Names, code: int) -> str:
    return names.vocabulary[code] if code >= 0 else ""


def _fill_times(model: ClusterTables, table: JobTable, kept: Int64) -> Table:
    """Rows with ids, owners and times; job ids are trace rows from 1."""
    jobs, t = blank_rows(len(kept)), table.take(kept)
    jobs["row"], jobs["id"] = kept, kept + 1
    jobs["user"] = np.maximum(t.user.codes, 0)
    jobs["name"], jobs["submit"] = t.name.codes, t.submit
    jobs["begin"] = np.where(t.eligible > t.submit, t.eligible, 0)
    finished, started = t.end != ABSENT, t.start != ABSENT
    timed_out = t.state == JobState.TIMEOUT
    jobs["runtime"] = np.where(started & finished & ~timed_out, np.maximum(t.runtime, 0), NEVER)
    jobs["cancel_at"] = np.where(~started & finished, t.end, NEVER)
    ended = np.isin(t.state, [s.value for s in JobState if s.finished]) & ~timed_out
    jobs["outcome"] = np.where(ended & started, t.state, int(JobState.COMPLETED))
    jobs["exit_code"] = t.exit_code
    return jobs


def _gather(
    model: ClusterTables, jobs: Table, fits: list[Fit | None], owned: _Owners, shape_of: Int64, owner_of: Int64
) -> Int64:
    """Fill what shapes and owners decide; returns the needs rows."""
    width = 2 * len(model.resources) + 1
    by_shape = np.zeros((len(fits), width + 3), dtype=np.int64)
    static, billing = np.zeros(len(fits)), np.zeros(len(fits))
    for i, found in enumerate(fits):
        if found is not None:
            by_shape[i, :width] = np.concatenate([found.per_node, found.total])
            by_shape[i, width:] = (found.limit, int(found.exclusive), found.features)
            static[i], billing[i] = found.static_priority, found.billing
    jobs["limit"], jobs["exclusive"] = by_shape[shape_of, width], by_shape[shape_of, width + 1]
    jobs["features"] = by_shape[shape_of, width + 2].view(np.uint64)
    jobs["static"], jobs["billing"] = static[shape_of] + owned.priority[owner_of], billing[shape_of]
    jobs["association"] = owned.association[owner_of]
    return np.concatenate([by_shape[shape_of, :width], owned.groups[owner_of]], axis=1)


def _notes(table: JobTable) -> tuple[str, ...]:
    notes = list(table.notes)
    missing = int((table.limit == ABSENT).sum())
    if missing:
        notes.append(f"{missing} jobs without a time limit take their partition's default")
    running = int(((table.start != ABSENT) & (table.end == ABSENT)).sum())
    if running:
        notes.append(f"{running} jobs without an end run to their limit")
    return tuple(notes)
