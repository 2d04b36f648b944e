"""``mirage chains`` and ``mirage chain``: show and control chains."""

from __future__ import annotations

import json
import os
import pwd
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mirage.cli.asking import (
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
from mirage.cli.chainlogs import logs_command
from mirage.cli.chainupdate import update_command
from mirage.cli.chainwait import wait_command
from mirage.cli.completing import complete_chain
from mirage.cli.connection import connect, exit_code, exit_codes
from mirage.cli.printing import show, show_error
from mirage.cli.repeating import Iterate, Shown, repeated
from mirage.client.client import chain_path
from mirage.client.errors import ClientError
from mirage.domain.texts import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirage.client.client import Client
    from mirage.client.documents import Chain, ChainPage

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
    from mirage.client.reading import read

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
            _show_list(page, shown, Shown(layout, sort, not no_header))

    repeated(iterate, as_json, once)


def _show_list(page: ChainPage, shown: Callable[[Chain], bool], how: Shown) -> None:
    from mirage.cli.chaintables import chain_columns
    from mirage.cli.silence import tell_silence

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
    from mirage.cli.columns import print_table

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
        if warning := answers[-1].get("warning"):
            show(f"mirage: warning: {warning}", err=True)
    if as_json and (len(chain_ids) > 1 or answers):
        typer.echo(json.dumps({"chains": answers} if len(chain_ids) > 1 else answers[0]))
    raise SystemExit(codes[0] if codes else 0)


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
    from mirage.cli.columns import print_table

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
