"""Jobs of the accounting, in the newest shape: as links that have left the queue, and as a history of all."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from mirage.domain.errors import BadSpelling
from mirage.domain.job import ABSENT, Job, JobId, JobState
from mirage.domain.tags import PastLinks
from mirage.slurm.accounting import HISTORY_FIELDS, history_of
from mirage.slurm.job_state import failed_launch
from mirage.slurm.rest.answers import Record, job_id, number, part, text, whole, wrong
from mirage.slurm.rest.queue import describe_unreadable, exit_code, job_state, limit

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from mirage.domain.jobtable import JobTable

T = TypeVar("T")

_NO_NODES = ("", "None assigned")


def read_past_runs(sources: Iterable[T], shape: Callable[[T], Record]) -> tuple[list[Job], list[str]]:
    """Every run of the accounting's jobs, with their comments as tags; and the sources that cannot be read.

    ``shape`` as in ``read_queue``. A requeued job has a record for each run.
    """
    found: list[Job] = []
    unreadable: list[str] = []
    for source in sources:
        try:
            found.append(_read(shape(source)))
        except BadSpelling as fault:
            unreadable.append(describe_unreadable(source, fault))
    return found, unreadable


def read_past_links(sources: Iterable[T], shape: Callable[[T], Record], ids: Collection[JobId]) -> PastLinks:
    """The accounting's jobs that have a tag of Mirage or one of ``ids``; ``shape`` as in ``read_queue``."""
    runs, unreadable = read_past_runs(sources, shape)
    return PastLinks.of(runs, unreadable, ids)


def _read(record: Record) -> Job:
    times = part(record, "time")
    state = _end(record)
    ran = text(record, "nodes") not in _NO_NODES
    return Job(
        job_id=job_id(record),
        name=text(record, "name"),
        user=text(record, "user"),
        partition=text(record, "partition"),
        nodes=whole(record, "allocation_nodes"),
        limit=limit(times, "limit"),
        state=state,
        submit=whole(times, "submission") or ABSENT,
        start=whole(times, "start") or ABSENT if ran else ABSENT,
        end=whole(times, "end") or ABSENT,
        exit_code=exit_code(record),
        tag=text(part(record, "comment"), "job"),
    )


def _end(record: Record) -> JobState:
    """As ``state.parse_end``; slurmrestd does not show when slurmctld was started."""
    state = job_state(part(record, "state"), "current")
    if state is not JobState.CANCELLED or "kill_request_user" not in record:
        return state
    canceller = text(record, "kill_request_user")
    if not canceller:
        return state if exit_code(record) > 0 else JobState.NODE_FAIL
    times = part(record, "time")
    start, end = whole(times, "start"), whole(times, "end")
    ran = end - start if start and end and text(record, "nodes") not in _NO_NODES else ABSENT
    return JobState.BOOT_FAIL if failed_launch(canceller, text(record, "user"), ran) else state


def read_history(sources: Iterable[T], shape: Callable[[T], Record]) -> tuple[JobTable, int]:
    """The jobs that run or have ended, as ``jobhistory.read_history`` has them; how many are not understood."""
    read, strange = [], 0
    for source in sources:
        try:
            read.append(_cells(shape(source)))
        except BadSpelling:
            strange += 1
    columns = {field: [cells[field] for cells in read] for field in HISTORY_FIELDS}
    found, left_out = history_of(columns, "slurmrestd")
    return found, left_out + strange


def _cells(record: Record) -> dict[str, str]:
    """A record as ``sacct`` would print it."""
    times, tres = part(record, "time"), part(record, "tres")
    instants = {"Submit": "submission", "Eligible": "eligible", "Start": "start", "End": "end"}
    asked = _amounts(tres, "requested")
    names = {"User": "user", "Account": "account", "Partition": "partition", "QOS": "qos", "JobName": "name"}
    return {
        "JobIDRaw": str(job_id(record)),
        **{field: str(whole(times, name) or "Unknown") for field, name in instants.items()},
        **{field: text(record, name) for field, name in names.items()},
        "State": job_state(part(record, "state"), "current").name,
        "TimelimitRaw": _minutes(times),
        "NNodes": str(whole(record, "allocation_nodes") or asked.get("node", 0)),
        "AllocTRES": _spelled(_amounts(tres, "allocated")),
        "ReqTRES": _spelled(asked),
        "NodeList": text(record, "nodes"),
        "Constraints": text(record, "constraints"),
    }


def _minutes(times: Record) -> str:
    minutes = number(times, "limit", infinite=-2)
    return {ABSENT: "Partition_Limit", -2: "UNLIMITED"}.get(minutes, str(minutes))


def _amounts(tres: Record, name: str) -> dict[str, int]:
    """Allocated or requested TRES, memory in megabytes; entries without an amount are left out."""
    listed = tres.get(name)
    if type(listed) is not list or not all(type(each) is dict for each in listed):
        raise wrong(tres, name, "a list of objects")
    found = {}
    for each in listed:
        which = text(each, "name")
        count = each.get("count")
        if type(count) is int and count >= 0:
            found[f"{text(each, 'type')}/{which}" if which else text(each, "type")] = count
    return found


def _spelled(amounts: dict[str, int]) -> str:
    return ",".join(f"{name}={amount}{'M' if name == 'mem' else ''}" for name, amount in amounts.items())
