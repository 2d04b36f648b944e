"""``mirage protected``: whether submissions are held for all, and their release."""

from __future__ import annotations

import json

import typer

from mirage.cli.asking import AsJson, Socket
from mirage.cli.connection import connect, exit_codes
from mirage.cli.printing import show

protected_app = typer.Typer(help="Protected mode: submissions held because Slurm rejects too much.")


@protected_app.callback(invoke_without_command=True)
def show_command(context: typer.Context, as_json: AsJson = False, socket: Socket = "") -> None:
    """Say whether it is on, why, and when the next submission is tried."""
    if context.invoked_subcommand is not None:
        return
    with exit_codes():
        document = connect(socket).get("/protected-mode")
    if as_json:
        typer.echo(json.dumps(document))
    elif document["on"]:
        show(f"on since {document['since']}: {document['reason']}; the next try is at {document['next_try']}")
    else:
        show("off")


@protected_app.command("off")
def off_command(as_json: AsJson = False, socket: Socket = "") -> None:
    """Let all chains try again at once; for administrators."""
    with exit_codes():
        answer = connect(socket).post("/protected-mode", {"on": False})
    show(json.dumps(answer) if as_json else answer["sentence"])
