"""The ``mirage`` command and its examples; heavy layers are imported when a command runs."""

from __future__ import annotations

import errno
import os
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from mirage import __version__
from mirage.cli.adopt import adopt_command
from mirage.cli.agent import agent_command
from mirage.cli.allocation import allocation_app
from mirage.cli.arguments import exit_status
from mirage.cli.bench import bench_command
from mirage.cli.chains import chain_app, chains_command, explain_command
from mirage.cli.daemon import config_app, cycle_command, daemon_command, doctor_command
from mirage.cli.db import db_app
from mirage.cli.demo import demo_command
from mirage.cli.evaluate import evaluate_app
from mirage.cli.install import install_app, uninstall_app
from mirage.cli.models import models_app, plugins_command
from mirage.cli.predict import predict_command
from mirage.cli.printing import open_streams, show_error
from mirage.cli.replay import replay_command, simulate_command
from mirage.cli.shared_options import JsonFlagCommand, OutputCommand
from mirage.cli.status import queue_command, status_command, version_command
from mirage.cli.submit import submit_command
from mirage.cli.tokens import protected_app, tokens_app, web_command
from mirage.cli.trace import trace_app
from mirage.cli.train import train_command
from mirage.client.errors import ClientError
from mirage.domain.errors import ConfigError, MirageError

if TYPE_CHECKING:
    from collections.abc import Callable

EXAMPLES: dict[str, tuple[tuple[str, str], ...]] = {
    "chains": (
        ("mirage chains", "list your active chains"),
        ("mirage chains -t all -S since", "list finished chains too, the newest last"),
        ("mirage chains -h -o chain,state", "for scripts: two columns without a header"),
        ("mirage chains -i 10", "repeat every 10 seconds"),
    ),
    "explain": (
        ("mirage explain train-llm", "explain the chain's state and its handovers"),
        ("mirage explain train-llm 3", "explain its third link"),
    ),
    "chain": (
        ("mirage chain show train-llm", "show settings, links and jobs"),
        ("mirage chain logs -f train-llm", "follow the output of its jobs, link after link"),
        ("mirage chain update train-llm --links 20", "extend the chain to 20 links"),
        ("mirage chain cancel train-llm", "cancel the chain and its running link"),
    ),
    "agent": (
        ("nohup mirage agent >agent.log 2>&1 &", "submit your links in your name, also after you log out"),
        ("mirage agent --once", "process waiting requests, then exit"),
    ),
    "install": (
        ("mirage install cron", "have cron process your chains each ten minutes"),
        ("mirage install user-unit", "have systemd run the daemon as you"),
        ("mirage install path", "put mirage and mbatch into ~/.local/bin"),
    ),
    "uninstall": (
        ("mirage uninstall cron", "remove the line from crontab"),
        ("mirage uninstall path", "remove the links from ~/.local/bin"),
    ),
    "cycle": (
        ("mirage cycle --every 10m", "what a line in crontab runs each ten minutes"),
        ("mirage cycle", "process your chains once, now"),
    ),
    "demo": (
        ("mirage demo", "run a daemon, a simulated cluster, six chains and the web UI"),
        ("mirage demo --rate 60 --port 8000", "one simulated hour per minute, on port 8000"),
        ("mirage demo --report", "replay ten days and write a report to demo-out"),
    ),
    "models": (
        ("mirage models list", "list the models of the daemon and their roles"),
        ("mirage models promote xgboost-0", "use a model of mirage train after the next start of the daemon"),
        ("mirage models promote xgboost:0123456789ab", "use a registered version from the next cycle on"),
        ("mirage models list --config mirage.toml", "list the models of a daemon that is not running"),
    ),
    "doctor": (
        ("mirage doctor", "check this machine, Slurm and the configuration"),
        ("mirage doctor --config mirage.toml --json", "check another configuration file, for programs"),
    ),
}
"""By command: command lines and what they do."""


def epilog(name: str) -> str | None:
    """Return the examples below the help of a command, one per line."""
    if name not in EXAMPLES:
        return None
    width = max(len(typed) for typed, _ in EXAMPLES[name])
    lines = [f"{typed:<{width}}   {about}".replace("[", r"\[") for typed, about in EXAMPLES[name]]
    return "\n\n".join(["Examples:", *lines])


