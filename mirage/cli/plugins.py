"""``mirage plugins``: list installed predictors."""

from __future__ import annotations

import json

import typer

from mirage.cli.asking import AsJson


def plugins_command(as_json: AsJson = False) -> None:
    """List the installed predictors, as --predictor takes them."""
    from mirage.predictors.naming import LOOKAHEAD
    from mirage.predictors.registry import predictor_names

    names = (*predictor_names(), LOOKAHEAD)
    typer.echo(json.dumps({"predictors": list(names)}) if as_json else "\n".join(names))
