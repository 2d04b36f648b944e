"""Jobs as ``sacct`` prints them in a format of ours: what became of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.domain.errors import BadSpelling
from mirage.domain.job import ABSENT, Job, JobId, JobState, job_id_of
from mirage.domain.pastlinks import PastLinks
from mirage.slurm import rows
from mirage.slurm.duration import parse_limit
from mirage.slurm.jobid import parse_exit_code
from mirage.slurm.state import canceller_of, failed_launch, names_no_user, parse_end

if TYPE_CHECKING:
    from collections.abc import Collection

_FREE = ("JobName", "Comment")
"""Users' own text."""
_FATE = (
    *("JobIDRaw", "User", "Partition", "NNodes", "TimelimitRaw", "State", "Start", "End", "ExitCode", "NodeList"),
    *(*_FREE, "Submit"),
)
_TIMES = ("Submit", "Eligible", "Start", "End")
_TIME_WIDTH = 40
"""Slurm 22.05 prints a time that is longer than its column as ``#``."""
_EVER = "90days"
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
        f"--starttime=now-{_EVER}",
        f"--endtime=now+{_EVER}",
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
    table = rows.cut_parsable(text, _FATE, mark, len(_FREE))
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
