"""The worker process of a unit: ``python -m mirage.allocation.inference.serving.worker``.

It connects to its gateway, which authenticates and names the models. The worker loads them, warms them up, reports
the time of a request of each model, and answers requests. It exits when the connection ends.
"""

from __future__ import annotations

import os
import socket
import sys
from typing import TYPE_CHECKING, Any

from mirage.allocation.inference.serving import addressbook
from mirage.allocation.inference.serving.worker_connections import receive, send

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirage.allocation.inference.serving.serverwatch import ServerWatch

_CONNECT = 30.0
_GREETING = 1 << 16


class NotOurs(Exception):
    """The server there is not the gateway that has started this worker."""


def main() -> int:
    """Run the worker; exit code 0 when the gateway has closed the connection."""
    try:
        connection, setup = connect(os.environ)
    except (KeyError, OSError, EOFError, NotOurs) as error:
        sys.stderr.write(f"no gateway: {type(error).__name__}: {error}\n")
        return 1
    with connection:
        try:
            serve(connection, setup)
        except (EOFError, ConnectionError):
            return 0
    return 0


def connect(environment: Mapping[str, str]) -> tuple[socket.socket, dict[str, Any]]:
    """The connection, and the models to load. Raises ``NotOurs``."""
    host, _, port = environment[addressbook.GATE].rpartition(":")
    secret, name = environment[addressbook.SECRET], environment[addressbook.NAME]
    connection = socket.create_connection((host, int(port)), _CONNECT)
    try:
        setup = _greet(connection, secret, name)
    except BaseException:
        connection.close()
        raise
    connection.settimeout(None)
    return connection, setup


def serve(connection: socket.socket, setup: dict[str, Any]) -> None:
    """Load, report, answer. Raises ``EOFError`` when the gateway has disconnected."""
    if any("backend" in model for model in setup["models"]):
        from mirage.allocation.inference.serving.serverwatch import ServerWatch

        with ServerWatch(connection, setup) as watch:
            _serve_server(connection, watch)
        return
    from mirage.allocation.inference.serving.networks import Networks

    networks = Networks(setup)
    send(connection, {"ready": networks.signatures()})
    while True:
        header, data = receive(connection)
        if "model" in header:
            answer, parts = networks.run(header, data)
            send(connection, answer, *parts)


def _greet(connection: socket.socket, secret: str, name: str) -> dict[str, Any]:
    """Authenticate to the gateway, and verify its proof."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    challenge, mine = receive(connection, _GREETING)[0], addressbook.fresh()
    answer = addressbook.prove(secret, "worker", str(challenge.get("challenge")))
    send(connection, {"unit": name, "proof": answer, "challenge": mine})
    setup, _ = receive(connection, _GREETING)
    if not addressbook.proves(secret, "gateway", mine, setup.get("proof")):
        raise NotOurs("the server there could not prove that it is our gateway")
    return setup


def _serve_server(connection: socket.socket, watch: ServerWatch) -> None:
    watch.wait_until_ready()
    send(connection, {"ready": watch.signatures()})
    while True:
        header, data = receive(connection)
        watch.take(header, data)


if __name__ == "__main__":
    sys.exit(main())
