"""Jobs and nodes of the controller, in the newest shape: queue columns, links, and nodes by partition."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from mirage.domain.errors import BadSpelling
from mirage.domain.job import ABSENT, NEVER, UNLIMITED, Job, JobId, JobState, is_failed_launch
from mirage.domain.jobtable import JobLabels, gres_columns, hashed_names, hashed_users, series_of
from mirage.domain.snapshot import JobColumns, PartitionState
from mirage.slurm import node_text
from mirage.slurm.job_state import NODES_BOOT, expand_job_ids
from mirage.slurm.queuelabels import QueueLabels, waits_its_turn
from mirage.slurm.queuetext import Queue, QueueRow
from mirage.slurm.rest.answers import Record, instant, job_id, number, part, text, texts, whole, wrong
from mirage.slurm.rows import CELL
from mirage.slurm.tres import gres_class_of, sizes_of

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

T = TypeVar("T")

_OCCUPIED = {"ALLOCATED", "MIXED", "COMPLETING"}
_UNUSABLE = {
    "DOWN",
    "ERROR",
    "UNKNOWN",
    "DRAIN",
    "FAIL",
    "NOT_RESPONDING",
    "INVALID_REG",
    "INVALID",
    "MAINTENANCE",
}
_ABSENT = {"FUTURE", "DYNAMIC_FUTURE"}


def read_partitions(
    sources: Sequence[T], shape: Callable[[T], Record]
) -> tuple[tuple[PartitionState, ...], list[str]]:
    """Each partition's nodes by state, in order of appearance; a node counts in each of its partitions.

    A node that only stands in the configuration (FUTURE) does not count; one that is powered down does, as idle.
    ``shape`` as in ``read_queue``. Nodes that cannot be read are left out and reported; raises ``BadSpelling``
    where none can.
    """
    counts: dict[str, Counter[str]] = {}
    unreadable: list[str] = []
    for source in sources:
        try:
            record = shape(source)
            use, names = _use(set(texts(record, "state"))), _partitions(record)
        except BadSpelling as fault:
            unreadable.append(str(fault))
            if len(unreadable) == len(sources):
                raise
            continue
        for name in names:
            counts.setdefault(name, Counter())[use] += 1
    found = tuple(
        PartitionState(name, of["idle"] + of["allocated"] + of["down"], of["idle"], of["allocated"], of["down"])
        for name, of in counts.items()
        if of.keys() != {"absent"}
    )
    return found, unreadable


def _use(state: set[str]) -> str:
    if state & _ABSENT:
        return "absent"
    if "DOWN" in state:
        return "down"
    if state & _OCCUPIED:
        return "allocated"
    return "down" if state & _UNUSABLE else "idle"


def _partitions(record: Record) -> list[str]:
    value = record.get("partitions")
    if type(value) is not list or not all(type(item) is str for item in value):
        raise wrong(record, "partitions", "a list of texts")
    return value


def why_shared(record: Record) -> str:
    """Why it may; empty: Slurm gives its nodes to no other job, and it stays on them until it is over.

    For whole nodes ``shared`` is ``"none"`` up to v0.0.38 and ``["none"]`` up to v0.0.44; v0.0.45 lacks it.
    """
    if record.get("requeue") is not False:
        return node_text.MAY_BE_REQUEUED
    if record.get("shared") in ("none", ["none"]):
        return ""
    return "slurmrestd does not say that its links have whole nodes (--exclusive)"


_TAG = re.compile(r"mirage:[A-Za-z0-9._-]+:[0-9]+")


UserName = Callable[[int], str]
"""The name of a user id, for versions that leave the name empty."""

_HELD = ("JobHeldUser", "JobHeldAdmin")
_NOT_ELIGIBLE = (*_HELD, "Dependency", "DependencyNeverSatisfied")
_HOLDS_NODES = (JobState.RUNNING, JobState.SUSPENDED)
_STATES = {state.name: state for state in JobState}


class Vocabulary:
    """Texts as codes in order of appearance; -1 for the empty one."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {"": -1}

    def code(self, word: str) -> int:
        """The code of ``word``, a new one where it is new."""
        return self._codes.setdefault(word, len(self._codes) - 1)

    @property
    def words(self) -> tuple[str, ...]:
        """The texts of codes 0, 1 and so on, in this order."""
        return tuple(self._codes)[1:]


