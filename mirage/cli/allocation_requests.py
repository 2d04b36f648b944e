"""``mirage allocation requests``: inference requests on devices of several kinds, one module per command."""

from __future__ import annotations

import typer

from mirage.cli.oldoptions import JsonFlagCommand, OutputCommand
from mirage.cli.requests_replay import request_replay_command
from mirage.cli.requests_train import train_requests_command

requests_app = typer.Typer(
    no_args_is_help=True, help="Simulate inference requests on devices of several kinds, and train agents."
)
requests_app.command("replay", cls=JsonFlagCommand)(request_replay_command)
requests_app.command("train", cls=OutputCommand)(train_requests_command)
