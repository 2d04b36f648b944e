"""``mirage status``, ``queue`` and ``version``: the daemon, Slurm, the user's chains and jobs."""

from __future__ import annotations

import json
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mirage import __version__
from mirage.cli.connection import connect, exit_codes
from mirage.cli.printing import Iterate, ListOptions, repeated, show
from mirage.cli.shared_options import (
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
from mirage.cli.tables import STANDS_BY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mirage.cli.tables import Columns
    from mirage.client.client import Client
    from mirage.client.documents import Chain, QueuedJob, QueuePage

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
    from mirage.client.records import read

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
            _show(page, shown, ListOptions(layout, sort or "-state,jobid", not no_header))

    repeated(iterate, as_json, once)


def _show(page: QueuePage, shown: Callable[[QueuedJob], bool], how: ListOptions) -> None:
    from mirage.cli.tables import tell_silence

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
    from mirage.cli.tables import NOTHING, Columns, TableColumn, between, clock, span

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
            TableColumn("jobid", "i", "JOBID", text("job_id"), value("job_id")),
            TableColumn("partition", "P", "PARTITION", text("partition")),
            TableColumn("name", "j", "NAME", text("name")),
            TableColumn("user", "u", "USER", text("user")),
            TableColumn("account", "a", "ACCOUNT", text("account")),
            TableColumn("state", "T", "STATE", text("state")),
            TableColumn("statecompact", "t", "ST", lambda job: _SHORT.get(job.state, job.state)),
            TableColumn("qos", "q", "QOS", text("qos")),
            TableColumn("nodes", "D", "NODES", text("nodes"), value("nodes")),
            TableColumn("priority", "Q", "PRIORITY", text("priority"), value("priority")),
            TableColumn("timeused", "M", "TIME", lambda job: span(used(job)), used),
            TableColumn("timelimit", "l", "TIME_LIMIT", lambda job: span(job.limit), value("limit")),
            TableColumn("time_left", "L", "TIME_LEFT", lambda job: span(left(job)), left),
            TableColumn("submittime", "V", "SUBMIT_TIME", *instant("submit")),
            TableColumn("starttime", "S", "START_TIME", lambda job: clock(start(job)), start),
            TableColumn("endtime", "e", "END_TIME", *instant("end")),
            TableColumn("waited", "", "WAITED", lambda job: span(job.waited), value("waited")),
            TableColumn("foreseen", "", "PREDICTED", *instant("predicted_start")),
            TableColumn("earliest", "", "EARLIEST", *instant("predicted_start_p10")),
            TableColumn("latest", "", "LATEST", *instant("predicted_start_p90")),
            TableColumn("by", "", "BY", text("predictor")),
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


def version_command(as_json: AsJson = False, socket: Socket = "") -> None:
    """Show the versions of this command, of Python and of the daemon."""
    from mirage.client.errors import ClientError

    versions = {"mirage": __version__, "python": platform.python_version()}
    try:
        versions["daemon"] = connect(socket).version()
    except ClientError:
        versions["daemon"] = ""
    if as_json:
        typer.echo(json.dumps(versions))
        return
    for name, version in versions.items():
        show(f"{name:7} {version or 'does not reply'}")


_CLUSTER = ("snapshot", "stale_since", "backend", "slurm_version", "now")
_ORDER = ("failed", "down", "paused", "starting", "up", "done", "cancelled")
"""States of chains, the worst first."""
_NO_AGENT = "not running; without it Mirage cannot submit or cancel your jobs"
_SHOWN = 10
_QUIET = ("done", "cancelled")
"""States that are only counted, not listed."""


def status_command(as_json: AsJson = False, socket: Socket = "") -> None:
    """Show the state of the daemon, of Slurm and of your chains on one screen, and what to do."""
    with exit_codes():
        client = connect(socket)
        document = _document(client)
    if as_json:
        typer.echo(json.dumps(document))
        return
    from mirage.cli.tables import print_table
    from mirage.client.documents import Chain
    from mirage.client.records import read_all

    chains = _ordered(read_all(Chain, document["chains"]))
    agent = [("Agent", _NO_AGENT)] if _lacks_agent(document, chains) else []
    print_table([("Daemon", _daemon(document)), *agent, ("Slurm", _slurm(document)), ("Chains", _counts(chains))])
    listed = [chain for chain in chains if chain.state not in _QUIET or chain.running is not None]
    if listed:
        show("")
        print_table([("CHAIN", "STATE", "SINCE", "LINKS", "JOBID", "REASON"), *map(_row, listed[:_SHOWN])])
        if len(listed) > _SHOWN:
            show(f"and {len(listed) - _SHOWN} more: mirage chains")
    todo = list(_todo(document, chains))
    if todo:
        show("")
    for line in todo:
        show(f"-> {line}")


def _document(client: Client) -> dict[str, Any]:
    chains = whole(client, "/chains", "chains", limit=1_000)["chains"]
    cluster = client.get("/cluster")
    return {
        "daemon": {"version": client.version(), "since": _since(client)},
        "cluster": {name: cluster[name] for name in _CLUSTER},
        "agent": cluster.get("agent"),
        "sentence": cluster["loop"]["sentence"],
        "chains": chains,
    }


def _since(client: Client) -> str | None:
    """Return the time of the socket, which the daemon creates at its start; ``None`` over the network."""
    try:
        made = Path(client.transport.address.socket).stat().st_mtime if client.transport.address.socket else None
    except OSError:
        return None
    return None if made is None else datetime.fromtimestamp(made, UTC).isoformat()


def _ordered(chains: Sequence[Chain]) -> list[Chain]:
    places = {state: place for place, state in enumerate(_ORDER)}

    def place(chain: Chain) -> tuple[bool, int]:
        lives_on = chain.over and chain.running is not None  # its job takes nodes though nothing follows
        return not chain.rejection, places["starting"] if lives_on else places.get(chain.state, len(_ORDER))

    return sorted(chains, key=place)


def _lacks_agent(document: dict[str, Any], chains: Sequence[Chain]) -> bool:
    return document["agent"] is False and any(not chain.over or chain.running is not None for chain in chains)


def _daemon(document: dict[str, Any]) -> str:
    from mirage.cli.tables import clock, instant_of

    daemon, snapshot = document["daemon"], document["cluster"]["snapshot"]
    since = f", running since {clock(instant_of(daemon['since']))}" if daemon["since"] else ""
    if document["sentence"].startswith(STANDS_BY):
        return f"Mirage {daemon['version']}{since}; {document['sentence']}"
    polled = (
        f"polled the cluster at {clock(instant_of(snapshot))}" if snapshot else "has not polled the cluster yet"
    )
    return f"Mirage {daemon['version']}{since}; {polled}"


def _slurm(document: dict[str, Any]) -> str:
    from mirage.cli.tables import clock, instant_of

    cluster = document["cluster"]
    version = f"Slurm {cluster['slurm_version']}" if cluster["slurm_version"] else "Slurm"
    name = "simulated" if cluster["backend"] == "simulated" else version
    if cluster["stale_since"]:
        return f"{name} has not replied since {clock(instant_of(cluster['stale_since']))}"
    return f"{name} replies" if cluster["snapshot"] else f"{name}: not polled yet"


def _counts(chains: Sequence[Chain]) -> str:
    states = [chain.state for chain in chains]
    return ", ".join(f"{states.count(state)} {state}" for state in _ORDER if state in states) or "none"


def _row(chain: Chain) -> tuple[str, ...]:
    from mirage.cli.chaintables import reason_of
    from mirage.cli.tables import NOTHING, clock

    job = str(chain.running.job_id) if chain.running else NOTHING
    reason = chain.rejection or reason_of(chain)
    return (chain.id, chain.state.upper(), clock(chain.since), str(len(chain.links)), job, reason)


def _todo(document: dict[str, Any], chains: Sequence[Chain]) -> Iterator[str]:
    """What the user can do, most urgent first."""
    if _lacks_agent(document, chains):
        yield "start your agent: mirage agent"
    if document["cluster"]["stale_since"]:
        yield "Mirage submits nothing until Slurm replies: try squeue, then mirage doctor"
    stands_by = document["sentence"].startswith(STANDS_BY)
    if stands_by:
        led = document["sentence"].endswith(" leads")
        remedy = "use the machine that leads" if led else "see why above, and mirage doctor"
        yield f"this daemon accepts no commands; {remedy}"
    for chain in chains[:_SHOWN]:
        if chain.rejection and not chain.over:
            yield f"{chain.id}: Slurm rejects the next link; see mirage explain {chain.id}"
        elif chain.state == "paused":
            yield f"{chain.id}: mirage explain {chain.id}; then mirage chain resume {chain.id}"
        elif chain.state == "failed":
            yield f"{chain.id}: mirage chain logs {chain.id}; then submit it again"
        elif chain.state == "down":
            yield f"{chain.id}: mirage explain {chain.id}"
    if not chains and not stands_by:
        yield "create a chain: mirage submit SCRIPT"
