"""``mirage version``: versions of the command and of the daemon."""

from __future__ import annotations

import json
import platform

import typer

from mirage import __version__
from mirage.cli.asking import AsJson, Socket
from mirage.cli.connection import connect
from mirage.cli.printing import show


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
