"""``mirage chains``, ``mirage chain`` and ``mirage explain``: show, explain and control chains."""

from __future__ import annotations

import json
import os
import pwd
import sys
import textwrap
import time
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mirage.cli.arguments import UsageError, duration_of
from mirage.cli.chainlogs import logs_command
from mirage.cli.chainupdate import update_command
from mirage.cli.connection import complete_chain, connect, exit_code, exit_codes
from mirage.cli.printing import Iterate, ListOptions, repeated, show, show_error
from mirage.cli.shared_options import (
    AsJson,
    Id,
    Layout,
    Mine,
    NoHeader,
    Partition,
    Socket,
    Sort,
    States,
    User,
    listed,
    selected,
    whole,
)
from mirage.client.client import chain_path
from mirage.client.errors import ClientError
from mirage.domain.bounds import MOST_LINKS
from mirage.domain.texts import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirage.client.client import Client
    from mirage.client.documents import Chain, ChainPage

ExplainedId = Annotated[
    str, typer.Argument(metavar="CHAIN", help="ID or name of a chain.", autocompletion=complete_chain)
]
Index = Annotated[int | None, typer.Argument(metavar="[LINK]", min=1, max=MOST_LINKS, help="Number of a link.")]
_NOT_FOUND = 3
_WIDTH = 100


def explain_command(
    chain_id: ExplainedId, link: Index = None, as_json: AsJson = False, socket: Socket = ""
) -> None:
    """Explain the state of a chain or of one of its links, and how the handovers went.

    For every single decision see mirage chain log.
    """
    with exit_codes():
        client = connect(socket)
        chain = client.get(chain_path(chain_id))
        timeline = client.get(f"{chain_path(chain['id'])}/timeline", link=link)
    if as_json:
        typer.echo(json.dumps({"chain": chain, "timeline": timeline}))
        return
    from mirage.cli.linkstory import link_story
    from mirage.cli.story import chain_story

    try:
        sentences = list(
            chain_story(chain, timeline) if link is None else link_story(link, timeline, chain["sentence"])
        )
    except KeyError:
        show(f"mirage: {chain['id']} has no link {link}; it has {len(timeline['links'])} links", err=True)
        raise SystemExit(_NOT_FOUND) from None
    for sentence in sentences:
        for line in textwrap.wrap(printable(sentence), _WIDTH) or [""]:
            show(line)


class Until(StrEnum):
    """State to wait for."""

    RUNNING = "running"
    OVER = "over"


What = Annotated[
    Until, typer.Option("--until", help="State to wait for; running: a link runs; over: no link runs or will run.")
]
Timeout = Annotated[str, typer.Option("--timeout", metavar="TIME", help="Timeout, such as 2h (default: none).")]
_NOT_DONE, _TIMED_OUT = 6, 7
_EVERY = 2.0
"""Seconds between two requests."""


def wait_command(
    chain_id: Id, *, until: What = Until.OVER, timeout: Timeout = "", as_json: AsJson = False, socket: Socket = ""
) -> None:
    """Wait until a chain has ended, or until one of its links runs.

    Exit codes: 0 the chain is done (with --until running: a link runs), 6 the chain failed or was cancelled,
    7 timeout; 1 to 5 as for all commands.
    """
    seconds = duration_of("--timeout", timeout) if timeout else None
    if seconds is not None and seconds <= 0:
        raise UsageError("--timeout", "expected a time above 0; for no timeout, omit the option")
    deadline = None if seconds is None else time.monotonic() + seconds
    with exit_codes():
        client = connect(socket)
        chain = client.get(chain_path(chain_id))
        while (code := _outcome(chain, until)) is None:
            left = _EVERY if deadline is None else min(_EVERY, deadline - time.monotonic())
            if left <= 0:
                code = _TIMED_OUT
                break
            time.sleep(left)
            chain = _again(client, chain)
    if as_json:
        typer.echo(json.dumps(chain))
    else:
        reason = f": {chain['reason']}" if chain["reason"] else ""
        show(f"{chain['id']} {'is still ' * (code == _TIMED_OUT)}{chain['state']}{reason}", err=True)
    raise SystemExit(code)


