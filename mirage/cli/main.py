"""The ``mirage`` command: one module a command; heavy layers are imported when a command runs."""

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
from mirage.cli.bench import bench_command
from mirage.cli.chains import chain_app, chains_command
from mirage.cli.config import config_app
from mirage.cli.daemon import daemon_command
from mirage.cli.db import db_app
from mirage.cli.demo import demo_command
from mirage.cli.doctor import doctor_command
from mirage.cli.evaluate import evaluate_app
from mirage.cli.examples import epilog
from mirage.cli.explain import explain_command
from mirage.cli.models import models_app
from mirage.cli.oldoptions import JsonFlagCommand, OutputCommand
from mirage.cli.plugins import plugins_command
from mirage.cli.predict import predict_command
from mirage.cli.printing import open_streams, show_error
from mirage.cli.protected import protected_app
from mirage.cli.queue import queue_command
from mirage.cli.replay import replay_command
from mirage.cli.simulate import simulate_command
from mirage.cli.status import status_command
from mirage.cli.submit import submit_command
from mirage.cli.tokens import tokens_app, web_command
from mirage.cli.trace import trace_app
from mirage.cli.train import train_command
from mirage.cli.usage import exit_status
from mirage.cli.version import version_command
from mirage.client.errors import ClientError
from mirage.domain.errors import ConfigError, MirageError

if TYPE_CHECKING:
    from collections.abc import Callable

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
