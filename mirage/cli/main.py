"""The ``mirage`` command: one module a command; heavy layers are imported when a command runs."""

from __future__ import annotations

import os
import sys
from typing import Any

import typer

from mirage import __version__
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

_OF_SBATCH: dict[str, Any] = {
    "add_help_option": False,
    "context_settings": {
        "allow_extra_args": True,
        "ignore_unknown_options": True,
        "allow_interspersed_args": False,
    },
}
"""Of commands that read their command line by sbatch's rules."""
app = typer.Typer(
    name="mirage",
    help="Proactive provisioning for Slurm: keeps services longer than the walltime limit running.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command("demo", cls=OutputCommand)(demo_command)
app.command("daemon")(daemon_command)
app.add_typer(config_app, name="config")
app.add_typer(db_app, name="db")
app.command("doctor")(doctor_command)
app.command("submit", **_OF_SBATCH)(submit_command)
app.command("chains")(chains_command)
app.add_typer(chain_app, name="chain")
app.command("explain")(explain_command)
app.command("queue")(queue_command)
app.command("predict", **_OF_SBATCH)(predict_command)
app.add_typer(protected_app, name="protected")
app.add_typer(tokens_app, name="tokens")
app.command("web")(web_command)
app.command("status")(status_command)
app.command("agent")(agent_command)
app.command("replay", cls=JsonFlagCommand)(replay_command)
app.add_typer(allocation_app, name="allocation")
app.command("simulate", cls=JsonFlagCommand)(simulate_command)
app.add_typer(trace_app, name="trace")
app.command("train", cls=OutputCommand)(train_command)
app.add_typer(models_app, name="models")
app.add_typer(evaluate_app, name="evaluate")
app.command("plugins")(plugins_command)
app.command("bench")(bench_command)
app.command("version")(version_command)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"mirage {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Show the version."
    ),
) -> None:
    """Proactive provisioning for Slurm: keeps services longer than the walltime limit running."""


def main() -> None:
    """Run the command line; an error that has a name is one line on stderr and exit code 1, or 2 for usage."""
    open_streams()
    try:
        app()
    except (MirageError, ClientError) as error:
        show_error(error)
        sys.exit(exit_status(error))
    except BrokenPipeError:  # the reader of a pipe left, for example ``| head``
        sys.stderr.close()
        sys.exit(1)
    except OSError as error:
        if not isinstance(error.filename, str | bytes):  # no file that the user could do something about
            raise
        show_error(ConfigError(os.fsdecode(error.filename), str(error.strerror)))
        sys.exit(1)
