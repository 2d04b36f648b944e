"""``mirage models shadow``: compare shadow predictors on real handovers; also the check of promotions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mirage.cli.arguments import UsageError, duration_of
from mirage.cli.connection import connect, exit_codes
from mirage.cli.daemon import configured
from mirage.cli.printing import show, show_table
from mirage.cli.shared_options import AsJson, Socket
from mirage.client.predictors import ShadowResult, ShadowResults
from mirage.client.records import read, read_all

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from mirage.config.model import Config
    from mirage.predictors.model_manifest import ModelManifest
    from mirage.replay.shadows import ShadowScore

FilesOf = Annotated[
    str,
    typer.Option(
        "--config", metavar="FILE", help="Configuration of a daemon; its files are read without the daemon."
    ),
]
Since = Annotated[str, typer.Option(metavar="TIME", help="Period of past handovers, such as 7d.")]

_SPAN = "30d"
_EXPLAINED = (
    "Errors: forecasts at the real submissions, compared with the real starts. Would-be handovers: a successor "
    "submitted when the predictor first decided to submit, with the median wait of the jobs of the same class "
    "submitted nearest to that time. Gain: lower cost than the active predictor, by the same estimate."
)


def shadow_command(
    *, socket: Socket = "", config: FilesOf = "", since: Since = _SPAN, as_json: AsJson = False
) -> None:
    """Compare shadow predictors with the active one, on the daemon's past handovers.

    --config reads the daemon's database without the daemon.
    """
    if socket and config:
        raise UsageError("--socket", "not valid with --config, which reads files without a daemon")
    found = _measured(config, since) if config else _asked(socket, since)
    if as_json:
        typer.echo(json.dumps({"predictors": found}, indent=1))
    elif found:
        show_table(_table(read_all(ShadowResult, found)))
        show(_EXPLAINED)
    else:
        show(f"no predictions for handovers of the last {since}; add predictors to loop.shadows to compare them")


def _asked(socket: str, since: str) -> list[dict[str, Any]]:
    """Ask the daemon. Raises ``UsageError`` for a longer period than it offers."""
    from mirage.replay.shadows import SPAN

    span = duration_of("--since", since)
    if span > SPAN:
        problem = f"at most {_SPAN} with a daemon; for a longer period give --config FILE"
        raise UsageError("--since", problem)
    with exit_codes(lambda: "without a daemon, give --config FILE"):
        document = connect(socket).get("/predictors/shadow", span=span)
        read(ShadowResults, document)
    found: list[dict[str, Any]] = document["predictors"]
    return found


def _measured(config: str, since: str) -> list[dict[str, Any]]:
    """Compute the results from the daemon's database."""
    from mirage.api.routes.predictors import shadow_result

    found = measurements(configured(config), since)
    return [shadow_result(each).model_dump(mode="json") for each in found]


def objection(manifest: ModelManifest, config: Config) -> str:
    """Return why its shadow results speak against promoting this model; else an empty text."""
    from mirage.replay.shadows import objection_to

    return objection_to(manifest, measurements(config, _SPAN))


def measurements(config: Config, since: str) -> tuple[ShadowScore, ...]:
    """Measure every predictor on the handovers of a daemon; nothing if it has no database yet."""
    from mirage.control.clocks import WallClock, read_clock
    from mirage.domain.objective import Weights
    from mirage.replay.shadows import shadow_results
    from mirage.store.location import locate
    from mirage.store.opening import open_store

    url, span = config.store.url, duration_of("--since", since)
    if locate(url).is_missing():
        return ()
    clock = read_clock(Path(config.cluster.clock)) if config.cluster.clock else WallClock()
    store = open_store(url)
    try:
        weights = Weights(config.loop.interruption_price, config.loop.overlap_price)
        return shadow_results(store, weights, clock.now() - span)
    finally:
        store.database.close()


def _table(found: Sequence[ShadowResult]) -> Table:
    from rich.table import Table
    from rich.text import Text

    from mirage.domain.texts import printable

    table = Table(title="hours; * active", padding=(0, 0))
    table.add_column("predictor", overflow="fold", min_width=16)
    table.add_column("partition", overflow="fold")
    for heading in ("forecasts", "|error|", "pinball", "P10-P90", "would-be", "interr.", "overlap", "gain"):
        table.add_column(heading, justify="right")
    for each in found:
        table.add_row(
            Text(printable(f"{each.predictor} *" if each.in_charge else each.predictor)),
            Text(printable(each.partition)),
            str(each.forecasts),
            *(_number(value) for value in (each.absolute_error, each.pinball)),
            "" if each.coverage is None else f"{each.coverage:.0%}",
            str(each.handovers),
            *(_number(value) for value in (each.interruption, each.overlap)),
            _number(each.gain, each.gain_error),
        )
    return table


def _number(value: float | None, error: float | None = None) -> str:
    if value is None:
        return ""
    return f"{value:.2f}" if error is None else f"{value:.2f} +-{error:.2f}"