_OF_SBATCH: dict[str, Any] = {
    "add_help_option": False,
    "context_settings": {
        "allow_extra_args": True,
        "ignore_unknown_options": True,
        "allow_interspersed_args": False,
    },
}
"""Settings of commands that parse their arguments by sbatch's rules."""
_NAMES: list[str] = []
"""Names of all commands, in help order."""


class _InOrder(TyperGroup):
    """Lists commands and groups in the order of registration."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return all names."""
        return sorted(super().list_commands(ctx), key=_NAMES.index)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Name the command of ``mirage chain`` where its verb alone was typed."""
        chain = self.commands.get("chain")
        if args and args[0] not in self.commands and args[0] in getattr(chain, "commands", ()):
            ctx.fail(f"there is no command '{args[0]}'; for a chain: mirage chain {args[0]} NAME")
        return super().resolve_command(ctx, args)


app = typer.Typer(
    name="mirage",
    cls=_InOrder,
    help="Keep work running in Slurm beyond the time limit: Mirage submits each next job ahead of time.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_AS_SQUEUE: dict[str, Any] = {"context_settings": {"help_option_names": ["--help"]}}
"""Settings of commands in which ``-h`` means the same as in squeue."""


def help_command(
    words: Annotated[list[str], typer.Argument(metavar="[COMMAND]...", help="Command, such as: chain logs.")] = [],  # noqa: B006
) -> None:
    """Show the help of a command, or list all commands."""
    app([*words, "--help"], prog_name="mirage")


def _register() -> None:
    """Register every command in the panel of its readers, the most used ones first."""

    def command(name: str, panel: str, function: Callable[..., None], **more: Any) -> None:
        _NAMES.append(name)
        app.command(name, rich_help_panel=panel, epilog=epilog(name), **more)(function)

    def group(name: str, panel: str, members: typer.Typer) -> None:
        _NAMES.append(name)
        app.add_typer(members, name=name, rich_help_panel=panel, epilog=epilog(name))

    users, site, research = "Your jobs", "Site", "Research"
    command("submit", users, submit_command, **_OF_SBATCH)
    command("adopt", users, adopt_command, **_OF_SBATCH)
    command("chains", users, chains_command, **_AS_SQUEUE)
    group("chain", users, chain_app)
    command("explain", users, explain_command)
    command("status", users, status_command)
    command("queue", users, queue_command, **_AS_SQUEUE)
    command("predict", users, predict_command, **_OF_SBATCH)
    command("web", users, web_command)
    command("agent", users, agent_command)
    command("cycle", users, cycle_command)
    group("install", users, install_app)
    group("uninstall", users, uninstall_app)
    command("demo", users, demo_command, cls=OutputCommand)
    command("help", users, help_command)
    command("version", users, version_command)
    command("daemon", site, daemon_command)
    command("doctor", site, doctor_command)
    group("config", site, config_app)
    group("tokens", site, tokens_app)
    group("protected", site, protected_app)
    group("models", site, models_app)
    command("plugins", site, plugins_command)
    group("db", site, db_app)
    command("replay", research, replay_command, cls=JsonFlagCommand)
    command("simulate", research, simulate_command, cls=JsonFlagCommand)
    group("trace", research, trace_app)
    command("train", research, train_command, cls=OutputCommand)
    group("evaluate", research, evaluate_app)
    command("bench", research, bench_command)
    group("allocation", "Inside a job", allocation_app)


_register()


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"mirage {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "-V", "--version", callback=_print_version, is_eager=True, help="Print the version."
    ),
) -> None:
    """Keep work running in Slurm beyond the time limit: Mirage submits each next job ahead of time."""


def main() -> None:
    """Run the command line; a known error becomes one line on stderr and exit code 1, or 2 for usage."""
    open_streams()
    try:
        try:
            app(prog_name="mirage")
        finally:
            sys.stdout.flush()
    except (MirageError, ClientError) as error:
        show_error(error)
        sys.exit(exit_status(error))
    except BrokenPipeError:  # the reader of a pipe left, for example ``| head``
        sys.stderr.close()
        sys.exit(1)
    except OSError as error:
        if isinstance(error.filename, str | bytes):
            show_error(ConfigError(os.fsdecode(error.filename), str(error.strerror)))
        elif error.errno in _FULL:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nor can the rest be flushed
            show_error(ConfigError("standard output", str(error.strerror)))
        else:  # no file that the user could fix
            raise
        sys.exit(1)
