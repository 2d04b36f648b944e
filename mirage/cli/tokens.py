"""``mirage tokens`` and ``web``: access to the REST API and the web UI; ``mirage protected``."""

from __future__ import annotations

import json
import os
import sys
from typing import Annotated, Any
from urllib.parse import quote

import typer

from mirage.cli.arguments import parse_choice
from mirage.cli.connection import connect, exit_codes
from mirage.cli.printing import show
from mirage.cli.shared_options import AsJson, Socket

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


tokens_app = typer.Typer(
    help="Create, list and revoke tokens for programs and browsers on the network.", no_args_is_help=True
)

Label = Annotated[str, typer.Option("--label", metavar="TEXT", help="Label that describes the purpose.")]
ScopeName = Annotated[
    str, typer.Option("--scope", metavar="SCOPE", help="Permissions of the token: read, operate or admin.")
]
Lifetime = Annotated[
    str, typer.Option("--expires", metavar="TIME", help="Lifetime, such as 12h or 90d; 0: never expires.")
]
Owner = Annotated[
    str, typer.Option("--user", metavar="NAME", help="Owner of the token, for administrators (default: you).")
]
Every = Annotated[bool, typer.Option("--all", help="Show tokens of all users, for administrators.")]
Print = Annotated[bool, typer.Option("--print", help="Print the link without opening a browser.")]
_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY")
Id = Annotated[str, typer.Argument(metavar="ID", help="ID of a token, as mirage tokens list shows it.")]


@tokens_app.command("create")
def create_command(
    label: Label = "",
    scope: ScopeName = "read",
    expires: Lifetime = "90d",
    user: Owner = "",
    as_json: AsJson = False,
    socket: Socket = "",
) -> None:
    """Create a token and print it. It is not shown again."""
    from mirage.api.access.caller import Scope

    parse_choice(Scope, scope, "--scope")
    wish = {"label": label, "scope": scope, "lifetime": _seconds(expires), "owner": user}
    with exit_codes():
        made = connect(socket).post("/tokens", wish)
    if as_json:
        typer.echo(json.dumps(made))
        return
    show(made["token"])
    lasts = f"until {made['expires']}" if made["expires"] else "until it is revoked"
    said = f"Token {made['id']} of {made['owner']}, scope {made['scope']}, {lasts}"
    show(f"{said}. Store it now: it is not shown again.", err=True)


@tokens_app.command("list")
def list_command(every: Every = False, as_json: AsJson = False, socket: Socket = "") -> None:
    """List tokens, oldest first, without their secrets."""
    with exit_codes():
        document = connect(socket).get("/tokens", all=every or None)
    if as_json:
        typer.echo(json.dumps(document))
        return
    from mirage.cli.tables import print_table

    head = ("ID", "OWNER", "SCOPE", "EXPIRES", "USED", "LABEL")
    rows = [
        (
            each["id"],
            each["owner"],
            each["scope"],
            each["expires"] or "never",
            each["used"] or "never",
            each["label"],
        )
        for each in document["tokens"]
    ]
    print_table([head, *rows])


@tokens_app.command("revoke")
def revoke_command(token_id: Id, as_json: AsJson = False, socket: Socket = "") -> None:
    """Revoke a token and the browser sessions that it opened."""
    with exit_codes():
        gone = connect(socket).transport.ask("DELETE", f"/tokens/{quote(token_id, safe='')}")
    show(json.dumps(gone) if as_json else f"token {gone['id']} of {gone['owner']} is revoked")


@tokens_app.command("link")
def link_command(as_json: AsJson = False, socket: Socket = "") -> None:
    """Print a link that logs a browser in as you; it works once, within ten minutes."""
    made = _link(socket)
    show(json.dumps(made) if as_json else made["url"])


def web_command(*, only_print: Print = False, as_json: AsJson = False, socket: Socket = "") -> None:
    """Open the web UI in your browser, logged in as you; without a display, print the link.

    The link works once, within ten minutes.
    """
    made = _link(socket)
    show(json.dumps(made) if as_json else made["url"])
    if not (only_print or as_json) and sys.stdout.isatty() and any(map(os.environ.get, _DISPLAYS)):
        typer.launch(made["url"])


def _link(socket: str) -> dict[str, Any]:
    with exit_codes():
        made: dict[str, Any] = connect(socket).post("/tokens/link")
    return made


def _seconds(text: str) -> int:
    from mirage.domain.errors import BadSpelling
    from mirage.slurm.duration import parse_human

    try:
        return 0 if text in ("0", "never") else parse_human(text)
    except BadSpelling as error:
        raise typer.BadParameter(
            f"{error}; for a token that never expires, give never", param_hint="--expires"
        ) from None
