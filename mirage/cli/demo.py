"""``mirage demo``: a daemon on a simulated cluster, with chains and the web UI; or the report of a replay.

The environment is one process and one temporary directory.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import socket
import sys
import tempfile
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mirage.cli.arguments import finite
from mirage.domain.bounds import HIGHEST_SEED
from mirage.domain.chain import Chain, ChainId, DoneCondition, HandoverPolicy, HandoverSettings, Steering
from mirage.domain.errors import ConfigError
from mirage.domain.job import BatchScript, JobRequest, WarnSignal
from mirage.domain.objective import Objective, ObjectiveKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from mirage.bootstrap.service import DaemonService
    from mirage.config.loading import Loaded
    from mirage.config.model import Config
    from mirage.control.leader_election import Tenure

_HOUR = 3_600
_FOR_EVER = DoneCondition(exit_code=None)


def demo_chains(owner: str, directory: str) -> Iterator[Chain]:
    """Typical chains of a user on a cluster of 22 GPU and 4 NPU nodes."""

    def request(name: str, partition: str, nodes: int, hours: int, gres: tuple[str, int]) -> JobRequest:
        batch = BatchScript(f"#!/bin/bash\nsrun {name}\n", directory=directory)
        return JobRequest(
            name,
            owner,
            hours * _HOUR,
            nodes,
            partition=partition,
            gres_per_node=(gres,),
            exclusive=True,
            batch=batch,
        )

    def chain(request: JobRequest, **wanted: object) -> Chain:
        """Return the chain that ``mirage submit`` creates by default."""
        wanted = {"steering": Steering.AUTO} | wanted
        return Chain(ChainId(request.name), request.name, owner, request, _FOR_EVER, **wanted)  # type: ignore[arg-type]

    gpus, npus = ("gpu:a100", 4), ("npu", 8)
    training = request("train-llm", "gpu", 1, 24, gpus)
    serving = request("chat-service", "gpu", 1, 24, gpus)
    yield chain(request("protein-folding", "npu", 2, 8, npus))
    yield chain(replace(training, warn=WarnSignal("USR1", 120, batch_only=True)))  # saves before its time limit
    yield chain(  # two servers overlap, so that one always replies
        serving,
        handover=HandoverSettings(HandoverPolicy.WHEN_READY, WarnSignal("TERM", 60), max_overlap=_HOUR // 2),
        aim=Objective(ObjectiveKind.NO_INTERRUPTION, 0.9),
    )
    for each in (training, serving):  # the same without Mirage
        yield chain(replace(each, name=f"{each.name}-by-hand"), steering=Steering.OFF, predictor="reactive")
    yield chain(  # too large: Slurm rejects it, and Mirage pauses it
        request("far-too-large", "gpu", 40, 12, gpus)
    )


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
class DemoEnvironment:
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
        from mirage.bootstrap.cluster import own_user

        level = "info" if self.verbose else "error"
        return demo_configuration(folder, own_user(), _port(self.port), self.rate, self.seed, level)

    def _build(self, config: Config, alive: Callable[[], None], tenure: Tenure) -> DaemonService:
        """Return the daemon's service with job history and the demo's chains."""
        from mirage.api.access.caller import Scope
        from mirage.bootstrap.assembly import build
        from mirage.bootstrap.cluster import own_user

        service = build(config, alive, tenure)
        begin_demo(service, demo_chains(own_user(), str(Path(config.service.state).parent)))
        assert service.interface is not None
        _announce(service.interface.login_link(own_user(), Scope.ADMIN), config, self.rate)
        return service


def demo_configuration(folder: str, user: str, port: int, rate: float, seed: int, level: str) -> str:
    """Return the demo's configuration file; ``rate``: simulated seconds per second, ``folder``: its directory."""
    interval = max(60, round(rate))
    return _CONFIGURATION.format(
        folder=folder, user=user, port=port, rate=rate, seed=seed, level=level, interval=interval
    )


def begin_demo(service: DaemonService, chains: Iterable[Chain]) -> None:
    """Give the service the job history of its simulated cluster, and request ``chains``."""
    from mirage.daemon.history import started_jobs
    from mirage.domain.command import AddChain

    assert service.lore.jobs is not None, "a simulated cluster knows its past"
    service.store.waits.add(started_jobs(service.lore.jobs.jobs(_HISTORY)))
    for chain in chains:
        service.commands.put(AddChain(chain, chain.owner))


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
        from mirage.bootstrap.compiling_apart import prepare_cache
        from mirage.bootstrap.simulated import compile_simulator

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


Port = Annotated[
    int,
    typer.Option(min=0, max=65_535, help="Port of the web UI on localhost; 0: 8642, or any free port."),
]
Rate = Annotated[
    float, typer.Option(min=1.0, max=3_600.0, callback=finite, help="Speed: simulated seconds per second.")
]
Seed = Annotated[
    int | None,
    typer.Option(min=0, max=HIGHEST_SEED, help="Random seed of the workload (default 10; with --report 1)."),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Log what the daemon does.")]
Prepare = Annotated[
    bool, typer.Option("--prepare", help="Compile the code of demo, tasks and requests once, and exit.")
]
Report = Annotated[
    bool, typer.Option("--report", help="Replay ten generated days and write a report instead of the demo.")
]
Out = Annotated[str, typer.Option("-o", "--output", metavar="DIR", help="Directory of the report.")]

DAY = 86_400
POLICIES = "reactive,fixed:6h,average,quantile,slurm,oracle"
RATE = 720.0
"""One hour takes five seconds, a link of one day two minutes."""
SEED = 10
"""A workload whose queue is empty at the start of the demo and hours long later."""


def demo_command(
    *,
    port: Port = 0,
    rate: Rate = RATE,
    seed: Seed = None,
    verbose: Verbose = False,
    prepare: Prepare = False,
    report: Report = False,
    out: Out = "demo-out",
) -> None:
    """Run Mirage on a simulated cluster and watch it in the browser.

    Daemon, cluster, background load, six chains and the web UI run in this process. Nothing remains after its end.
    """
    if report:
        _write_report(out, 1 if seed is None else seed)
        return

    if prepare:
        from mirage.bootstrap.compiling_allocation import compile_pool, compile_requests

        prepare_simulator()
        compile_pool()
        compile_requests()
        return
    from mirage.daemon.process import leave

    seed = SEED if seed is None else seed
    leave(DemoEnvironment(port=port, rate=rate, seed=seed, verbose=verbose).run())


def _write_report(out: str, seed: int) -> None:
    """Generate ten busy days of a small GPU cluster, replay chains of two links on them, write the report."""
    from pathlib import Path

    from mirage.cli.replay import replay_command
    from mirage.trace.generator import generate

    Path(out).mkdir(parents=True, exist_ok=True)
    first = int(generate("demo", seed).submit[0])
    report = Path(out, "report.html")
    typer.echo(f"Replaying ten generated days of 16 GPU nodes (seed {seed}): 19 episodes for each predictor ...")
    replay_command(
        f"generated:demo:{seed}",
        cluster="demo",
        predictor=POLICIES,
        limit="24h",
        start=str(first + 3 * DAY),
        end=str(first + 6 * DAY),
        html_out=str(report),
        output=str(Path(out, "replay.json")),
        seed=seed,
    )
    typer.echo(f"Report: {report.resolve().as_uri()}")
