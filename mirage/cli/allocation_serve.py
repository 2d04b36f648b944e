"""``mirage allocation serve``: the gateway to models on the devices of an allocation."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated

import typer

from mirage.domain.bounds import HIGHEST_FACTOR

Config = Annotated[
    Path, typer.Argument(metavar="CONFIG.toml", help="Configuration of models, devices and tenants.")
]
EngineName = Annotated[
    str,
    typer.Option(
        "--engine", metavar="NAME", help="Launcher: srun (default in a Slurm job) or processes (this machine)."
    ),
]
Devices = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=HIGHEST_FACTOR,
        metavar="N",
        help="Number of devices of this machine (default: as nvidia-smi reports).",
    ),
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
    from mirage.allocation.inference.serving.run import Running

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
        return await Running(plan, place, policy, here, _say).run()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        code = runner.run(run())
    raise SystemExit(code)


def _say(text: str) -> None:
    typer.echo(f"{time.strftime('%Y-%m-%dT%H:%M:%S')} {text}", err=True)