def _outcome(chain: dict[str, Any], until: Until) -> int | None:
    """Return the exit code; ``None``: continue to wait."""
    links = [link["state"] for link in chain["links"]]
    if until is Until.RUNNING and "running" in links:
        return 0
    if chain["status"] not in ("done", "stopped") or any(state not in ("ended", "lost") for state in links):
        return None
    return 0 if chain["status"] == "done" and until is Until.OVER else _NOT_DONE


def _again(client: Client, chain: dict[str, Any]) -> dict[str, Any]:
    """Return the current chain; if the daemon does not reply, the old one."""
    from mirage.client.errors import DaemonUnreachable

    try:
        found: dict[str, Any] = client.get(chain_path(chain["id"]))
    except DaemonUnreachable:
        return chain
    return found


chain_app = typer.Typer(help="Show or control a chain.", no_args_is_help=True)

chain_app.command("logs")(logs_command)
chain_app.command("wait")(wait_command)
chain_app.command("update")(update_command)

Ids = Annotated[
    list[str],
    typer.Argument(metavar="ID...", help="IDs or names of chains.", autocompletion=complete_chain),
]
Yes = Annotated[bool, typer.Option("-y", "--yes", help="Do not ask for confirmation.")]
Every = Annotated[bool, typer.Option("--all", help="Show chains of all users, finished ones too.")]
Last = Annotated[int, typer.Option("--last", min=1, max=1000, help="Number of journal entries, the latest ones.")]
_PAGE = 1_000
"""Chains per request: fewer pages leave less time for changes between two of them."""