@dataclass(slots=True)
class _Rows:
    """Columns of a queue under construction."""

    users: Vocabulary = field(default_factory=Vocabulary)
    partitions: Vocabulary = field(default_factory=Vocabulary)
    qos: Vocabulary = field(default_factory=Vocabulary)
    pending: list[tuple[int, ...]] = field(default_factory=list)
    running: list[tuple[int, ...]] = field(default_factory=list)
    labels: list[tuple[int, str, str]] = field(default_factory=list)
    gres: list[tuple[str, int]] = field(default_factory=list)
    sizes: list[tuple[int, int]] = field(default_factory=list)
    marks: list[tuple[bool, bool, int]] = field(default_factory=list)

    def add(self, record: Record, user_name: UserName) -> None:
        """One more job, where it pends or runs."""
        state = job_state(record)
        pending = state is JobState.PENDING
        if not (pending or state in _HOLDS_NODES or "COMPLETING" in texts(record, "job_state")):
            return
        # All of it is read before any is added: a record that cannot be read leaves nothing behind.
        row = _row(self, record, user_name, pending=pending)
        count = tasks(record) if pending else 1
        label = (job_id(record), text(record, "name"), text(record, "account"))
        runs = state is JobState.RUNNING and "COMPLETING" not in texts(record, "job_state")
        kept = pending and not (waits_its_turn(_reason(record)) and not text(record, "required_nodes"))
        mark = (kept, state is JobState.SUSPENDED, instant(record, "end_time") if runs else ABSENT)
        tres = text(record, "tres_alloc_str") or text(record, "tres_req_str")
        (self.pending if pending else self.running).extend([row] * count)
        self.labels.append(label)
        self.marks.append(mark)
        self.gres.append(gres_class_of(tres, number(record, "node_count")))
        self.sizes.append(sizes_of(tres))


def read_queue(
    sources: Sequence[T],
    shape: Callable[[T], Record],
    user_name: UserName,
    wanted: Collection[JobId] = (),
    *,
    columns: bool = True,
) -> Queue:
    """Pending jobs in order of priority, an array once for each task; running ones by the ends their limits set.

    ``shape`` gives each source the newest shape. Suspended and completing jobs are among the running ones; a job
    that asks for several partitions counts for the first. Ours are those with a tag as comment, and the
    ``wanted`` ones; without ``columns`` only they are read. Sources that cannot be read are left out and reported;
    raises ``BadSpelling`` where none can.
    """
    rows = _Rows()
    ours: list[QueueRow] = []
    unreadable: list[str] = []
    owners: set[str] = set()
    for source in sources:
        try:
            record = shape(source)
            owners.add(owner(record, user_name))
            if columns:
                rows.add(record, user_name)
            if job_id(record) in wanted or _TAG.fullmatch(text(record, "comment")):
                ours.append(_queued_job(record, user_name))
        except BadSpelling as fault:
            unreadable.append(describe_unreadable(source, fault))
            if len(unreadable) == len(sources):
                raise
    return Queue(
        pending=_columns(rows.pending, key=lambda row: (-row[9], row[0])),
        running=_columns(rows.running, key=lambda row: row[8] + row[5]),
        users=rows.users.words,
        partitions=rows.partitions.words,
        qos=rows.qos.words,
        ours=tuple(job for job in ours if not _refused_at_once(job.job)),
        unreadable=tuple(unreadable),
        labels=_labels(rows),
        owners=frozenset(owners),
    )


def describe_unreadable(source: object, fault: BadSpelling) -> str:
    """A source that cannot be read, as ``Queue.unreadable`` has it: its id, its comment, and why."""
    shown = source if isinstance(source, dict) else {"job_id": getattr(source, "id", "")}
    return CELL.join((str(shown.get("job_id", "")), str(shown.get("comment", "")), str(fault)))


def _row(rows: _Rows, record: Record, user_name: UserName, *, pending: bool) -> tuple[int, ...]:
    user = owner(record, user_name)
    return (
        job_id(record),
        rows.users.code(user),
        rows.partitions.code(text(record, "partition").split(",")[0]),
        rows.qos.code(text(record, "qos")),
        number(record, "node_count"),
        limit(record),
        instant(record, "submit_time"),
        _eligible(record) if pending else instant(record, "eligible_time"),
        _planned_start(record) if pending else instant(record, "start_time"),
        max(0, number(record, "priority")),
        int(series_of(hashed_users([user]), hashed_names([text(record, "name")]))[0]),
    )


def _columns(rows: list[tuple[int, ...]], key: Callable[[tuple[int, ...]], object]) -> JobColumns:
    if not rows:
        return JobColumns.none()
    return JobColumns(*np.array(sorted(rows, key=key), dtype=np.int64).T.copy())  # type: ignore[arg-type]


