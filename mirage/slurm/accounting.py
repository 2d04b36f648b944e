"""Jobs as ``sacct`` prints them in a format of ours: what became of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.domain.errors import BadSpelling
from mirage.domain.job import ABSENT, Job, JobId, job_id_of
from mirage.slurm import rows
from mirage.slurm.duration import parse_limit
from mirage.slurm.jobid import parse_exit_code
from mirage.slurm.state import parse_end

if TYPE_CHECKING:
    from collections.abc import Collection

SETTINGS = {"SLURM_TIME_FORMAT": "%s", "TZ": "UTC"}
"""What ``sacct`` must find in its environment."""

_FATE = (
    *("JobIDRaw", "User", "Partition", "NNodes", "TimelimitRaw", "State", "Submit", "Start", "End", "ExitCode"),
    *("NodeList", "JobName", "Comment"),
)
_EVER = "90days"
"""How long ago a job of ours may have been submitted, and how far Slurm's clock may be from ours."""
NO_NODES = ("None assigned", "")
"""A job that never ran has its end, or the instant of its refusal, as start."""
NO_TIME = ("Unknown", "None", "N/A", "")


def fate_arguments(mark: str, ids: Collection[JobId]) -> list[str]:
    """Arguments of ``sacct`` for these jobs, one row each, the last run of those that were requeued."""
    return [
        *plain(mark, _FATE),
        f"--jobs={','.join(str(job_id) for job_id in sorted(ids))}",
        f"--starttime=now-{_EVER}",
        f"--endtime=now+{_EVER}",
    ]


def recent_arguments(mark: str, days: int) -> list[str]:
    """Arguments of ``sacct`` for all jobs in the queue at any time in the last ``days``."""
    return [*plain(mark, _FATE), "--allusers", f"--starttime=now-{days}days", f"--endtime=now+{_EVER}"]


def plain(mark: str, fields: tuple[str, ...]) -> list[str]:
    """Arguments for these fields, one row a job, each cell ending in ``mark``."""
    shape = ["--allocations", "--parsable", "--noconvert", f"--delimiter={mark}"]
    return [*shape, f"--format={','.join(fields)}"]


def read_fates(text: str, mark: str) -> tuple[dict[JobId, Job], list[str]]:
    """The jobs of an answer, by id; their comments as tags. And the rows that are not understood.

    Raises ``BadSpelling`` when the answer is not whole.
    """
    table = rows.cut_delimited(text, _FATE, mark)
    found: dict[JobId, Job] = {}
    unreadable: list[str] = []
    for cells in zip(*table.columns, strict=True):
        if (job := _fate(dict(zip(_FATE, cells, strict=True)))) is None:
            unreadable.append(rows.CELL.join(cells))
        else:
            found[job.job_id] = job
    return found, unreadable


def _fate(cells: dict[str, str]) -> Job | None:
    try:
        state = parse_end(cells["State"])
        start, end = _time(cells["Start"]), _time(cells["End"])
        return Job(
            job_id=job_id_of(int(cells["JobIDRaw"])),
            name=cells["JobName"],
            user=cells["User"],
            partition=cells["Partition"],
            nodes=int(cells["NNodes"]),
            limit=raw_limit(cells["TimelimitRaw"]),
            state=state,
            submit=_time(cells["Submit"]),
            start=ABSENT if cells["NodeList"] in NO_NODES else start,
            end=end,
            exit_code=parse_exit_code(cells["ExitCode"]),
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
