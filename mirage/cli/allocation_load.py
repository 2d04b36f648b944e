"""``mirage allocation load``: load test of a gateway."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from mirage.cli.arguments import finite
from mirage.cli.asking import AsJson
from mirage.domain.bounds import HIGHEST_COUNT, HIGHEST_SEED
from mirage.domain.errors import ConfigError
from mirage.wholefile import read_regular

KEY_VARIABLE = "MIRAGE_SERVING_KEY"


Url = Annotated[str, typer.Argument(metavar="URL", help="URL of the gateway, such as http://127.0.0.1:8800.")]
Model = Annotated[str, typer.Option(metavar="NAME", help="Name of the model.")]
Rate = Annotated[
    float,
    typer.Option(
        min=0.01, max=100_000, callback=finite, help="Mean number of requests per second, at random times."
    ),
]
Seconds = Annotated[
    float, typer.Option(min=0.1, max=86_400, callback=finite, help="Duration of the test in seconds.")
]
Deadline = Annotated[
    float | None,
    typer.Option(
        min=0.001, max=HIGHEST_COUNT, callback=finite, help="Deadline in milliseconds after a request is due."
    ),
]
KeyFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help=f"File with the API key (default: ${KEY_VARIABLE}).")
]
Seed = Annotated[int, typer.Option(min=0, max=HIGHEST_SEED, help="Random seed of the request arrival times.")]


def load_command(  # noqa: PLR0913 (one parameter for each option of the command line)
    url: Url,
    *,
    model: Model,
    rate: Rate = 100.0,
    seconds: Seconds = 10.0,
    deadline_ms: Deadline = None,
    key_file: KeyFile = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Send requests to a gateway at a constant mean rate, independent of replies, and print its latency."""
    import asyncio

    from mirage.allocation.inference.serving.askers import fine_loop
    from mirage.allocation.inference.serving.loading import LoadPlan, drive, summarize

    plan = LoadPlan(url, _key(key_file), model, rate, seconds, deadline_ms, seed)
    with asyncio.Runner(loop_factory=fine_loop) as runner:
        try:
            document = summarize(plan, runner.run(drive(plan)))
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="URL") from error
    typer.echo(json.dumps(document)) if as_json else _show(document)


def _key(path: Path | None) -> str:
    if path is None:
        key = os.environ.get(KEY_VARIABLE, "")
        if not key:
            raise ConfigError("--key-file", f"no API key; give its file, or set ${KEY_VARIABLE}")
        return key
    try:
        return read_regular(path).decode("utf-8").split()[0]
    except (OSError, IndexError) as error:
        raise ConfigError(str(path), "cannot read an API key from this file") from error


def _show(document: dict[str, Any]) -> None:
    from mirage.cli.columns import print_table

    statuses = ", ".join(f"{count} x {status}" for status, count in document["statuses"].items())
    typer.echo(f"{document['requests']} requests at {document['rate']:g} per second: {statuses or 'none'}")
    if document["kept"] is not None:
        typer.echo(f"replies within the deadline: {document['kept']:.2%}")
    names = ("latency_ms", "served_ms", "queued_ms", "lag_ms", "added_ms", "overhead_ms")
    quantiles = list(document["latency_ms"])
    rows = [("MILLISECONDS", *quantiles)]
    rows += [(name.removesuffix("_ms"), *(f"{document[name][q]:.2f}" for q in quantiles)) for name in names]
    print_table(rows)
