"""``mirage allocation requests``: tenants' requests on units of several kinds. One module a command."""

from __future__ import annotations

import typer

from mirage.cli.oldoptions import JsonFlagCommand, OutputCommand
from mirage.cli.requests_replay import request_replay_command
from mirage.cli.requests_train import train_requests_command

requests_app = typer.Typer(
    no_args_is_help=True, help="Replay and learn to answer requests on units of several kinds."
)
requests_app.command("replay", cls=JsonFlagCommand)(request_replay_command)
requests_app.command("train", cls=OutputCommand)(train_requests_command)
