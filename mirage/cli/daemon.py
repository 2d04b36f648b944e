"""``mirage daemon``: keeps the chains running."""

from __future__ import annotations

from typing import Annotated

import typer

ConfigFile = Annotated[
    str, typer.Option("--config", metavar="FILE", help="The configuration; /etc/mirage/mirage.toml for root.")
]
Once = Annotated[bool, typer.Option("--once", help="One cycle, then end.")]


def daemon_command(config: ConfigFile = "", once: Once = False) -> None:
    """Watch the cluster, decide and submit, until told to end (SIGTERM).

    SIGHUP (systemctl reload) reads the configuration again. The sections loop, predictors, limits, log and
    store.retention take effect at once. The log names the changed keys that need a restart.
    """
    from pathlib import Path

    from mirage.bootstrap.assembly import build
    from mirage.config.loading import load_config
    from mirage.daemon.process import leave, run_daemon

    file = Path(config) if config else None
    leave(run_daemon(lambda: load_config(file), build, once=once))
