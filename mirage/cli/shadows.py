"""``mirage models shadow``: what predictors in shadow would have made of the hand-overs; promotions' gate."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mirage.cli.asking import AsJson, ConfigFile
from mirage.cli.daemonaccount import configured
from mirage.cli.printing import table_console
from mirage.cli.usage import duration_of

if TYPE_CHECKING:
    from rich.table import Table

    from mirage.config.model import Config
    from mirage.predictors.artifacts.manifest import Manifest
    from mirage.replay.shadows import Measured

Since = Annotated[str, typer.Option(help="How far back hand-overs count, such as 30d.")]

_SPAN = "30d"
_EXPLAINED = (
    "Errors: forecasts as links were really submitted, against their real starts. Would-be hand-overs: from when "
    "each first said submit, started after the median wait of jobs of the same class submitted nearest to that; "
    "gain: by how much they cost less than those of the predictor in charge by the same estimate."
)


def shadow_command(*, config: ConfigFile = "", since: Since = _SPAN, as_json: AsJson = False) -> None:
    """Compare the predictors in shadow with the one in charge, on the daemon's own hand-overs."""
    found = measurements(configured(config), since)
    if as_json:
        typer.echo(json.dumps({"predictors": [_document(each) for each in found]}, indent=1))
    elif found:
        table_console().print(_table(found))
        typer.echo(_EXPLAINED)
    else:
        typer.echo(f"no hand-over of the last {since} was foreseen; loop.shadows names predictors to compare")


def objection(manifest: Manifest, config: Config) -> str:
    """Why this model had better not be put in use, as measured in shadow; empty: nothing speaks against it."""
    from mirage.replay.promotion import objection_to

    return objection_to(manifest, measurements(config, _SPAN))


def measurements(config: Config, since: str) -> tuple[Measured, ...]:
    """Every predictor on the hand-overs of the daemon so configured; none where it has no store yet."""
    from mirage.control.wallclock import WallClock, read_clock
    from mirage.domain.objective import Weights
    from mirage.replay.watched import shadow_results
    from mirage.store.opening import open_store

    url, span = config.store.url, duration_of("--since", since)
    if url.startswith("sqlite:///") and not Path(url.removeprefix("sqlite:///")).exists():
        return ()
    clock = read_clock(Path(config.cluster.clock)) if config.cluster.clock else WallClock()
    store = open_store(url)
    try:
        weights = Weights(config.loop.interruption_price, config.loop.overlap_price)
        return shadow_results(store, weights, clock.now() - span)
    finally:
        store.database.close()


def _document(each: Measured) -> dict[str, object]:
    """Numbers that are not known are null."""
    return {
        name: None if isinstance(value, float) and math.isnan(value) else value
        for name, value in asdict(each).items()
    }


def _table(found: tuple[Measured, ...]) -> Table:
    from rich.table import Table

    table = Table(title="hours; * in charge", padding=(0, 0))
    table.add_column("predictor", overflow="fold", min_width=16)
    table.add_column("partition", overflow="fold")
    for heading in ("foreseen", "|error|", "pinball", "P10-P90", "would-be", "gap", "overlap", "gain"):
        table.add_column(heading, justify="right")
    for each in found:
        table.add_row(
            f"{each.predictor} *" if each.in_charge else each.predictor,
            each.partition,
            str(each.forecasts),
            *(_number(value) for value in (each.absolute_error, each.pinball)),
            "" if math.isnan(each.coverage) else f"{each.coverage:.0%}",
            str(each.handovers),
            *(_number(value) for value in (each.interruption, each.overlap)),
            _number(each.gain, each.gain_error),
        )
    return table


def _number(value: float, error: float = math.nan) -> str:
    if math.isnan(value):
        return ""
    return f"{value:.2f}" if math.isnan(error) else f"{value:.2f} +-{error:.2f}"
