"""Jobs as ``sacct`` prints them in our formats: links with their end, and all jobs of a time span."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mirage.domain.errors import BadSpelling
from mirage.domain.job import ABSENT, Job, JobId, JobState, job_id_of
from mirage.domain.jobtable import Names, job_table
from mirage.domain.tags import PastLinks
from mirage.slurm import rows
from mirage.slurm.duration import parse_limit
from mirage.slurm.job_state import (
    canceller_of,
    failed_launch,
    names_no_user,
    parse_end,
    parse_exit_code,
    parse_state,
)
from mirage.slurm.rows import UNREADABLE
from mirage.slurm.tres import gres_of, parse_tres

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from mirage.domain.jobtable import JobTable
    from mirage.slurm.rows import Int64
    from mirage.slurm.tres import Amounts

_FREE_FATE = ("JobName", "Comment")
"""Users' own text."""
_FATE = (
    *("JobIDRaw", "User", "Partition", "NNodes", "TimelimitRaw", "State", "Start", "End", "ExitCode", "NodeList"),
    *(*_FREE_FATE, "Submit"),
)
_TIMES = ("Submit", "Eligible", "Start", "End")
_TIME_WIDTH = 40
"""Slurm 22.05 prints a time that is longer than its column as ``#``."""
_EVER = "90days"
AT_ANY_TIME = (f"--starttime=now-{_EVER}", f"--endtime=now+{_EVER}")
"""Arguments of ``sacct`` for jobs whose times are not known."""
"""Maximum age of a submission of ours, and maximum difference of Slurm's clock from ours."""
CANCELLED_BY_UNKNOWN = "cancelled by an unknown user"
"""Reason of such a run, which the cluster has lost, or which was cancelled before slurmctld was started again."""
NOT_LAUNCHED = "its node could not start it"
NO_NODES = ("None assigned", "")
"""A job that never ran has its end, or the time of its rejection, as start."""
NO_TIME = ("Unknown", "None", "N/A", "")


def settings(mark: str) -> dict[str, str]:
    """Return what ``sacct`` must find in its environment: each time as epoch seconds and ``mark``."""
    return {"SLURM_TIME_FORMAT": f"%s{mark}", "TZ": "UTC"}


def fate_arguments(ids: Collection[JobId]) -> list[str]:
    """Arguments of ``sacct`` for these jobs, one row each: the last run of the last job with the number."""
    return [
        *plain(_FATE),
        f"--jobs={','.join(str(job_id) for job_id in sorted(ids))}",
        *AT_ANY_TIME,
    ]


def run_arguments(ids: Collection[JobId]) -> list[str]:
    """The same with a row for every run of each job, and for every job that has had the number."""
    return [*fate_arguments(ids), "--duplicates"]


def recent_arguments(days: int) -> list[str]:
    """Arguments of ``sacct`` for all jobs in the queue at any time in the last ``days``."""
    return [*plain(_FATE), "--allusers", f"--starttime=now-{days}days", f"--endtime=now+{_EVER}"]


def past_link_arguments(start: int, end: int) -> list[str]:
    """Arguments of ``sacct`` for all jobs in the queue between two times (epoch seconds), each run of them.

    Without ``--duplicates`` a job would hide an earlier one of the same ID.
    """
    window = [f"--starttime=uts{start}", f"--endtime=uts{end}"]
    return [*plain(_FATE), "--allusers", "--duplicates", *window]


def plain(fields: tuple[str, ...]) -> list[str]:
    """Arguments for these fields, one row a job, for ``cut_parsable``."""
    wide = [f"{field}%{_TIME_WIDTH}" if field in _TIMES else field for field in fields]
    return ["--allocations", "--parsable", "--noconvert", f"--delimiter={rows.CELL}", f"--format={','.join(wide)}"]


