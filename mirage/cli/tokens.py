"""``mirage tokens``: tokens for programs and browsers that come over the network."""

from __future__ import annotations

import json
import os
import sys
from typing import Annotated, Any
from urllib.parse import quote

import typer

from mirage.cli.arguments import parse_choice
from mirage.cli.asking import AsJson, Socket
from mirage.cli.connection import connect, exit_codes
from mirage.cli.printing import show

tokens_app = typer.Typer(help="Tokens for programs and browsers that come over the network.", no_args_is_help=True)

Label = Annotated[str, typer.Option("--label", metavar="TEXT", help="What it is for.")]
ScopeName = Annotated[
    str, typer.Option("--scope", metavar="SCOPE", help="What it allows: read, operate or admin.")
]
Lifetime = Annotated[str, typer.Option("--expires", metavar="TIME", help="Such as 12h or 90d; 0: never.")]
Owner = Annotated[str, typer.Option("--user", metavar="NAME", help="Administrators: in whose name.")]
Every = Annotated[bool, typer.Option("--all", help="Administrators: everybody's.")]
Print = Annotated[bool, typer.Option("--print", help="Print the link, and open nothing.")]
_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY")
Id = Annotated[str, typer.Argument(metavar="ID", help="As mirage tokens list shows it.")]


@tokens_app.command("create")
def create_command(
    label: Label = "",
    scope: ScopeName = "read",
    expires: Lifetime = "90d",
    user: Owner = "",
    as_json: AsJson = False,
    socket: Socket = "",
) -> None:
    """Make a token and show it, this once."""
    from mirage.api.access.scope import Scope

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
    show(f"{said}. Keep it: it is not shown again.", err=True)


@tokens_app.command("list")
def list_command(every: Every = False, as_json: AsJson = False, socket: Socket = "") -> None:
    """List tokens, oldest first; what they are is never shown again."""
    with exit_codes():
        document = connect(socket).get("/tokens", all=every or None)
    if as_json:
        typer.echo(json.dumps(document))
        return
    from mirage.cli.columns import print_table

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
    """End a token, and the browsers' sessions that it opened."""
    with exit_codes():
        gone = connect(socket).transport.ask("DELETE", f"/tokens/{quote(token_id, safe='')}")
    show(json.dumps(gone) if as_json else f"token {gone['id']} of {gone['owner']} counts no more")


@tokens_app.command("link")
def link_command(as_json: AsJson = False, socket: Socket = "") -> None:
    """Show a link that logs a browser in as you, once, within ten minutes."""
    made = _link(socket)
    show(json.dumps(made) if as_json else made["url"])


def web_command(*, only_print: Print = False, as_json: AsJson = False, socket: Socket = "") -> None:
    """Open the web page in your browser, logged in as you; where there is no display, print the link to it.

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
        raise typer.BadParameter(f"{error}; never: the token does not expire", param_hint="--expires") from None
