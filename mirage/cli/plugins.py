"""``mirage plugins``: which predictors are installed."""

from __future__ import annotations

import json
from typing import Annotated

import typer


def plugins_command(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """List the predictors that --predictor knows."""
    from mirage.bootstrap.predictors import LOOKAHEAD
    from mirage.predictors.registry import predictor_names

    names = (*predictor_names(), LOOKAHEAD)
    typer.echo(json.dumps({"predictors": list(names)}) if as_json else "\n".join(names))
