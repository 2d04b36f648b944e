"""``mirage allocation``: what runs inside an allocation. One module a command."""

from __future__ import annotations

import typer

from mirage.cli.allocation_pack import pack_command
from mirage.cli.allocation_replay import task_replay_command
from mirage.cli.allocation_run import check_command, run_command, status_command
from mirage.cli.allocation_speeds import speeds_command
from mirage.cli.allocation_train import train_agents_command

allocation_app = typer.Typer(no_args_is_help=True, help="Run and replay the tasks inside an allocation.")
allocation_app.command("replay")(task_replay_command)
allocation_app.command("train")(train_agents_command)
allocation_app.command("pack")(pack_command)
allocation_app.command("run")(run_command)
allocation_app.command("check")(check_command)
allocation_app.command("status")(status_command)
allocation_app.command("speeds")(speeds_command)
