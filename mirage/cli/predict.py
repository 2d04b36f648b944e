"""``mirage predict``: when would such a job start?"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from mirage.cli.asking import AsJson, Socket
from mirage.cli.connection import connect, exit_codes
from mirage.cli.printing import show
from mirage.domain.bounds import MOST_NODES

if TYPE_CHECKING:
    from mirage.cli.columns import Row
    from mirage.client.documents import Forecast, PastError, Predictions

_SHOWN = 80
_NOTATIONS = "minutes (90), 1:30:00, 2-00:00:00, 2-12, UNLIMITED, or with units (48h, 1d12h)"

Partition = Annotated[str, typer.Option("-p", "--partition", metavar="PART", help="The default one if not given.")]
Nodes = Annotated[
    int, typer.Option("-N", "-n", "--nodes", metavar="N", min=1, max=MOST_NODES, help="How many nodes.")
]
Limit = Annotated[str, typer.Option("-t", "--time", metavar="LIMIT", help=f"Time limit: {_NOTATIONS}.")]
Gres = Annotated[str, typer.Option("--gres", metavar="LIST", help="Per node, such as gpu:a100:4.")]
Account = Annotated[str, typer.Option("-A", "--account", metavar="NAME", help="Charged for it.")]
Qos = Annotated[str, typer.Option("-q", "--qos", metavar="NAME", help="Its quality of service.")]
Named = Annotated[str, typer.Option("--predictor", metavar="NAME", help="Ask this one too, such as fixed:6h.")]


def predict_command(  # noqa: PLR0913 (one parameter for each option of the command line)
    *,
    partition: Partition = "",
    nodes: Nodes = 1,
    limit: Limit = "24h",
    gres: Gres = "",
    account: Account = "",
    qos: Qos = "",
    predictor: Named = "",
    as_json: AsJson = False,
    socket: Socket = "",
) -> None:
    """Say when a job like this would start if it were submitted now.

    Every predictor answers: EARLIEST is the instant before which the job starts in one case of ten (P10), LATEST
    the one before which it starts in nine of ten (P90). ERROR is how far that predictor's forecasts were off on
    average, WITHIN how often the start lay between earliest and latest (80% is right), OF how many forecasts for
    which links: those of this partition, where there are enough those of about this size and limit.
    """
    seconds = _seconds(limit)
    with exit_codes():
        document = connect(socket).get(
            "/predictions",
            partition=partition or None,
            nodes=nodes,
            limit=seconds,
            gres=gres or None,
            account=account or None,
            qos=qos or None,
            predictor=predictor or None,
        )
    if as_json:
        typer.echo(json.dumps(document))
        return
    from mirage.client.documents import Predictions
    from mirage.client.reading import read

    _show(read(Predictions, document))


def _seconds(limit: str) -> int:
    """As ``sbatch --time``, or with a unit; a bare number is minutes. Raises ``BadParameter``."""
    from mirage.domain.errors import BadSpelling
    from mirage.slurm.duration import parse, parse_human_limit

    try:
        return parse(limit) if limit.strip().isdigit() else parse_human_limit(limit)
    except BadSpelling:
        raise typer.BadParameter(f"{limit[:_SHOWN]!r}: expected {_NOTATIONS}", param_hint="-t") from None


def _show(found: Predictions) -> None:
    from mirage.cli.columns import print_table
    from mirage.cli.instants import clock, words

    heading: Row = ("PREDICTOR", "ROLE", "EARLIEST", "MEDIAN", "LATEST", "WAIT", "ERROR", "WITHIN", "OF")
    foreseen = [each for each in found.predictions if not each.trouble]
    if foreseen:
        print_table([heading, *(_row(each) for each in foreseen)])
    for each in foreseen:
        if each.basis:
            show(f"{each.predictor}: from {each.basis}")
    for each in found.predictions:
        if each.trouble:
            show(f"{each.predictor} foresees nothing: {each.trouble}", err=True)
    if found.planned_start:
        show(f"Slurm's own plan: {clock(found.planned_start)}")
    if found.stale_since:
        since = clock(found.stale_since)
        show(f"The cluster has not answered since {since}: this rests on what was known then.", err=True)
    else:
        show(f"By the queue of {words(found.snapshot_age)} ago.", err=True)


def _row(forecast: Forecast) -> Row:
    from mirage.cli.instants import NOTHING, clock, span, words

    past = forecast.past_alike or forecast.past
    return (
        forecast.predictor,
        forecast.role,
        clock(forecast.start_p10),
        clock(forecast.start_p50),
        clock(forecast.start_p90),
        span(forecast.wait_p50),
        words(past.absolute_error) if past and past.absolute_error is not None else NOTHING,
        _share(past),
        f"{past.forecasts}, {past.of}" if past else NOTHING,
    )


def _share(past: PastError | None) -> str:
    from mirage.cli.instants import NOTHING

    return NOTHING if past is None or past.coverage is None else f"{past.coverage:.0%}"