def read_runs(text: str, mark: str) -> tuple[list[Job], list[str]]:
    """The runs of an answer, their comments as tags; and the rows that are not understood.

    Raises ``BadSpelling`` when the answer is not whole.
    """
    table = rows.cut_parsable(text, _FATE, mark, len(_FREE_FATE))
    found: list[Job] = []
    unreadable = list(table.broken)
    for cells in zip(*table.columns, strict=True):
        if (job := _fate(dict(zip(_FATE, cells, strict=True)))) is None:
            unreadable.append(rows.CELL.join(cells))
        else:
            found.append(job)
    return found, unreadable


def read_past_links(text: str, mark: str, ids: Collection[JobId]) -> PastLinks:
    """The jobs of an answer that have a tag of Mirage or one of ``ids``.

    Raises ``BadSpelling`` when the answer is not whole.
    """
    runs, unreadable = read_runs(text, mark)
    return PastLinks.of(runs, unreadable, ids)


def _fate(cells: dict[str, str]) -> Job | None:
    try:
        code = parse_exit_code(cells["ExitCode"])
        state = parse_end(cells["State"], code)
        lost = names_no_user(cells["State"]) and not code
        start, end = _time(cells["Start"]), _time(cells["End"])
        ran = end - start if cells["NodeList"] not in NO_NODES and ABSENT not in (start, end) else ABSENT
        unlaunched = failed_launch(canceller_of(cells["State"]), cells["User"], ran)
        return Job(
            job_id=job_id_of(int(cells["JobIDRaw"])),
            name=cells["JobName"],
            user=cells["User"],
            partition=cells["Partition"],
            nodes=int(cells["NNodes"]),
            limit=raw_limit(cells["TimelimitRaw"]),
            state=JobState.BOOT_FAIL if unlaunched else state,
            submit=_time(cells["Submit"]),
            start=ABSENT if cells["NodeList"] in NO_NODES else start,
            end=end,
            exit_code=code,
            reason=CANCELLED_BY_UNKNOWN if lost else NOT_LAUNCHED if unlaunched else "",
            tag=cells["Comment"],
            node_list="" if cells["NodeList"] in NO_NODES else cells["NodeList"],
        )
    except (BadSpelling, ValueError):
        return None


def _time(text: str) -> int:
    return ABSENT if text in NO_TIME else int(text)


def raw_limit(text: str) -> int:
    """``TimelimitRaw``: minutes, or UNLIMITED and the like."""
    return int(text) * 60 if text.isdecimal() else parse_limit(text)


_TEXTS = {
    "user": "User",
    "account": "Account",
    "partition": "Partition",
    "qos": "QOS",
    "name": "JobName",
    "constraint": "Constraints",
}
_FREE = ("Constraints", "JobName")
"""Users' own text."""
HISTORY_FIELDS = (
    *("JobIDRaw", "Eligible", "Start", "End", "State", "TimelimitRaw", "NNodes", "AllocTRES", "ReqTRES"),
    *("NodeList", "User", "Account", "Partition", "QOS", *_FREE, "Submit"),
)
_FINISHED = [state.value for state in JobState if state.finished]
_RESOURCES = ("cpu", "mem")
_NONE_READ: Amounts = (("", UNREADABLE),)


def history_arguments(start: int, end: int) -> list[str]:
    """Arguments of ``sacct`` for the jobs in the queue between two times (epoch seconds), each run of them."""
    window = [f"--starttime=uts{start}", f"--endtime=uts{end}"]
    return [*plain(HISTORY_FIELDS), "--allusers", "--duplicates", *window]


def read_history(text: str, mark: str) -> tuple[JobTable, int]:
    """The jobs that run or have ended, in order of submission, and the number of rows that are not understood.

    A job that still pends is left out: an array's row then stands for any number of tasks. Resources are those
    allocated, else those asked for. Raises ``BadSpelling`` when the answer is not whole.
    """
    table = rows.cut_parsable(text, HISTORY_FIELDS, mark, len(_FREE))
    found, left_out = history_of(dict(zip(HISTORY_FIELDS, table.columns, strict=True)), "sacct")
    return found, left_out + len(table.broken)


