"""Environment of the demo: one process and one temporary directory."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import socket
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from mirage.domain.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirage.bootstrap.service import Service
    from mirage.config.loading import Loaded
    from mirage.config.model import Config
    from mirage.control.campaign import Tenure

_PREFERRED_PORT = 8_642
_HISTORY = 9 * 86_400
"""Job history of the demo's cluster in seconds: the time it has run before the daemon starts."""
_SLOW = 4.0
"""Seconds after which a message explains the wait."""

_CONFIGURATION = """
[service]
state = "{folder}/state"
runtime = "{folder}/run"

[cluster]
backend = "simulated"

[cluster.simulated]
cluster = "demo-large"
trace = "generated:demo:{seed}"
rate = {rate}

[loop]
interval = {interval}
shadows = ["quantile", "average"]

[store]
snapshot_every = 0

[api]
listen = "127.0.0.1:{port}"
admins = ["{user}"]

[log]
level = "{level}"
"""


@dataclass(frozen=True, slots=True)
class DemoWorld:
    """Settings of the demo from the command line."""

    port: int
    """0: the preferred port, or any free one."""
    rate: float
    seed: int
    verbose: bool

    def run(self) -> int:
        """Run until a signal; return the exit status. Raises ``MirageError`` if the setup fails."""
        from mirage.daemon.process import run_daemon

        _forget_variables()
        with tempfile.TemporaryDirectory(prefix="mirage-demo-", ignore_cleanup_errors=True) as folder:
            file = Path(folder, "mirage.toml")
            file.write_text(self._configuration(folder), encoding="utf-8")
            prepare_simulator()
            status = run_daemon(loading_once(file), self._build)
        typer.echo("The demo has ended; its files are deleted.", err=True)
        return status

    def _configuration(self, folder: str) -> str:
        from mirage.bootstrap.world import own_user

        return _CONFIGURATION.format(
            folder=folder,
            seed=self.seed,
            rate=self.rate,
            interval=max(60, round(self.rate)),
            port=_port(self.port),
            user=own_user(),
            level="info" if self.verbose else "error",
        )

    def _build(self, config: Config, alive: Callable[[], None], tenure: Tenure) -> Service:
        """Return the daemon's service with job history and the demo's chains."""
        from mirage.api.access.scope import Scope
        from mirage.bootstrap.assembly import build
        from mirage.bootstrap.world import own_user
        from mirage.cli.democast import demo_chains
        from mirage.daemon.history import started_jobs
        from mirage.domain.command import AddChain

        service = build(config, alive, tenure)
        assert service.lore.jobs is not None, "a simulated cluster knows its past"
        service.store.waits.add(started_jobs(service.lore.jobs.jobs(_HISTORY)))
        for chain in demo_chains(own_user(), str(Path(config.service.state).parent)):
            service.commands.put(AddChain(chain, own_user()))
        assert service.interface is not None
        _announce(service.interface.login_link(own_user(), Scope.ADMIN), config, self.rate)
        return service


def loading_once(file: Path) -> Callable[[], Loaded]:
    """Return a loader of the configuration that ends the process when it is called again, as on SIGHUP.

    A daemon outlives its terminal and reloads its configuration. A demo without a terminal is useless.
    """
    from mirage.config.loading import load_config

    begun = False

    def load() -> Loaded:
        nonlocal begun
        if begun:
            signal.raise_signal(signal.SIGTERM)
        begun = True
        return load_config(file)

    return load


def prepare_simulator() -> None:
    """Compile the parts of the simulator that the demo uses, unless that was done before."""
    said = "Preparing the simulator; on first use it is compiled, which takes about a minute ..."
    remark = threading.Timer(_SLOW, typer.echo, (said,), {"err": True})
    remark.daemon = True
    remark.start()
    try:
        from mirage.bootstrap.compiling import compile_simulator
        from mirage.bootstrap.compiling_apart import prepare_cache

        prepare_cache()
        compile_simulator()
    finally:
        remark.cancel()


def _announce(link: str, config: Config, rate: float) -> None:
    typer.echo(f"""
  Web UI:         {link}
                  (the link works once, within ten minutes; get a new one with mirage tokens link)
  Another shell:  export MIRAGE_SOCKET={config.api.socket}{_path()}
                  mirage chains        mirage explain train-llm        mirage predict -N 2 -t 12h
                  mirage submit -t 6:00:00 --links 3 --wrap 'sleep 1d'      mirage tokens link
  Speed:          one hour takes {3_600 / rate:.3g} s
  Stop:           Ctrl-C
""")
    sys.stdout.flush()


def _path() -> str:
    """Return a PATH setting for shells that do not find this program, or find another one."""
    mine = Path(sys.executable).parent
    found = shutil.which("mirage")
    if not (mine / "mirage").exists() or (found and Path(found).resolve().parent == mine.resolve()):
        return ""
    return f" PATH={shlex.quote(str(mine))}:$PATH"


def _forget_variables() -> None:
    """Delete MIRAGE_ variables of this shell: the demo has a separate configuration."""
    for name in [name for name in os.environ if name.startswith("MIRAGE_")]:
        del os.environ[name]


def _port(wanted: int) -> int:
    """Return a free port; 0: the preferred one, or any. Raises ``ConfigError``."""
    for port in (wanted,) if wanted else (_PREFERRED_PORT, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise ConfigError(f"127.0.0.1:{wanted}", "is in use; choose another --port, or omit it")
