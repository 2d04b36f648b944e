"""All jobs of a span of time as ``sacct`` prints them in a format of ours: whose, how large, when, how ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mirage.domain.errors import BadSpelling
from mirage.domain.job import ABSENT, JobState
from mirage.domain.jobtable import Names, job_table
from mirage.slurm import rows
from mirage.slurm.accounting import NO_NODES, NO_TIME, plain, raw_limit
from mirage.slurm.rows import UNREADABLE
from mirage.slurm.state import parse_state
from mirage.slurm.tres import gres_of, parse_tres

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mirage.domain.jobtable import JobTable
    from mirage.slurm.rows import Int64
    from mirage.slurm.tres import Amounts

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
FIELDS = (
    *("JobIDRaw", "Eligible", "Start", "End", "State", "TimelimitRaw", "NNodes", "AllocTRES", "ReqTRES"),
    *("NodeList", "User", "Account", "Partition", "QOS", *_FREE, "Submit"),
)
_FINISHED = [state.value for state in JobState if state.finished]
_RESOURCES = ("cpu", "mem")
_NONE_READ: Amounts = (("", UNREADABLE),)


def history_arguments(start: int, end: int) -> list[str]:
    """Arguments of ``sacct`` for the jobs in the queue between two times (epoch seconds), each run of them."""
    window = [f"--starttime=uts{start}", f"--endtime=uts{end}"]
    return [*plain(FIELDS), "--allusers", "--duplicates", *window]


def read_history(text: str, mark: str) -> tuple[JobTable, int]:
    """The jobs that run or have ended, in order of submission, and the number of rows that are not understood.

    A job that still pends is left out: an array's row then stands for any number of tasks. Resources are those
    allocated, else those asked for. Raises ``BadSpelling`` when the answer is not whole.
    """
    table = rows.cut_parsable(text, FIELDS, mark, len(_FREE))
    found, left_out = history_of(dict(zip(FIELDS, table.columns, strict=True)), "sacct")
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
