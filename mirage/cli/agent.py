"""``mirage agent``: fetches orders from a daemon that acts by agents, and executes them as its own user."""

from __future__ import annotations

import json
import os
import pwd
import time
from typing import TYPE_CHECKING, Annotated

import typer

from mirage.cli.connection import connect, exit_codes
from mirage.client.errors import DaemonUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirage.backends.acting.orders import Answer, Order
    from mirage.client.client import Client

Once = Annotated[bool, typer.Option("--once", help="Execute what is waiting, then end.")]
Socket = Annotated[str, typer.Option("--socket", metavar="FILE", help="The daemon's socket.")]

_WAIT = 30
_SPARE = 30.0
"""Seconds that an answer may take beyond the wait that was asked for."""

_AGAIN = 10.0
"""Seconds after which a daemon that went away is looked for again."""


def agent_command(once: Once = False, socket: Socket = "") -> None:
    """Submit and cancel your links when the daemon says so; runs until it is ended.

    Keep it running where your jobs can be submitted from: on a login node, or in the job itself.
    """
    from mirage.backends.acting.executor import execute
    from mirage.backends.acting.own import own_links
    from mirage.backends.execution import Commands

    user = pwd.getpwuid(os.getuid()).pw_name
    actuator = own_links(Commands(os.environ), user)
    client = connect(socket)
    with exit_codes():
        _serve(client, lambda order: execute(order, actuator), once=once)


def _serve(client: Client, carry_out: Callable[[Order], Answer], *, once: bool) -> None:
    """Raises ``DaemonUnreachable`` where the daemon has never answered; one that goes away later may come back."""
    met = False
    while True:
        try:
            order = _fetch(client, 0 if once else _WAIT)
            if order is not None:
                _answer(client, order, carry_out(order))
        except DaemonUnreachable as error:
            if once or not met:
                raise
            typer.echo(str(error), err=True)
            time.sleep(_AGAIN)
            continue
        if once and order is None:
            return
        if not met:
            typer.echo(f"acting by order of the daemon on {client.transport.address}")
        met = True


def _fetch(client: Client, wait: int) -> Order | None:
    """The next order, waiting for one for so many seconds."""
    from mirage.backends.acting.orders import Order

    document = client.transport.ask("GET", f"/agent/order?wait={wait}", timeout=wait + _SPARE)
    return None if document is None else Order.from_text(json.dumps(document))


def _answer(client: Client, order: Order, answer: Answer) -> None:
    job = f" (job {answer.job_id})" if answer.job_id else ""
    said = f": {answer.text}" if answer.text else ""
    typer.echo(f"{order.sentence}: {answer.verdict.name.lower().replace('_', ' ')}{job}{said}")
    client.transport.ask("POST", f"/agent/orders/{order.order_id}/answer", json.loads(answer.to_text()))
