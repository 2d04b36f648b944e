"""``mirage allocation serve``: the gateway to models on the units of an allocation."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated

import typer

from mirage.domain.bounds import HIGHEST_FACTOR

Config = Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="Models, units and tenants.")]
EngineName = Annotated[
    str,
    typer.Option("--engine", metavar="NAME", help="srun (within a Slurm job), or processes (on this machine)."),
]
Devices = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=HIGHEST_FACTOR,
        metavar="N",
        help="Accelerators of this machine, where nvidia-smi is not to be asked.",
    ),
]


def serve_command(config: Config, *, engine: EngineName = "", devices: Devices = None) -> None:
    """Answer tenants' inference requests until the allocation ends or a successor has taken over.

    A first signal (SIGTERM, Ctrl-C) lets those that wait be answered, a second one ends it at once.
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
        raise typer.BadParameter(f"{engine!r} is neither srun nor processes", param_hint="--engine")
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
