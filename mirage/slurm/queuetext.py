"""The queue as ``squeue`` prints it in the format of ``queue_settings``, straight into columns.

A pending array is one record to Slurm, printed once (``123_[5-9%2]``). Here it is one row for each task that still
waits. All have the array's job id, because the tasks have no ids yet: pending tasks are counted as Slurm counts
them against MaxJobCount. Tasks held by the array's ``%`` throttle are among them. Tasks that have started are rows
with ids of their own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mirage.domain.errors import BadSpelling
from mirage.domain.job import ABSENT, HIGHEST_JOB_ID, NEVER, Job, JobId, JobState, job_id_of
from mirage.domain.jobtable import JobLabels, gres_columns, hashed_names, hashed_users, series_of
from mirage.domain.snapshot import JobColumns
from mirage.slurm import rows
from mirage.slurm.duration import parse_limit
from mirage.slurm.job_state import MAX_ARRAY_TASKS, NODES_BOOT, exit_code_of_status, parse_exit_code, parse_state
from mirage.slurm.queuelabels import QueueLabels, waits_its_turn
from mirage.slurm.rows import CELL, UNREADABLE, Int64
from mirage.slurm.tres import gres_class_of, sizes_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from mirage.domain.jobtable import GresColumns, SizeColumns

Mask = NDArray[np.bool_]

FIELDS = (
    "JobID",
    "JobArrayID",
    "State",
    "UserName",
    "Account",
    "SubmitTime",
    "EligibleTime",
    "StartTime",
    "EndTime",
    "TimeLimit",
    "NumNodes",
    "Partition",
    "QOS",
    "PriorityLong",
    "Nice",
    "exit_code",
    "ReqNodes",
    "NodeList",
    "tres-alloc",
    "Reason",
    "Name",
    "Comment",
)
ARGUMENTS = ("--all", "--states=all", "--noconvert")
"""Of ``squeue``: every job that the controller remembers, hidden partitions too."""

_PLACE = {name: k for k, name in enumerate(FIELDS)}
_TAG = re.compile(r"mirage:[A-Za-z0-9._-]+:[0-9]+")
_NO_TIME = ("N/A", "NONE", "Unknown", "0", "")
_NODES = re.compile(r"([0-9]+)([KMG]?)(?:-[0-9]+[KMG]?)?")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_TASKS = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([0-9]{1,9}))?)?")
# squeue shows flags in place of the state that stands behind them.
_COMPLETING = 100
_IN_QUEUE = {
    "COMPLETING": _COMPLETING,
    "STAGE_OUT": _COMPLETING,
    "REQUEUED": int(JobState.PENDING),
    "REQUEUE_FED": int(JobState.PENDING),
}
_HOLDS_NODES = (JobState.RUNNING, JobState.SUSPENDED, _COMPLETING)
_HELD = ("JobHeldUser", "JobHeldAdmin")
_NOT_ELIGIBLE = (*_HELD, "Dependency", "DependencyNeverSatisfied")


@dataclass(frozen=True, slots=True)
class QueueRow:
    """One job of ours as the queue shows it."""

    job: Job
    """Completing jobs still hold their nodes: they are RUNNING, with their true end."""
    completing: bool
    exit_code: int = ABSENT
    """Of a completing job, which has it already; ``ABSENT`` where Slurm does not show it."""


@dataclass(frozen=True, slots=True)
class Queue:
    """The content of one answer of ``squeue``."""

    pending: JobColumns
    running: JobColumns
    """Every job that holds nodes, completing ones too, in the order in which their limits end."""
    users: tuple[str, ...]
    partitions: tuple[str, ...]
    qos: tuple[str, ...]
    ours: tuple[QueueRow, ...]
    """Jobs with a tag as comment, and those asked for by id; ended ones too."""
    unreadable: tuple[str, ...]
    """Text of the rows that are not what Slurm writes; nothing else is known of those jobs."""
    labels: JobLabels = field(default_factory=JobLabels.none)
    owners: frozenset[str] = frozenset()
    """Users of all jobs that the answer shows."""


def queue_settings(mark: str) -> dict[str, str]:
    """Return what ``squeue`` must find in its environment: the format, epoch seconds, whole lists of tasks."""
    columns = [f"{field}:{CELL}" for field in FIELDS[:-1]] + [f"{FIELDS[-1]}:{mark}"]
    times = {"SLURM_TIME_FORMAT": "%s", "TZ": "UTC"}
    return {**times, "SLURM_BITSTR_LEN": "0", "SQUEUE_FORMAT2": ",".join(columns)}


class KnownRows:
    """Our jobs by their rows in the answer before: rows that stay the same are read once."""

    def __init__(self) -> None:
        self._jobs: dict[tuple[str, ...], QueueRow] = {}

    def read(self, rows: Mapping[tuple[str, ...], int], job_of: Callable[[int], QueueRow]) -> list[QueueRow]:
        """The jobs of these rows; ``job_of`` reads one by its number in the answer."""
        self._jobs = {row: self._jobs.get(row) or job_of(number) for row, number in rows.items()}
        return list(self._jobs.values())


def read_queue(
    text: str, mark: str, wanted: Collection[JobId] = (), *, columns: bool = True, known: KnownRows | None = None
) -> Queue:
    """Read an answer; ``wanted``: ids of our jobs, whatever their comment. Without ``columns`` only ours.

    Raises ``BadSpelling`` when the answer is not whole. Rows that are not understood are left out and reported.
    """
    table = rows.split_rows(text, FIELDS, mark, free=2)
    unreadable = list(table.broken)
    owners = frozenset(table.columns[_PLACE["UserName"]])
    if not columns:
        table = rows.Rows(_our_rows(table, wanted), ())
    if not len(table):
        return _only((), unreadable, owners)
    cells = {name: table.columns[place] for name, place in _PLACE.items()}
    read = _numbers(cells)
    good = np.all([column != UNREADABLE for column in read.values()], axis=0)
    unreadable += [CELL.join(column[k] for column in table.columns) for k in np.flatnonzero(~good)]
    rows_of_ours = {tuple(column[k] for column in table.columns): k for k in _ours(cells, wanted) if good[k]}
    found = (known or KnownRows()).read(rows_of_ours, lambda k: _queued_job(cells, read, k))
    ours = tuple(queued for queued in found if not _refused_at_once(queued.job))
    if not columns:
        return _only(ours, unreadable, owners)
    user, users = rows.codes(cells["UserName"])
    partition, partitions = rows.codes([text.partition(",")[0] for text in cells["Partition"]])
    qos, qualities = rows.codes(cells["QOS"])
    table_of = JobColumns(
        read["JobID"],
        user,
        partition,
        qos,
        read["NumNodes"],
        read["TimeLimit"],
        read["SubmitTime"],
        read["EligibleTime"],
        read["StartTime"],
        read["PriorityLong"],
        _series(cells, user, users),
    )
    return Queue(
        _pending(table_of, read, good),
        _running(table_of, read, good),
        users,
        partitions,
        qualities,
        ours,
        tuple(unreadable),
        _labels(cells, read),
        owners,
    )


def _only(ours: tuple[QueueRow, ...], unreadable: Sequence[str], owners: frozenset[str]) -> Queue:
    """Without the columns of other jobs."""
    return Queue(JobColumns.none(), JobColumns.none(), (), (), (), ours, tuple(unreadable), owners=owners)


def _labels(cells: dict[str, tuple[str, ...]], read: dict[str, Int64]) -> QueueLabels:
    state = read["State"]
    in_turn = rows.numbers(cells["Reason"], lambda text: int(waits_its_turn(text))) == 1
    anywhere = rows.numbers(cells["ReqNodes"], lambda text: int(not _text(text))) == 1
    labels = JobLabels.of_texts(
        read["JobID"],
        map(_text, cells["Name"]),
        map(_text, cells["Account"]),
        _gres(cells, read["NumNodes"]),
        _sizes(cells["tres-alloc"]),
    )
    return QueueLabels.extending(
        labels,
        kept_pending=(state == JobState.PENDING) & ~(in_turn & anywhere),
        suspended=state == JobState.SUSPENDED,
        end=np.where(state == JobState.RUNNING, read["EndTime"], ABSENT),
    )


def _gres(cells: dict[str, tuple[str, ...]], nodes: Int64) -> GresColumns:
    """Equal texts are read once; what comes before the first generic resource differs from job to job."""
    texts = [text[max(text.find("gres/"), 0) :] if "gres/" in text else text[:4] for text in cells["tres-alloc"]]
    jobs = list(zip(texts, nodes.tolist(), strict=True))
    meaning = {job: gres_class_of(*job) for job in set(jobs)}
    return gres_columns([meaning[job] for job in jobs])


def _sizes(cells: Sequence[str]) -> SizeColumns:
    """CPUs and megabytes of each cell; equal texts are parsed once."""
    meaning = {text: sizes_of(text) for text in set(cells)}
    cpus, memory_mb = np.array([meaning[text] for text in cells], dtype=np.int64).reshape(-1, 2).T
    return cpus, memory_mb


def _series(cells: dict[str, tuple[str, ...]], user: Int64, users: tuple[str, ...]) -> Int64:
    return series_of(hashed_users(users)[user], hashed_names(cells["Name"]))


def _our_rows(table: rows.Rows, wanted: Collection[JobId]) -> tuple[tuple[str, ...], ...]:
    cells = {name: table.columns[place] for name, place in _PLACE.items()}
    chosen = _ours(cells, wanted)
    return tuple(tuple(column[k] for k in chosen) for column in table.columns)


def _ours(cells: dict[str, tuple[str, ...]], wanted: Collection[JobId]) -> list[int]:
    ids = {str(job_id) for job_id in wanted}
    pairs = zip(cells["Comment"], cells["JobID"], strict=True)
    return [
        k
        for k, (comment, job_id) in enumerate(pairs)
        if job_id in ids or (comment.startswith("mirage:") and _TAG.fullmatch(comment))
    ]


def _numbers(cells: dict[str, tuple[str, ...]]) -> dict[str, Int64]:
    state = rows.numbers(cells["State"], _read_state)
    waits = state == JobState.PENDING
    priority = rows.whole_numbers(cells["PriorityLong"])
    barred = rows.numbers(cells["Reason"], lambda text: int(text in _NOT_ELIGIBLE)) == 1
    put_off = rows.numbers(cells["Reason"], lambda text: int(text == "BeginTime")) == 1
    unplanned = barred | put_off | (priority == 0)  # what squeue gives as start is only the earliest begin
    start = _times(cells["StartTime"])
    eligible = _times(cells["EligibleTime"])
    return {
        "State": state,
        "JobID": _job_ids(cells["JobID"]),
        "Tasks": rows.numbers(cells["JobArrayID"], count_tasks),
        "SubmitTime": _times(cells["SubmitTime"]),
        "EligibleTime": np.where(
            waits & (eligible != UNREADABLE) & (barred | (eligible == ABSENT) | (priority == 0)), NEVER, eligible
        ),
        "StartTime": np.where(waits & unplanned & (start != UNREADABLE), ABSENT, start),
        "Begin": np.where(waits & put_off & (start != UNREADABLE), start, ABSENT),
        "EndTime": _times(cells["EndTime"]),
        "TimeLimit": rows.numbers(cells["TimeLimit"], parse_limit),
        "NumNodes": rows.numbers(cells["NumNodes"], _read_nodes),
        "PriorityLong": priority,
        "Nice": rows.whole_numbers(cells["Nice"]),
        "exit_code": rows.numbers(cells["exit_code"], _read_exit),
    }


def _pending(table: JobColumns, read: dict[str, Int64], good: Mask) -> JobColumns:
    """Pending jobs in order of priority, arrays once for each task."""
    chosen = np.flatnonzero(good & (read["State"] == JobState.PENDING))
    order = chosen[np.lexsort((table.job_id[chosen], -table.priority[chosen]))]
    return _taken(table, np.repeat(order, read["Tasks"][order]))


def _running(table: JobColumns, read: dict[str, Int64], good: Mask) -> JobColumns:
    chosen = np.flatnonzero(good & np.isin(read["State"], _HOLDS_NODES))
    return _taken(table, chosen[np.argsort(table.start[chosen] + table.limit[chosen], kind="stable")])


def _taken(table: JobColumns, order: NDArray[np.int64]) -> JobColumns:
    return JobColumns(*(getattr(table, name)[order] for name in JobColumns.__dataclass_fields__))


def _queued_job(cells: dict[str, tuple[str, ...]], read: dict[str, Int64], row: int) -> QueueRow:
    shown = {name: int(column[row]) for name, column in read.items()}
    texts = {name: column[row] for name, column in cells.items()}
    completing = shown["State"] == _COMPLETING
    state = JobState.RUNNING if completing else JobState(shown["State"])
    waits = state is JobState.PENDING
    reason = texts["Reason"]
    boots = texts["State"] in NODES_BOOT
    started = not (waits or boots) and shown["StartTime"] != ABSENT and not _never_ran(state, shown)
    job = Job(
        job_id=job_id_of(shown["JobID"]),
        name=_text(texts["Name"]),
        user=texts["UserName"],
        partition=texts["Partition"],
        nodes=shown["NumNodes"],
        limit=shown["TimeLimit"],
        state=state,
        submit=shown["SubmitTime"],
        start=shown["StartTime"] if started else ABSENT,
        end=ABSENT if waits else shown["EndTime"],
        exit_code=shown["exit_code"] if state.finished else 0,
        reason="" if reason == "None" else reason,
        tag=_text(texts["Comment"]),
        expected_start=shown["StartTime"] if waits else ABSENT,
        held=waits and (reason == "JobHeldUser" or (shown["PriorityLong"] == 0 and reason not in _HELD)),
        nice=shown["Nice"],
        node_list=_text(texts["ReqNodes" if waits else "NodeList"]),
        begin=shown["Begin"],
    )
    return QueueRow(_with_limit_end(job, completing), completing, shown["exit_code"] if completing else ABSENT)


def _never_ran(state: JobState, shown: dict[str, int]) -> bool:
    """A job cancelled while it waited is given its end as start."""
    return state is JobState.CANCELLED and shown["StartTime"] == shown["EndTime"]


def _with_limit_end(job: Job, completing: bool) -> Job:
    """A running job ends at its limit, also where ``squeue`` says nothing; later where it was suspended."""
    if job.state is JobState.RUNNING and not completing and ABSENT not in (job.start, job.limit):
        return replace(job, end=max(job.end, job.start + job.limit))
    return job


def _refused_at_once(job: Job) -> bool:
    """The rest of a rejected ``sbatch``: the controller keeps a record although no job was created."""
    no_time = job.start == job.end and job.end - job.submit <= 1
    return job.state is JobState.FAILED and job.reason == "BadConstraints" and no_time


def _read_state(text: str) -> int:
    return _IN_QUEUE[text] if text in _IN_QUEUE else int(parse_state(text))


def _read_exit(text: str) -> int:
    """``3:0`` as Slurm 24.11 and newer print it; ``768``, the same as a wait status, as older ones do."""
    return parse_exit_code(text) if ":" in text else exit_code_of_status(text)


def _times(cells: Sequence[str]) -> Int64:
    return rows.whole_numbers(cells, _NO_TIME, ABSENT)


def _job_ids(cells: Sequence[str]) -> Int64:
    ids = rows.whole_numbers(cells)
    return np.where((ids >= 1) & (ids <= HIGHEST_JOB_ID), ids, UNREADABLE)


def _read_nodes(text: str) -> int:
    """``12``; ``2-4`` is 2; ``2K`` is 2,048."""
    match = _NODES.fullmatch(text)
    if match is None:
        raise BadSpelling(text, "is not a number of nodes such as 12")
    return int(match[1]) * _UNITS[match[2]]


def count_tasks(text: str) -> int:
    """How many tasks wait in ``123_[5-9,12%2]``; 1 for every other job.

    A list that Slurm has cut short counts what can be read of it. Raises ``BadSpelling``.
    """
    if "[" not in text:
        return 1
    inside = text[text.index("[") + 1 :].rstrip("]").partition("%")[0]
    parts = [part for part in inside.split(",") if part and not part.endswith("...")]
    return min(sum(_count(part, text) for part in parts), MAX_ARRAY_TASKS) or 1


def _count(part: str, text: str) -> int:
    match = _TASKS.fullmatch(part)
    if match is None:
        raise BadSpelling(text, f"[{part[:20]}] is not an array index or a range such as 5-9 or 0-20:4")
    low, high, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
    return max(0, (high - low) // max(step, 1) + 1)


def _text(cell: str) -> str:
    return "" if cell in ("(null)", "N/A") else cell
