"""``mirage chain wait``: block a script until a chain runs or has ended."""

from __future__ import annotations

import json
import time
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mirage.cli.asking import AsJson, Id, Socket
from mirage.cli.connection import connect, exit_codes
from mirage.cli.printing import show
from mirage.cli.usage import UsageError, duration_of
from mirage.client.client import chain_path

if TYPE_CHECKING:
    from mirage.client.client import Client


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
