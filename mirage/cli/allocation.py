"""``mirage allocation``: commands inside an allocation, one module per command."""

from __future__ import annotations

import typer

from mirage.cli.allocation_costs import costs_app
from mirage.cli.allocation_front import front_command
from mirage.cli.allocation_load import load_command
from mirage.cli.allocation_pack import pack_command
from mirage.cli.allocation_replay import task_replay_command
from mirage.cli.allocation_requests import requests_app
from mirage.cli.allocation_run import check_command, run_command, status_command
from mirage.cli.allocation_serve import serve_command
from mirage.cli.allocation_speeds import speeds_command
from mirage.cli.allocation_train import train_agents_command
from mirage.cli.oldoptions import JsonFlagCommand, OutputCommand

allocation_app = typer.Typer(
    no_args_is_help=True, help="Run tasks and serve models inside an allocation, and simulate both."
)
allocation_app.command("replay", cls=JsonFlagCommand)(task_replay_command)
allocation_app.command("train", cls=OutputCommand)(train_agents_command)
allocation_app.command("pack", cls=JsonFlagCommand)(pack_command)
allocation_app.command("run")(run_command)
allocation_app.command("check")(check_command)
allocation_app.command("status")(status_command)
allocation_app.command("serve")(serve_command)
allocation_app.command("front")(front_command)
allocation_app.command("load")(load_command)
allocation_app.add_typer(requests_app, name="requests")
allocation_app.add_typer(costs_app, name="costs")
allocation_app.command("speeds", cls=OutputCommand)(speeds_command)
