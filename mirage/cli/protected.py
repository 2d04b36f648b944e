"""``mirage protected``: show and end protected mode."""

from __future__ import annotations

import json

import typer

from mirage.cli.asking import AsJson, Socket
from mirage.cli.connection import connect, exit_codes
from mirage.cli.printing import show

protected_app = typer.Typer(
    help="Show or end protected mode, in which the daemon holds all submissions because Slurm rejects too many."
)


@protected_app.callback(invoke_without_command=True)
def show_command(context: typer.Context, as_json: AsJson = False, socket: Socket = "") -> None:
    """Show whether protected mode is on, why, and when the daemon tries the next submission."""
    if context.invoked_subcommand is not None:
        return
    with exit_codes():
        document = connect(socket).get("/protected-mode")
    if as_json:
        typer.echo(json.dumps(document))
    elif document["on"]:
        show(f"on since {document['since']}: {document['reason']}; next try at {document['next_try']}")
    else:
        show("off")


@protected_app.command("off")
def off_command(as_json: AsJson = False, socket: Socket = "") -> None:
    """End protected mode: all chains submit again immediately. Only for administrators."""
    with exit_codes():
        answer = connect(socket).post("/protected-mode", {"on": False})
    show(json.dumps(answer) if as_json else answer["sentence"])