def history_of(cells: Mapping[str, Sequence[str]], source: str) -> tuple[JobTable, int]:
    """As ``read_history``, of columns by their names that are written as ``sacct`` does."""
    count = len(cells["JobIDRaw"])
    read = _numbers(cells)
    tres = _tres(cells)
    cpus, memory = tres.pop("cpu"), tres.pop("mem")
    good = np.all([column != UNREADABLE for column in (*read.values(), cpus)], axis=0)
    never = np.array([nodes in NO_NODES for nodes in cells["NodeList"]], dtype=bool)
    read["start"] = np.where(never, ABSENT, read["start"])
    read["end"] = np.where(np.isin(read["state"], _FINISHED), read["end"], ABSENT)
    known = good & ((read["start"] != ABSENT) | (read["end"] != ABSENT))
    known &= (read["submit"] != ABSENT) & _in_order(read)
    found = job_table(
        count,
        job_id=np.array(cells["JobIDRaw"], dtype=np.str_),
        **{name: Names.encode(list(cells[field])) for name, field in _TEXTS.items()},
        **{name: read[name] for name in ("submit", "eligible", "start", "end", "limit")},
        state=read["state"].astype(np.int8),
        nodes=read["nodes"].astype(np.int32),
        cpus=cpus.astype(np.int32),
        memory_mb=memory,
        gres=np.array(list(tres.values()), dtype=np.int32).reshape(len(tres), count).T,
        gres_names=tuple(tres),
        source=source,
    )
    # The table's own order is that of submission.
    chosen = known[np.argsort(read["submit"], kind="stable")]
    return found.take(np.flatnonzero(chosen)), int((~good).sum())


def _in_order(read: dict[str, Int64]) -> Any:
    """A clock set back, or a record that slurmdbd fixed, gives ends before starts."""
    started = (read["start"] == ABSENT) | (read["start"] >= read["submit"])
    return started & ((read["end"] == ABSENT) | (read["end"] >= np.maximum(read["start"], read["submit"])))


def _numbers(cells: Mapping[str, Sequence[str]]) -> dict[str, Int64]:
    times = {name: cells[name.capitalize()] for name in ("submit", "eligible", "start", "end")}
    read = {name: rows.whole_numbers(column, NO_TIME, ABSENT) for name, column in times.items()}
    read["nodes"] = rows.whole_numbers(cells["NNodes"])
    read["limit"] = rows.numbers(cells["TimelimitRaw"], raw_limit)
    read["state"] = rows.numbers(cells["State"], parse_state)
    return read


def _tres(cells: Mapping[str, Sequence[str]]) -> dict[str, Int64]:
    """Columns ``cpu``, ``mem`` (MB) and one for each generic resource; ``cpu`` says what could not be read."""
    used = [got or asked for got, asked in zip(cells["AllocTRES"], cells["ReqTRES"], strict=True)]
    amounts = {text: _amounts(text) for text in set(used)}
    gres = sorted({name for pairs in amounts.values() for name, _ in gres_of(pairs)})
    columns = {name: [dict(amounts[text]).get(name, ABSENT) for text in used] for name in _RESOURCES}
    columns |= {name: [dict(gres_of(amounts[text])).get(name, 0) for text in used] for name in gres}
    found = {name: np.array(column, dtype=np.int64) for name, column in columns.items()}
    found["cpu"][_unread(used, amounts)] = UNREADABLE
    return found


def _unread(used: Sequence[str], amounts: dict[str, Amounts]) -> Any:
    return np.array([amounts[text] is _NONE_READ for text in used], dtype=bool)


def _amounts(text: str) -> Amounts:
    try:
        return parse_tres(text)
    except BadSpelling:
        return _NONE_READ
