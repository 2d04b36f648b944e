"""``mirage bench``: repeatable benchmarks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from mirage.cli.shared_options import AsJson

if TYPE_CHECKING:
    from mirage.bench import BenchSection

Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="simulator, fidelity, peers, daemon, api, lookahead, predictors, train, allocation, das, requests "
        "or serving",
    ),
]
Traces = Annotated[
    str,
    typer.Option(metavar="DIR", help="Directory of the published traces; without it, generated traces are used."),
]
Models = Annotated[
    str,
    typer.Option(
        metavar="DIR",
        help="predictors: directory of trained models (default: the registry); das, requests: the trained agents.",
    ),
]
Muri = Annotated[
    str, typer.Option(metavar="DIR", help="allocation: directory 'simulator' of Muri, for comparison.")
]
Recordings = Annotated[
    str,
    typer.Option(
        metavar="PATH", help="fidelity: recording of slurm-testbed/fidelity, or a directory of recordings."
    ),
]

Peers = Annotated[
    list[str],
    typer.Option(
        "--peer",
        metavar="NAME=COMMAND",
        help="peers: another simulator; its command may contain {swf}, {processors} and {schedule}.",
    ),
]

Size = Annotated[
    str,
    typer.Option(
        metavar="PENDING,NODES,CHAINS",
        help="daemon, api: number of pending jobs, nodes and chains (default: those of docs/benchmarks/scale.md).",
    ),
]

Day = Annotated[
    bool,
    typer.Option(
        "--day", help="daemon: one day of Slurm's time of a daemon of one user, instead of single cycles."
    ),
]


def bench_command(  # noqa: PLR0913 (an option for each kind of benchmark)
    name: Name,
    *,
    traces: Traces = "../shared/traces",
    models: Models = "",
    muri: Muri = "",
    recordings: Recordings = "tests/simulator/recordings",
    peers: Peers = [],  # noqa: B006 (required by typer; never modified)
    size: Size = "",
    day: Day = False,
    as_json: AsJson = False,
) -> None:
    """Run a benchmark; results are ratios within one run where there is a reference."""
    name = f"{name} --day" if day else name
    sections = _measure(name, traces, models, muri, recordings, peers, _size(size))
    if as_json:
        typer.echo(json.dumps([{"title": s.title, "rows": [list(r) for r in s.rows]} for s in sections], indent=1))
        return
    for section in sections:
        typer.echo(f"\n{section.title}")
        width = max(len(label) for label, _ in section.rows)
        for label, value in section.rows:
            typer.echo(f"  {label:<{width}}  {value}")


def _measure(  # noqa: PLR0911 (one for each)
    name: str,
    traces: str,
    models: str,
    muri: str,
    recordings: str,
    peers: list[str],
    size: tuple[int, int, int] | None,
) -> tuple[BenchSection, ...]:
    from pathlib import Path

    from mirage.cli.arguments import UsageError

    match name:
        case "simulator":
            from mirage.bench.simulator import measure_simulator

            return measure_simulator(Path(traces), _say)
        case "peers":
            from mirage.bench.peers import measure_peers, parse_program

            return measure_peers(Path(traces), tuple(map(parse_program, peers)), _say)
        case "daemon":
            from mirage.bench.daemon import measure_daemon
            from mirage.bench.standin import sized

            return measure_daemon(_say, *([(sized(*size),)] if size else ()))
        case "daemon --day":
            from mirage.bench.daemon import measure_day
            from mirage.bench.standin import sized

            return measure_day(_say, *([(sized(*size),)] if size else ()))
        case "api":
            from mirage.bench.api import measure_api
            from mirage.bench.standin import sized

            return measure_api(_say, *([sized(*size)] if size else ()))
        case "lookahead":
            from mirage.bench.predictors import measure_lookahead

            return measure_lookahead(Path(traces), _say)
        case "predictors":
            from mirage.bench.predictors import measure_predictors
            from mirage.cli.models import models_folder

            return measure_predictors(Path(traces), models_folder(models), _say)
        case "train":
            from mirage.bench.train import measure_train

            return measure_train(_say)
        case "allocation":
            from mirage.bench.allocation import measure_allocation

            return measure_allocation(Path(traces), Path(muri) if muri else None, _say)
        case "das":
            from mirage.bench.allocation import measure_das

            return measure_das(Path(models), _say)
        case "serving":
            from mirage.bench.requests import measure_serving

            return measure_serving(_say)
        case "requests":
            from mirage.bench.requests import measure_requests

            return measure_requests(Path(models) if models else None, _say)
        case "fidelity":
            from mirage.bench.fidelity import measure_fidelity

            return measure_fidelity(Path(recordings), _say)
    raise UsageError(
        "NAME",
        f"unknown benchmark {name!r}; choose from simulator, fidelity, peers, daemon, api, lookahead, predictors, "
        "train, allocation, das, requests, serving",
    )


def _size(text: str) -> tuple[int, int, int] | None:
    from mirage.cli.arguments import numbers
    from mirage.domain.errors import ConfigError

    if not text:
        return None
    found = numbers("--size", text, least=1)
    if len(found) != 3:
        raise ConfigError("--size", f"invalid value {text!r}; expected three numbers PENDING,NODES,CHAINS")
    return found[0], found[1], found[2]


def _say(step: str) -> None:
    typer.echo(f"... {step}", err=True)
