"""``mirage queue``: Slurm's queue, with predicted start times of the caller's jobs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mirage.cli.asking import (
    AsJson,
    Layout,
    Mine,
    NoHeader,
    Partition,
    Socket,
    Sort,
    User,
    listed,
    selected,
    whole,
)
from mirage.cli.connection import connect, exit_codes
from mirage.cli.printing import show
from mirage.cli.repeating import Iterate, Shown, repeated

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from mirage.cli.columns import Columns
    from mirage.client.client import Client
    from mirage.client.documents import QueuedJob, QueuePage

States = Annotated[
    str,
    typer.Option(
        "-t",
        "--states",
        metavar="STATES",
        help="Show only these states, comma-separated: pending (PD), running (R), suspended (S), or all.",
    ),
]

_SHORT = {"PENDING": "PD", "RUNNING": "R", "SUSPENDED": "S"}
_STATES = {word.lower(): state for state, short in _SHORT.items() for word in (state, short)}
_FORESEEN = ("predicted_start", "predicted_start_p10", "predicted_start_p90", "predictor")


def queue_command(  # noqa: PLR0913 (one parameter for each option of the command line)
    *,
    mine: Mine = False,
    user: User = "",
    partition: Partition = "",
    states: States = "",
    layout: Layout = "",
    sort: Sort = "",
    no_header: NoHeader = False,
    iterate: Iterate = None,
    as_json: AsJson = False,
    socket: Socket = "",
) -> None:
    """List Slurm's queue, with predicted start times of your pending jobs.

    PREDICTED is the median start time that the active predictor, or its fallback, forecasts for the same job
    submitted now. A job that is already in the queue should start no later. There is no prediction for a job that
    is held, depends on another job, has a later begin time or is at a limit of its account.

    --json prints the same jobs with all fields.

    Names and accounts of other users' jobs are visible to administrators, and to users if the site's policy
    allows it.

    Columns: jobid (%i), partition (%P), name (%j), user (%u), account (%a), state (%T, %t), qos (%q), nodes (%D),
    priority (%Q), timeused (%M), timelimit (%l), time_left (%L), submittime (%V), starttime (%S; Slurm's plan for
    pending jobs), endtime (%e), waited, predicted, earliest (P10), latest (P90), by (the predictor).
    """
    from mirage.client.documents import QueuePage
    from mirage.client.reading import read

    wanted = _wanted(states)
    queue_columns(None).check(layout, sort)
    users, partitions = listed(user), listed(partition)

    def shown(job: QueuedJob) -> bool:
        return (
            (not wanted or job.state in wanted)
            and (not users or mine or job.user in users)
            and bool(not partitions or partitions & listed(job.partition))
        )

    def once() -> None:
        with exit_codes():
            document = _ask(connect(socket), "me" if mine else user, partition)
            page = read(QueuePage, document)
        if as_json:
            document = selected(document, "jobs", page.jobs, shown)
            typer.echo(json.dumps(document | {"total": len(document["jobs"])}))
        else:
            _show(page, shown, Shown(layout, sort or "-state,jobid", not no_header))

    repeated(iterate, as_json, once)


def _show(page: QueuePage, shown: Callable[[QueuedJob], bool], how: Shown) -> None:
    from mirage.cli.silence import tell_silence

    jobs, columns = [job for job in page.jobs if shown(job)], queue_columns(page.snapshot)
    columns.print(columns.sorted(jobs, how.sort), how.layout, heading=how.heading)
    tell_silence(page.stale_since)
    if page.own_only:
        show(
            "Only your own jobs are shown: Slurm's PrivateData hides the others, or the daemon has not read it.",
            err=True,
        )
    if page.snapshot is None and not page.stale_since:
        show(
            "The daemon has not polled the cluster: it is starting or on standby (mirage chains shows why).",
            err=True,
        )


def queue_columns(now: datetime | None) -> Columns[QueuedJob]:
    """Return the columns of jobs; durations count up to ``now``."""
    from mirage.cli.columns import Column, Columns
    from mirage.cli.instants import NOTHING, between, clock, span

    def text(name: str) -> Callable[[QueuedJob], str]:
        return lambda job: str(getattr(job, name) or NOTHING)

    def value(name: str) -> Callable[[QueuedJob], Any]:
        return lambda job: getattr(job, name)

    def instant(name: str) -> tuple[Callable[[QueuedJob], str], Callable[[QueuedJob], Any]]:
        return (lambda job: clock(getattr(job, name))), value(name)

    def used(job: QueuedJob) -> int | None:
        """Return the run time without suspensions, by which Slurm has moved the end."""
        if job.state == "SUSPENDED":
            return None
        if job.start is None:
            return 0
        passed, allowed = between(job.start, now), between(job.start, job.end)
        if passed is None or allowed is None or job.limit is None:
            return passed
        return passed - max(0, allowed - job.limit)

    def left(job: QueuedJob) -> int | None:
        if job.state == "SUSPENDED":
            return None
        return between(now, job.end) if job.end else job.limit

    def start(job: QueuedJob) -> datetime | None:
        return job.start or job.planned_start

    return Columns(
        (
            Column("jobid", "i", "JOBID", text("job_id"), value("job_id")),
            Column("partition", "P", "PARTITION", text("partition")),
            Column("name", "j", "NAME", text("name")),
            Column("user", "u", "USER", text("user")),
            Column("account", "a", "ACCOUNT", text("account")),
            Column("state", "T", "STATE", text("state")),
            Column("statecompact", "t", "ST", lambda job: _SHORT.get(job.state, job.state)),
            Column("qos", "q", "QOS", text("qos")),
            Column("nodes", "D", "NODES", text("nodes"), value("nodes")),
            Column("priority", "Q", "PRIORITY", text("priority"), value("priority")),
            Column("timeused", "M", "TIME", lambda job: span(used(job)), used),
            Column("timelimit", "l", "TIME_LIMIT", lambda job: span(job.limit), value("limit")),
            Column("time_left", "L", "TIME_LEFT", lambda job: span(left(job)), left),
            Column("submittime", "V", "SUBMIT_TIME", *instant("submit")),
            Column("starttime", "S", "START_TIME", lambda job: clock(start(job)), start),
            Column("endtime", "e", "END_TIME", *instant("end")),
            Column("waited", "", "WAITED", lambda job: span(job.waited), value("waited")),
            Column("foreseen", "", "PREDICTED", *instant("predicted_start")),
            Column("earliest", "", "EARLIEST", *instant("predicted_start_p10")),
            Column("latest", "", "LATEST", *instant("predicted_start_p90")),
            Column("by", "", "BY", text("predictor")),
        ),
        "jobid,partition,name:12,user,statecompact,timeused,timelimit,nodes,starttime,foreseen,by",
    )


def _ask(client: Client, user: str, partition: str) -> dict[str, Any]:
    """Return the queue, with predictions of the caller's jobs if there are any."""
    from mirage.client.errors import Refusal

    one = {name: text for name, text in (("user", user), ("partition", partition)) if text and "," not in text}
    document = whole(client, "/queue", "jobs", **one)
    try:
        own = whole(client, "/jobs", "jobs")["jobs"]
    except Refusal as refusal:
        show(f"mirage: no predictions for your jobs: {refusal}", err=True)
        own = []
    foreseen = {job["job_id"]: {name: job[name] for name in _FORESEEN} for job in own}
    document["jobs"] = [job | foreseen.get(job["job_id"], {}) for job in document["jobs"]]
    return document


def _wanted(text: str) -> frozenset[str]:
    """Raises ``BadParameter``."""
    words = {word.lower() for word in listed(text)} - {"all"}
    if unknown := sorted(words - _STATES.keys()):
        problem = f"unknown state {unknown[0]!r} (choose from pending, running, suspended, all)"
        raise typer.BadParameter(problem, param_hint="-t")
    return frozenset(_STATES[word] for word in words)