def chains_command(  # noqa: PLR0913 (one parameter for each option of the command line)
    *,
    every: Every = False,
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
    """List your chains, as squeue lists jobs.

    --all, -u and -t also list finished chains and, for administrators, the chains of other users. --json prints
    the same chains with all fields.

    Columns: chain (%i), name (%j), user (%u), state (%T, %t), since, expected, partition (%P), account (%a),
    qos (%q), nodes (%D), gres (%b), timelimit (%l), reason (%r), workdir (%Z), links, next, handovers,
    gaps (sum of interruptions), saved, overlap, predictor, aim, steering, handover, failures, rejections. Of the
    running link: jobid (%A), timeused (%M), time_left (%L), submittime (%V), starttime (%S), endtime (%e).
    """
    from mirage.cli.chaintables import chain_columns
    from mirage.client.documents import ChainPage
    from mirage.client.records import read

    wanted = _states(states)
    chain_columns(None).check(layout, sort)
    users = listed(user) | ({pwd.getpwuid(os.getuid()).pw_name} if mine else set())
    partitions = listed(partition)

    def shown(chain: Chain) -> bool:
        from mirage.cli.chaintables import goes_on

        return (
            (chain.state in wanted if wanted else every or goes_on(chain))
            and (not users or chain.owner in users)
            and (not partitions or chain.request.partition in partitions)
        )

    def once() -> None:
        with exit_codes():
            document = _list(connect(socket), every=every or bool(user or wanted))
            page = read(ChainPage, document)
        if as_json:
            typer.echo(json.dumps(selected(document, "chains", page.chains, shown)))
        else:
            _show_list(page, shown, ListOptions(layout, sort, not no_header))

    repeated(iterate, as_json, once)


def _show_list(page: ChainPage, shown: Callable[[Chain], bool], how: ListOptions) -> None:
    from mirage.cli.chaintables import chain_columns
    from mirage.cli.tables import tell_silence

    chains = [chain for chain in page.chains if shown(chain)]
    columns = chain_columns(page.time)
    columns.print(columns.sorted(chains, how.sort), how.layout, heading=how.heading)
    tell_silence(page.stale_since, page.sentence)


@chain_app.command("show")
def show_command(chain_id: Id, as_json: AsJson = False, socket: Socket = "") -> None:
    """Show the settings of a chain, its links and their jobs."""
    with exit_codes():
        chain = connect(socket).get(chain_path(chain_id))
    if as_json:
        typer.echo(json.dumps(chain))
        return
    from mirage.cli.chaintables import facts, link_rows
    from mirage.cli.tables import print_table

    print_table(facts(chain))
    if chain["links"]:
        show("")
        print_table(link_rows(chain["links"]))


@chain_app.command("pause")
def pause_command(chain_id: Id, as_json: AsJson = False, socket: Socket = "") -> None:
    """Pause a chain: submit no further link until it is resumed. Pending and running links stay."""
    _tell("pause", chain_id, socket, as_json=as_json)


@chain_app.command("resume")
def resume_command(chain_id: Id, as_json: AsJson = False, socket: Socket = "") -> None:
    """Resume a paused chain."""
    _tell("resume", chain_id, socket, as_json=as_json)


@chain_app.command("cancel")
def cancel_command(chain_ids: Ids, *, yes: Yes = False, as_json: AsJson = False, socket: Socket = "") -> None:
    """Cancel chains with their pending and running links.

    On a terminal the command asks for confirmation, unless --yes or --json is given. It tries all chains; the exit
    code is that of the first chain that it cannot cancel.
    """
    if not (yes or as_json) and sys.stdin.isatty() and sys.stdout.isatty():
        typer.confirm(printable(f"Cancel {', '.join(chain_ids)} with all running links?"), abort=True)
    client, answers, codes = connect(socket), [], []
    for chain_id in dict.fromkeys(chain_ids):
        try:
            answers.append(client.post(f"{chain_path(chain_id)}/cancel"))
        except ClientError as error:
            show_error(error)
            codes.append(exit_code(error))
            continue
        if not as_json:
            show(answers[-1]["sentence"])
            _tell_running(answers[-1], chain_id)
        if warning := answers[-1].get("warning"):
            show(f"mirage: warning: {warning}", err=True)
    if as_json and (len(chain_ids) > 1 or answers):
        typer.echo(json.dumps({"chains": answers} if len(chain_ids) > 1 else answers[0]))
    raise SystemExit(codes[0] if codes else 0)


def _tell_running(answer: dict[str, Any], chain_id: str) -> None:
    """Name the jobs of a cancelled chain that still end: they write until then."""
    links = (answer.get("chain") or {}).get("links", ())
    if jobs := ", ".join(str(link["job_id"]) for link in links if link["state"] == "running"):
        text = f"job {jobs} still ends; before you submit the work again: mirage chain wait {chain_id}"
        show(f"mirage: {text}", err=True)


@chain_app.command("explain", hidden=True)
@chain_app.command("log")
def journal_command(chain_id: Id, last: Last = 20, as_json: AsJson = False, socket: Socket = "") -> None:
    """Show the journal of a chain, oldest entry first. For an explanation see mirage explain."""
    with exit_codes():
        document = connect(socket).get(f"{chain_path(chain_id)}/explain", limit=last)
    if as_json:
        typer.echo(json.dumps(document))
        return
    from mirage.cli.chaintables import entry_rows
    from mirage.cli.tables import print_table

    print_table(entry_rows(document["entries"][::-1]))
    show(f"now: {document['sentence'] or 'no decision is pending'}")


def _tell(command: str, chain_id: str, socket: str, *, as_json: bool) -> None:
    with exit_codes():
        answer = connect(socket).post(f"{chain_path(chain_id)}/{command}")
    show(json.dumps(answer) if as_json else answer["sentence"])


def _list(client: Client, *, every: bool) -> Any:
    """Return the chains of all users if the caller may see them, else only the caller's."""
    if every and client.get("/me")["scope"] == "admin":
        return whole(client, "/chains", "chains", all=True, limit=_PAGE)
    return whole(client, "/chains", "chains", limit=_PAGE)


def _states(text: str) -> frozenset[str]:
    """Raises ``BadParameter``."""
    from mirage.cli.chaintables import SHORT

    names = {short.lower(): state for state, short in SHORT.items()}
    wanted = frozenset(names.get(word.lower(), word.lower()) for word in listed(text))
    if "all" in wanted:
        return frozenset(SHORT)
    if unknown := sorted(wanted - set(SHORT)):
        problem = f"unknown state {unknown[0]!r} (choose from {', '.join(SHORT)}, all)"
        raise typer.BadParameter(problem, param_hint="-t")
    return wanted
