"""The command ``testbed``."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
from pathlib import Path

from onehost import cluster, services, slurmcommands
from onehost.errors import TestbedError
from onehost.layout import Layout
from onehost.processes import observe
from onehost.settings import Settings, default_directory
from onehost.waiting import wait_until
from onehost.zoo import NODES

ASSETS = Path(__file__).resolve().parents[2] / "tests" / "assets"
"""Directory of the recordings."""
FOREVER_S = 10 * 365 * 86_400.0


def main() -> int:
    """Run one command; an error is one line and exit code 1."""
    arguments = parser().parse_args()
    try:
        arguments.run(arguments, Layout(Path(arguments.dir).absolute()))
    except TestbedError as error:
        sys.stderr.write(f"testbed: {error}\n")
        return 1
    return 0


def parser() -> argparse.ArgumentParser:
    """The parser with every command and option."""
    top = argparse.ArgumentParser(prog="testbed", description="A real Slurm on this machine, with simulated GPUs.")
    commands = top.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, what: str, run: object, place: str = "") -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=what, description=what)
        directory = str(default_directory()) + place
        made.add_argument("--dir", default=directory, help="state directory (default: %(default)s)")
        made.set_defaults(run=run)
        return made

    add_start_options(command("start", "start the testbed and wait until every node is idle", run_start))
    add_start_options(command("fg", "start the testbed and run until a signal, as in a container", run_foreground))
    stop = command("stop", "cancel all jobs and stop every daemon; keep the state", run_stop)
    stop.add_argument("--when-gone", type=int, metavar="PID", help="first wait until this process has ended")
    stop.add_argument("--wipe", action="store_true", help="delete all state, too")
    command("wipe", "stop the testbed and delete all state", run_wipe)
    command("status", "show daemons, nodes and jobs", run_status)
    command("repair", "restore the state after a start: all services and nodes up, no jobs", run_repair)
    env = command("env", "print shell exports for clients: . <(testbed env)", run_env)
    env.add_argument("--plain", action="store_true", help="stay on the real clock, as the Mirage daemon does")
    service = command("service", "act on one daemon, such as slurmctld or slurmd@a100-001", run_service)
    service.add_argument("name")
    service.add_argument("action", choices=("start", "stop", "kill", "pause", "continue"))
    node = command("node", "set a node down as after a failure, or resume it", run_node)
    node.add_argument("name")
    node.add_argument("action", choices=("down", "resume"))
    token = command("token", "print a JSON Web Token for slurmrestd", run_token)
    token.add_argument("user")
    token.add_argument("--lifespan", type=int, default=86_400, metavar="S", help="lifetime in Slurm's seconds")
    about = "record the output of this Slurm about jobs of every kind"
    recording = command("capture", about, run_capture, "-capture")
    recording.add_argument(
        "--to", default=str(ASSETS), metavar="DIR", help="one directory per version in it (default: %(default)s)"
    )
    recording.add_argument("--base-port", type=int, default=27000, metavar="P", help="first port (default 27000)")
    return top


def add_start_options(command: argparse.ArgumentParser) -> None:
    """Add the options that describe a testbed."""
    given = Settings("")
    command.add_argument("--speed", type=int, default=given.speed, help="Slurm's seconds per real second")
    command.add_argument("--nodes", default=given.nodes, help="nodes of each kind (default: %(default)s)")
    command.add_argument(
        "--base-port", type=int, default=given.base_port, metavar="P", help="first port (default: %(default)s)"
    )
    command.add_argument(
        "--unprivileged", action="store_true", help="one user, no accounting; always so without root"
    )
    command.add_argument("--priority-flags", default="", metavar="FLAGS", help="such as ACCRUE_ALWAYS")
    command.add_argument("--conf-line", action="append", default=[], metavar="KEY=VALUE", help="add to slurm.conf")


def asked(arguments: argparse.Namespace, layout: Layout) -> Settings:
    """The settings on the command line."""
    return Settings(
        str(layout.directory),
        arguments.speed,
        arguments.nodes,
        arguments.base_port,
        is_privileged(arguments.unprivileged),
        arguments.priority_flags,
        tuple(arguments.conf_line),
    )


def is_privileged(unprivileged: bool) -> bool:
    """Root starts the full testbed, other users one of a single user, which root cannot run."""
    if unprivileged and os.geteuid() == 0:
        raise TestbedError("--unprivileged as root: slurmrestd rejects root; start it as an ordinary user")
    return os.geteuid() == 0


def run_capture(arguments: argparse.Namespace, layout: Layout) -> None:
    """Run ``testbed capture``."""
    from onehost.capture import capture  # imported here because it takes longer than most commands

    settings = Settings(str(layout.directory), 60, NODES, arguments.base_port, os.geteuid() == 0)
    capture(settings, Path(arguments.to).absolute(), say)


def say(line: str) -> None:
    """Report progress on standard error."""
    sys.stderr.write(line + "\n")


def run_start(arguments: argparse.Namespace, layout: Layout) -> None:
    """Run ``testbed start``."""
    cluster.start(asked(arguments, layout), say)


def run_foreground(arguments: argparse.Namespace, layout: Layout) -> None:
    """Run ``testbed fg``; reaps ended processes, as the first process of a container must."""
    wanted = {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD}
    cluster.start(asked(arguments, layout), say)
    signal.pthread_sigmask(signal.SIG_BLOCK, wanted)
    while signal.sigwait(wanted) == signal.SIGCHLD:
        reap()
    cluster.stop(layout, say)


def reap() -> None:
    """Reap every child that has ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


def run_stop(arguments: argparse.Namespace, layout: Layout) -> None:
    """Run ``testbed stop``."""
    process = observe(arguments.when_gone) if arguments.when_gone else None
    if process:
        wait_until(lambda: not process.alive(), FOREVER_S, f"the end of process {process.pid}")
    (cluster.wipe if arguments.wipe else cluster.stop)(layout, say)


def run_wipe(_arguments: argparse.Namespace, layout: Layout) -> None:
    """Run ``testbed wipe``."""
    cluster.wipe(layout, say)


def run_status(_arguments: argparse.Namespace, layout: Layout) -> None:
    """Run ``testbed status``."""
    sys.stdout.write(cluster.status(layout) + "\n")


def run_repair(_arguments: argparse.Namespace, layout: Layout) -> None:
    """Run ``testbed repair``."""
    cluster.repair(layout)


def run_env(arguments: argparse.Namespace, layout: Layout) -> None:
    """Run ``testbed env``."""
    cluster.need_running(layout)
    for key, value in cluster.environment(layout, plain=arguments.plain).items():
        sys.stdout.write(f"export {key}={shlex.quote(value)}\n")


def run_service(arguments: argparse.Namespace, layout: Layout) -> None:
    """Run ``testbed service``."""
    services.act(arguments.name, arguments.action, cluster.need_running(layout), layout)


def run_node(arguments: argparse.Namespace, layout: Layout) -> None:
    """Run ``testbed node``."""
    services.act_on_node(arguments.name, arguments.action, cluster.need_running(layout), layout)


def run_token(arguments: argparse.Namespace, layout: Layout) -> None:
    """Run ``testbed token``."""
    cluster.need_running(layout)
    sys.stdout.write(slurmcommands.token(layout, arguments.user, arguments.lifespan) + "\n")
