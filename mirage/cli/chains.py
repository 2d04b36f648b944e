"""``mirage chains`` and ``mirage chain``: look at chains and command them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mirage.cli.connection import connect, exit_codes
from mirage.client.client import chain_path

if TYPE_CHECKING:
    from mirage.client.client import Client

chain_app = typer.Typer(help="Look at one chain, or command it.", no_args_is_help=True)

Id = Annotated[str, typer.Argument(metavar="ID", help="A chain's id, as mirage chains shows it, or its name.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
Socket = Annotated[str, typer.Option("--socket", metavar="FILE", help="The daemon's socket.")]
Every = Annotated[bool, typer.Option("--all", help="Everybody's chains, those that are over too.")]
Last = Annotated[int, typer.Option("--last", min=1, max=1000, help="So many lines of the journal.")]


def chains_command(every: Every = False, as_json: AsJson = False, socket: Socket = "") -> None:
    """List your chains; with --all also those that are over and, for administrators, everybody's."""
    with exit_codes():
        document = _list(connect(socket), every=every)
    if as_json:
        typer.echo(json.dumps(document))
        return
    from mirage.cli.chaintables import chain_rows, print_table

    chains = [chain for chain in document["chains"] if every or _goes_on(chain)]
    print_table(chain_rows(chains, document["time"]))
    if document["stale_since"]:
        typer.echo(
            f"The cluster has not answered since {document['stale_since']}: this is what was known then.", err=True
        )


@chain_app.command("show")
def show_command(chain_id: Id, as_json: AsJson = False, socket: Socket = "") -> None:
    """Show a chain with its links and how they handed over."""
    with exit_codes():
        chain = connect(socket).get(chain_path(chain_id))
    if as_json:
        typer.echo(json.dumps(chain))
        return
    from mirage.cli.chaintables import facts, link_rows, print_table

    print_table(facts(chain))
    if chain["links"]:
        typer.echo()
        print_table(link_rows(chain["links"]))


@chain_app.command("pause")
def pause_command(chain_id: Id, as_json: AsJson = False, socket: Socket = "") -> None:
    """Submit no further link until resumed; those on the cluster stay."""
    _tell("pause", chain_id, socket, as_json=as_json)


@chain_app.command("resume")
def resume_command(chain_id: Id, as_json: AsJson = False, socket: Socket = "") -> None:
    """Go on with a chain that is paused."""
    _tell("resume", chain_id, socket, as_json=as_json)


@chain_app.command("cancel")
def cancel_command(chain_id: Id, as_json: AsJson = False, socket: Socket = "") -> None:
    """End a chain, its running links too."""
    _tell("cancel", chain_id, socket, as_json=as_json)


@chain_app.command("explain")
def explain_command(chain_id: Id, last: Last = 20, as_json: AsJson = False, socket: Socket = "") -> None:
    """Say why a chain is as it is: the last decisions, oldest first."""
    with exit_codes():
        document = connect(socket).get(f"{chain_path(chain_id)}/explain?limit={last}")
    if as_json:
        typer.echo(json.dumps(document))
        return
    from mirage.cli.chaintables import entry_rows, print_table

    print_table(entry_rows(document["entries"][::-1]))
    typer.echo(f"now: {document['sentence'] or 'nothing is to be decided'}")


def _tell(command: str, chain_id: str, socket: str, *, as_json: bool) -> None:
    with exit_codes():
        answer = connect(socket).post(f"{chain_path(chain_id)}/{command}")
    typer.echo(json.dumps(answer) if as_json else answer["sentence"])


def _list(client: Client, *, every: bool) -> Any:
    """Everybody's chains where that is permitted; one's own otherwise."""
    from mirage.client.errors import Refusal

    if not every:
        return client.get("/chains")
    try:
        return client.get("/chains?all=true")
    except Refusal as refusal:
        if refusal.status != 403:
            raise
        return client.get("/chains")


def _goes_on(chain: dict[str, Any]) -> bool:
    return chain["status"] in ("active", "paused") or any(
        link["state"] not in ("ended", "lost") for link in chain["links"]
    )
