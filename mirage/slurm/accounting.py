"""Jobs as ``sacct`` prints them in formats of ours: what became of jobs, and how long jobs waited."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mirage.domain.errors import BadSpelling
from mirage.domain.job import ABSENT, Job, JobId
from mirage.domain.jobtable import Names, job_table
from mirage.slurm import rows
from mirage.slurm.duration import parse_limit
from mirage.slurm.jobid import parse_exit_code
from mirage.slurm.rows import UNREADABLE
from mirage.slurm.state import parse_state

if TYPE_CHECKING:
    from collections.abc import Collection

    from mirage.domain.jobtable import JobTable

SETTINGS = {"SLURM_TIME_FORMAT": "%s", "TZ": "UTC"}
"""What ``sacct`` must find in its environment."""

_FATE = (
    *("JobIDRaw", "User", "Partition", "NNodes", "TimelimitRaw", "State", "Submit", "Start", "End", "ExitCode"),
    *("NodeList", "JobName", "Comment"),
)
_WAITS = ("JobIDRaw", "User", "Partition", "NNodes", "TimelimitRaw", "Submit", "Start")
_EVER = "90days"
"""How long ago a job of ours may have been submitted, and how far Slurm's clock may be from ours."""
_NO_NODES = ("None assigned", "")
"""A job that never ran has its end, or the instant of its refusal, as start."""
_NO_TIME = ("Unknown", "None", "N/A", "")


def fate_arguments(mark: str, ids: Collection[JobId]) -> list[str]:
    """Arguments of ``sacct`` for these jobs, one row each, the last run of those that were requeued."""
    return [
        *_plain(mark, _FATE),
        f"--jobs={','.join(str(job_id) for job_id in sorted(ids))}",
        f"--starttime=now-{_EVER}",
        f"--endtime=now+{_EVER}",
    ]


def recent_arguments(mark: str, days: int) -> list[str]:
    """Arguments of ``sacct`` for all jobs in the queue at any time in the last ``days``."""
    return [*_plain(mark, _FATE), "--allusers", f"--starttime=now-{days}days", f"--endtime=now+{_EVER}"]


def waits_arguments(mark: str, start: int, end: int) -> list[str]:
    """Arguments of ``sacct`` for jobs that ran between two instants (epoch seconds), for ``read_waits``."""
    window = [f"--starttime=uts{start}", f"--endtime=uts{end}"]
    return [*_plain(mark, _WAITS), "--allusers", *window]


def _plain(mark: str, fields: tuple[str, ...]) -> list[str]:
    shape = ["--allocations", "--parsable", "--noconvert", f"--delimiter={mark}"]
    return [*shape, f"--format={','.join(fields)}"]


def read_fates(text: str, mark: str) -> dict[JobId, Job]:
    """The jobs of an answer, by id; their comments as tags. Rows that are not understood are left out.

    Raises ``BadSpelling`` when the answer is not whole.
    """
    table = rows.cut_delimited(text, _FATE, mark)
    found = [_fate(dict(zip(_FATE, cells, strict=True))) for cells in zip(*table.columns, strict=True)]
    return {job.job_id: job for job in found if job is not None}


def _fate(cells: dict[str, str]) -> Job | None:
    try:
        state = parse_state(cells["State"])
        start, end = _time(cells["Start"]), _time(cells["End"])
        return Job(
            job_id=JobId(int(cells["JobIDRaw"])),
            name=cells["JobName"],
            user=cells["User"],
            partition=cells["Partition"],
            nodes=int(cells["NNodes"]),
            limit=_limit(cells["TimelimitRaw"]),
            state=state,
            submit=_time(cells["Submit"]),
            start=ABSENT if cells["NodeList"] in _NO_NODES else start,
            end=end,
            exit_code=parse_exit_code(cells["ExitCode"]),
            tag=cells["Comment"],
            node_list="" if cells["NodeList"] in _NO_NODES else cells["NodeList"],
        )
    except (BadSpelling, ValueError):
        return None


def read_waits(text: str, mark: str, since: int, until: int) -> tuple[JobTable, int]:
    """The jobs that started in [since, until), in order of submission, and the number of rows left out.

    A job that ran on beyond a window's end is so counted once, in the window in which it started. Raises
    ``BadSpelling`` when the answer is not whole.
    """
    table = rows.cut_delimited(text, _WAITS, mark)
    cells = dict(zip(_WAITS, table.columns, strict=True))
    read = {
        "submit": rows.whole_numbers(cells["Submit"], _NO_TIME, ABSENT),
        "start": rows.whole_numbers(cells["Start"], _NO_TIME, ABSENT),
        "nodes": rows.whole_numbers(cells["NNodes"]),
        "limit": rows.numbers(cells["TimelimitRaw"], _limit),
    }
    good = np.all([column != UNREADABLE for column in read.values()], axis=0) if len(table) else np.empty(0, bool)
    ran = good & (read["start"] >= since) & (read["start"] < until) & (read["submit"] <= read["start"])
    chosen = np.flatnonzero(ran)
    names = {field: [cells[field][k] for k in chosen] for field in ("JobIDRaw", "User", "Partition")}
    columns = {name: column[chosen] for name, column in read.items()}
    found = job_table(
        len(chosen),
        **columns | {"nodes": columns["nodes"].astype(np.int32)},
        job_id=np.array(names["JobIDRaw"], dtype=np.str_),
        user=Names.encode(names["User"]),
        partition=Names.encode(names["Partition"]),
        source="sacct",
    )
    return found, int((~good).sum())


def _time(text: str) -> int:
    return ABSENT if text in _NO_TIME else int(text)


def _limit(text: str) -> int:
    """``TimelimitRaw``: minutes, or UNLIMITED and the like."""
    return int(text) * 60 if text.isdecimal() else parse_limit(text)
