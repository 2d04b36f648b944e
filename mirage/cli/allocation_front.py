"""``mirage allocation front``: a reverse proxy, one stable endpoint for all gateways of a chain."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mirage.cli.arguments import finite
from mirage.domain.bounds import YEAR

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="State directory of the gateways.")]
Listen = Annotated[str, typer.Option(metavar="HOST:PORT", help="Listen address.")]
Certificate = Annotated[str, typer.Option(metavar="FILE", help="TLS certificate, PEM.")]
Key = Annotated[
    str,
    typer.Option(
        "--certificate-key", metavar="FILE", help="Private key of the certificate, if it is in a separate file."
    ),
]
Trusted = Annotated[
    bool, typer.Option("--trusted-network", help="Accept connections from other machines without TLS.")
]
Patience = Annotated[
    float,
    typer.Option(min=0.1, max=YEAR, callback=finite, metavar="SECONDS", help="Timeout for a gateway, in seconds."),
]
Largest = Annotated[
    int, typer.Option(min=1, max=1024, metavar="MIB", help="Maximum size of a request body, in MiB.")
]


def front_command(
    folder: Folder,
    *,
    listen: Listen = "127.0.0.1:8800",
    certificate: Certificate = "",
    certificate_key: Key = "",
    trusted_network: Trusted = False,
    patience: Patience = 30.0,
    largest_body_mb: Largest = 64,
) -> None:
    """Run a reverse proxy that forwards requests to the current gateway, also after a handover."""
    import asyncio
    import ipaddress
    import signal

    import uvloop

    from mirage.allocation.inference.serving.addressbook import StateFolder
    from mirage.allocation.inference.serving.front import Front
    from mirage.allocation.inference.serving.httpserver import Listening, allow_connections, make_server
    from mirage.allocation.inference.serving.listenaddress import address_of
    from mirage.tlshandshake import serve_bounded

    try:
        host, port = address_of(listen)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--listen") from error
    if not (certificate or trusted_network or ipaddress.ip_address(host).is_loopback):
        raise typer.BadParameter(
            f"other machines can reach {host}, and keys would cross the network unencrypted: give --certificate"
            " or --trusted-network",
            param_hint="--listen",
        )
    state = StateFolder(folder)
    state.check()
    allow_connections()
    listening = Listening(host, port, certificate, certificate_key)
    server = make_server(Front(state, patience, largest_body_mb << 20), listening)
    bound = listening.bind()
    typer.echo(f"listens on {listening.url(bound)}", err=True)

    async def serve() -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, setattr, server, "should_exit", True)
        await serve_bounded(server, bound)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve())