def _labels(rows: _Rows) -> QueueLabels:
    ids = np.array([row[0] for row in rows.labels], dtype=np.int64)
    names, accounts = (name for _, name, _ in rows.labels), (account for _, _, account in rows.labels)
    cpus, memory_mb = np.array(rows.sizes, dtype=np.int64).reshape(-1, 2).T
    labels = JobLabels.of_texts(ids, names, accounts, gres_columns(rows.gres), (cpus, memory_mb))
    kept, suspended, end = np.array(rows.marks, dtype=np.int64).reshape(-1, 3).T
    return QueueLabels.extending(labels, kept == 1, suspended == 1, end)


def _queued_job(record: Record, user_name: UserName) -> QueueRow:
    state = job_state(record)
    pending = state is JobState.PENDING
    boots = not NODES_BOOT.isdisjoint(texts(record, "job_state"))
    # One that never ran has the time of its end as its start.
    ran = not (pending or boots) and bool(text(record, "nodes"))
    job = Job(
        job_id=job_id(record),
        name=text(record, "name"),
        user=owner(record, user_name),
        partition=text(record, "partition"),
        nodes=number(record, "node_count"),
        limit=limit(record),
        state=state,
        submit=instant(record, "submit_time"),
        start=instant(record, "start_time") if ran else ABSENT,
        end=ABSENT if pending else instant(record, "end_time"),
        exit_code=exit_code(record) if state.finished else 0,
        reason=_reason(record),
        tag=text(record, "comment"),
        expected_start=_planned_start(record) if pending else ABSENT,
        held=pending and _is_held_by_owner(record),
        nice=whole(record, "nice"),
        node_list=text(record, "required_nodes" if pending else "nodes"),
        begin=instant(record, "start_time") if pending and _put_off(record) else ABSENT,
    )
    completing = state is JobState.RUNNING and "COMPLETING" in texts(record, "job_state")
    return QueueRow(job, completing, exit_code(record) if completing else ABSENT)


def _refused_at_once(job: Job) -> bool:
    """The rest of a rejected submission: the controller keeps a record although no job was created."""
    no_time = job.start == ABSENT and job.end - job.submit <= 1
    return job.state is JobState.FAILED and job.reason == "BadConstraints" and no_time


def job_state(record: Record, name: str = "job_state") -> JobState:
    """The base state among a state's flags. Raises ``BadSpelling``."""
    for word in texts(record, name):
        if word in _STATES:
            return _STATES[word]
    raise wrong(record, name, "a job state among them")


def limit(record: Record, name: str = "time_limit") -> int:
    """A time limit, in minutes there, in seconds here; ``ABSENT``: the partition's."""
    minutes = number(record, name, infinite=UNLIMITED)
    return minutes if minutes in (ABSENT, UNLIMITED) else min(minutes * 60, UNLIMITED)


def exit_code(record: Record) -> int:
    """The code, or 128 + the signal that ended the job; ``ABSENT`` where it failed and Slurm does not say how."""
    told = part(record, "exit_code")
    signal = number(part(told, "signal"), "id")
    code = number(told, "return_code")
    return 128 + signal if signal > 0 else code


def owner(record: Record, user_name: UserName) -> str:
    """Name of the job's owner; from its UID where the record has no name."""
    return text(record, "user_name") or user_name(whole(record, "user_id"))


def tasks(record: Record) -> int:
    """How many jobs the record stands for: the tasks of a pending array, else one."""
    listed = text(record, "array_task_string")
    if not listed:
        return 1
    try:
        return max(1, len(expand_job_ids(f"0_[{listed}]")))
    except BadSpelling:
        raise wrong(record, "array_task_string", "task ids such as 3-5,9%2") from None


def _reason(record: Record) -> str:
    if is_failed_launch(description := text(record, "state_description")):
        return description
    reason = text(record, "state_reason")
    return "" if reason == "None" else reason


def _is_held_by_owner(record: Record) -> bool:
    """A job that ``scontrol requeuehold`` put back has another reason: priority 0 shows that it is held."""
    reason = _reason(record)
    return reason == "JobHeldUser" or (number(record, "priority") == 0 and reason not in _HELD)


def _is_barred(record: Record) -> bool:
    return _reason(record) in _NOT_ELIGIBLE or number(record, "priority") == 0


def _eligible(record: Record) -> int:
    known = instant(record, "eligible_time")
    return NEVER if known == ABSENT or _is_barred(record) else known


def _planned_start(record: Record) -> int:
    """Slurm's plan; what it gives for a job that waits for more than its turn is only the earliest begin."""
    return ABSENT if _put_off(record) or _is_barred(record) else instant(record, "start_time")


def _put_off(record: Record) -> bool:
    return _reason(record) == "BeginTime"
