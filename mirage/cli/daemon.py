"""``mirage daemon``: the process that decides and submits."""

from __future__ import annotations

from typing import Annotated

import typer

ConfigFile = Annotated[
    str,
    typer.Option(
        "--config", metavar="FILE", help="Configuration file (default for root: /etc/mirage/mirage.toml)."
    ),
]
Once = Annotated[bool, typer.Option("--once", help="Run one cycle and exit.")]


def daemon_command(config: ConfigFile = "", once: Once = False) -> None:
    """Run the daemon in the foreground. SIGTERM stops it, SIGHUP reloads the configuration.

    After a reload (systemctl reload) the sections loop, predictors, limits, log and store.retention take effect
    immediately. The log names the changed keys that need a restart.
    """
    from pathlib import Path

    from mirage.bootstrap.assembly import build
    from mirage.config.loading import load_config
    from mirage.daemon.process import leave, run_daemon

    file = Path(config) if config else None
    leave(run_daemon(lambda: load_config(file), build, once=once))
