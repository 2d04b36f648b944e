"""``mirage allocation serve``, ``front`` and ``load``: gateway to models, reverse proxy, load client."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from mirage.atomic_file import read_regular
from mirage.cli.arguments import finite
from mirage.cli.shared_options import AsJson, Devices, EngineName
from mirage.domain.bounds import HIGHEST_COUNT, HIGHEST_SEED, YEAR
from mirage.domain.errors import ConfigError

KEY_VARIABLE = "MIRAGE_SERVING_KEY"


Url = Annotated[str, typer.Argument(metavar="URL", help="URL of the gateway, such as http://127.0.0.1:8800.")]
Model = Annotated[str, typer.Option(metavar="NAME", help="Name of the model.")]
Rate = Annotated[
    float,
    typer.Option(
        min=0.01, max=100_000, callback=finite, help="Mean number of requests per second, at random times."
    ),
]
Seconds = Annotated[
    float, typer.Option(min=0.1, max=86_400, callback=finite, help="Duration of the test in seconds.")
]
Deadline = Annotated[
    float | None,
    typer.Option(
        min=0.001, max=HIGHEST_COUNT, callback=finite, help="Deadline in milliseconds after a request is due."
    ),
]
KeyFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help=f"File with the API key (default: ${KEY_VARIABLE}).")
]
Seed = Annotated[int, typer.Option(min=0, max=HIGHEST_SEED, help="Random seed of the request arrival times.")]


def load_command(  # noqa: PLR0913 (one parameter for each option of the command line)
    url: Url,
    *,
    model: Model,
    rate: Rate = 100.0,
    seconds: Seconds = 10.0,
    deadline_ms: Deadline = None,
    key_file: KeyFile = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Send requests to a gateway at a constant mean rate, independent of replies, and print its latency."""
    import asyncio

    from mirage.allocation.inference.serving.load_client import LoadPlan, drive, fine_loop, summarize

    plan = LoadPlan(url, _key(key_file), model, rate, seconds, deadline_ms, seed)
    with asyncio.Runner(loop_factory=fine_loop) as runner:
        try:
            document = summarize(plan, runner.run(drive(plan)))
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="URL") from error
    typer.echo(json.dumps(document)) if as_json else _show(document)


def _key(path: Path | None) -> str:
    if path is None:
        key = os.environ.get(KEY_VARIABLE, "")
        if not key:
            raise ConfigError("--key-file", f"no API key; give its file, or set ${KEY_VARIABLE}")
        return key
    try:
        return read_regular(path).decode("utf-8").split()[0]
    except (OSError, IndexError) as error:
        raise ConfigError(str(path), "cannot read an API key from this file") from error


def _show(document: dict[str, Any]) -> None:
    from mirage.cli.tables import print_table

    statuses = ", ".join(f"{count} x {status}" for status, count in document["statuses"].items())
    typer.echo(f"{document['requests']} requests at {document['rate']:g} per second: {statuses or 'none'}")
    if document["kept"] is not None:
        typer.echo(f"replies within the deadline: {document['kept']:.2%}")
    names = ("latency_ms", "served_ms", "queued_ms", "lag_ms", "added_ms", "overhead_ms")
    quantiles = list(document["latency_ms"])
    rows = [("MILLISECONDS", *quantiles)]
    rows += [(name.removesuffix("_ms"), *(f"{document[name][q]:.2f}" for q in quantiles)) for name in names]
    print_table(rows)


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

    from mirage.allocation.inference.serving.addressbook import GatewayStateFolder
    from mirage.allocation.inference.serving.front import Front
    from mirage.allocation.inference.serving.httpserver import HttpListenAddress, allow_connections, make_server
    from mirage.allocation.inference.serving.plan import address_of
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
    state = GatewayStateFolder(folder)
    state.check()
    allow_connections()
    listening = HttpListenAddress(host, port, certificate, certificate_key)
    server = make_server(Front(state, patience, largest_body_mb << 20), listening)
    bound = listening.bind()
    typer.echo(f"listens on {listening.url(bound)}", err=True)

    async def serve() -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, setattr, server, "should_exit", True)
        await serve_bounded(server, bound)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve())


Config = Annotated[
    Path, typer.Argument(metavar="CONFIG.toml", help="Configuration of models, devices and tenants.")
]


def serve_command(config: Config, *, engine: EngineName = "", devices: Devices = None) -> None:
    """Run a gateway for inference requests until the allocation ends or a successor takes over.

    After a signal (SIGTERM, Ctrl-C) it serves the waiting requests and exits. A second signal exits immediately.
    """
    import asyncio
    import socket

    import uvloop

    from mirage.allocation.engine.run import Wishes, find_place
    from mirage.allocation.inference.registry import request_policy
    from mirage.allocation.inference.serving.configfile import read_config
    from mirage.allocation.inference.serving.httpserver import allow_connections
    from mirage.allocation.inference.serving.run import RunningGateway

    if engine not in ("", "srun", "processes"):
        problem = f"invalid value {engine!r} (choose from srun, processes)"
        raise typer.BadParameter(problem, param_hint="--engine")
    plan = read_config(config)
    allow_connections()
    on_devices = any(unit.device for unit in plan.units)
    in_job = engine == "srun" or (not engine and os.environ.get("SLURM_JOB_ID", "").isdecimal())
    counted = devices if in_job or on_devices or devices is not None else 0
    place = find_place(Wishes(plan.gateway.state, engine, counted, None), os.environ)
    here = os.environ.get("SLURMD_NODENAME", "") if in_job else socket.gethostname()
    policy = request_policy(plan.gateway.policy)

    async def run() -> int:
        return await RunningGateway(plan, place, policy, here, _say).run()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        code = runner.run(run())
    raise SystemExit(code)


def _say(text: str) -> None:
    typer.echo(f"{time.strftime('%Y-%m-%dT%H:%M:%S')} {text}", err=True)
