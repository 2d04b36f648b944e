"""``mirage predict``: predict the start time of a job."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import typer

from mirage.cli.arguments import EXIT_USAGE as WRONG
from mirage.cli.connection import connect, exit_codes
from mirage.cli.printing import show
from mirage.domain.bounds import REQUEST
from mirage.domain.errors import BadSpelling, ClusterUnavailable, ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirage.cli.chain_request import CommandLine
    from mirage.cli.tables import Row
    from mirage.client.client import Client
    from mirage.client.documents import Forecast, PastError, Predictions
    from mirage.domain.job import JobRequest, Seconds
    from mirage.slurm.sbatchoptions import Given

_NOTATIONS = "minutes (90), 1:30:00, 2-00:00:00, 2-12, UNLIMITED, or with units (48h, 1d12h)"
_ASSUMED = 24 * 3_600
"""Time limit in seconds if neither the user nor Slurm gives one."""
_UNCONSIDERED = (
    "begin", "constraint", "dependency", "exclude", "hold", "licenses", "nice", "nodelist", "prefer", "reservation"
)  # fmt: skip
"""Options that change the start time, but that predictors do not see."""
_CHOSEN = ("ntasks", "gpus", "nodelist", "nodefile")
"""Options from which Slurm derives the number of nodes."""
USAGE = f"""\
Usage: mirage predict [OPTIONS] [SCRIPT]

Predict when a job would start if it were submitted now. All options of sbatch work as in sbatch, on the command
line, on #SBATCH lines of SCRIPT and in SBATCH_ variables. The prediction depends on:
  -p, --partition PART      partition (default: Slurm's default partition)
  -N, --nodes N             number of nodes (default 1)
  -n, --ntasks N            number of tasks; with --ntasks-per-node it gives the number of nodes
  -t, --time LIMIT          time limit: {_NOTATIONS}
                            (default: the partition's default)
  --gres LIST               GRES per node, such as gpu:a100:4; also --gpus-per-node, and -G with -N
  -A, --account NAME        account
  -q, --qos NAME            QOS

  --predictor NAME          also ask this predictor, such as fixed:6h
  --json                    print one JSON document on stdout
  --socket FILE             socket of the daemon, or its http(s):// URL
  -h, --help                show this help

The output has one row per predictor:
  ROLE      in charge: the active predictor; instead: the fallback, because the active one failed; shadow;
            named: given with --predictor
  EARLIEST  P10: the job starts before this time with a probability of 10%
  LATEST    P90: the job starts before this time with a probability of 90%
  ERROR     mean absolute error of this predictor's past forecasts
  WITHIN    share of past starts between EARLIEST and LATEST (ideal: 80%)
  OF        number and kind of those past forecasts: links in this partition, of similar size and time limit if
            there are enough
Predictors read the queue. They do not know limits of your account and QOS, which may keep the job pending.

Examples:
  mirage predict train.sh                       a job of this script
  mirage predict -N 4 -t 12:00:00 train.sh      the same job with another size and time limit
  mirage predict -p gpu -N 2 --gpus-per-node=4 -t 1-00:00:00

Exit codes: 0 ok, 1 error or no prediction, 2 usage, 4 denied or rejected by Slurm, 5 no daemon.
"""


_REFUSED = 4


def predict_command(context: typer.Context) -> None:
    """Predict when a job would start if it were submitted now."""
    try:
        line = _command_line(context.args)
        if line.has("help", "usage"):
            for text in USAGE.splitlines():
                show(text)
            return
        request, remarks = _request(line)
    except BadSpelling as error:
        show(f"mirage: {error}", err=True)
        show("Try mirage predict --help", err=True)
        raise SystemExit(WRONG) from None
    with exit_codes():
        daemon = connect(line.value("socket") or "")
        document = daemon.get("/predictions", **_shape(request), predictor=line.value("predictor") or None)
        rejected = _rejected(request, daemon)
    if rejected:
        show(f"mirage: {rejected}", err=True)
        raise SystemExit(_REFUSED)
    for remark in remarks:
        show(f"mirage: {remark}", err=True)
    from mirage.client.documents import Predictions
    from mirage.client.records import read

    with exit_codes():
        found = read(Predictions, document)
    if line.has("json"):
        typer.echo(json.dumps(document))
    elif not _is_empty(found):
        _show(found)
    if _is_empty(found):
        causes = "; ".join(f"{each.predictor}: {each.trouble}" for each in found.predictions)
        show(f"mirage: no prediction: {causes or 'no predictor was asked'}", err=True)
        raise SystemExit(1)


def _rejected(request: JobRequest, daemon: Client) -> str:
    """Return why Slurm would never start such a job; empty: it would, or that is unknown."""
    from mirage.cli.sending import slurm_commands
    from mirage.cli.slurm_checks import why_rejected

    simulated = daemon.get("/cluster")["backend"] == "simulated"
    return "" if simulated else why_rejected(request, slurm_commands())


def _is_empty(found: Predictions) -> bool:
    """Return whether neither a predictor nor Slurm gives a start time."""
    return not found.planned_start and all(each.trouble for each in found.predictions)


def _command_line(argv: Sequence[str]) -> CommandLine:
    """Raises ``BadSpelling``."""
    from mirage.cli.chain_request import read_command_line
    from mirage.slurm.sbatchoptions import SBATCH, Options, Takes, option_table

    own = Options((*option_table(Takes.NOTHING, "json"), *option_table(Takes.VALUE, "socket predictor")))
    line = read_command_line(argv, Options(SBATCH.own, beside=own), {option.name for option in own.own})
    return replace(line, sbatch=tuple(_in_slurms_words(given) for given in line.sbatch))


def _in_slurms_words(given: Given) -> Given:
    """Convert a time limit with units to Slurm's format. Raises ``BadSpelling``."""
    from mirage.slurm import duration

    if given.name != "time" or given.value is None or given.value.strip().isdigit():
        return given
    try:
        return replace(given, value=duration.spell(duration.parse_human_limit(given.value)))
    except BadSpelling:
        raise BadSpelling(given.spelling, f"{given.where}: expected {_NOTATIONS}") from None


def _request(line: CommandLine) -> tuple[JobRequest, list[str]]:
    """Return the job and remarks. Raises ``BadSpelling`` and ``ConfigError``."""
    from mirage.cli.chain_request import BadRequest, read_job
    from mirage.cli.submit import default_limit, outside

    remarks: list[str] = []

    def limit(partition: str) -> Seconds:
        try:
            return default_limit(partition)
        except (ClusterUnavailable, ConfigError):
            remarks.append("--time is missing and the partition's default is unknown: assuming 24 hours")
            return _ASSUMED

    request, given = read_job(line, replace(outside(), default_limit=limit, read_stdin=bytes))
    if problem := REQUEST.problem(request):
        raise BadRequest(problem)
    names = {each.name for each in given}
    if ignored := sorted(names & set(_UNCONSIDERED)):
        remarks.append(f"ignored by predictors: {', '.join(f'--{name}' for name in ignored)}")
    if any(word.startswith("-") for word in line.arguments):
        remarks.append("words after SCRIPT are its arguments, as with sbatch: give options before SCRIPT")
    if "nodes" not in names and names & set(_CHOSEN) and request.nodes == 1:
        remarks.append("Slurm would choose the number of nodes: assuming 1; give --nodes")
    return request, remarks


def _shape(request: JobRequest) -> dict[str, Any]:
    """Return the query parameters of the request."""
    return {
        "partition": request.partition or None,
        "nodes": request.nodes,
        "limit": request.limit,
        "gres": ",".join(f"{name}:{count}" for name, count in request.gres_per_node) or None,
        "account": request.account or None,
        "qos": request.qos or None,
    }


def _show(found: Predictions) -> None:
    from mirage.cli.tables import clock, print_table, words

    heading: Row = ("PREDICTOR", "ROLE", "EARLIEST", "MEDIAN", "LATEST", "WAIT", "ERROR", "WITHIN", "OF")
    foreseen = [each for each in found.predictions if not each.trouble]
    if foreseen:
        print_table([heading, *(_row(each) for each in foreseen)])
    for each in foreseen:
        if each.basis:
            show(f"{each.predictor}: based on {each.basis}")
    for each in found.predictions:
        if each.trouble:
            show(f"{each.predictor}: no prediction: {each.trouble}", err=True)
    if found.planned_start:
        show(f"Slurm's planned start: {clock(found.planned_start)}")
    if found.stale_since:
        since = clock(found.stale_since)
        show(f"Slurm has not replied since {since}; the predictions use the queue of that time.", err=True)
    else:
        show(f"The predictions use the queue of {words(found.snapshot_age)} ago.", err=True)


def _row(forecast: Forecast) -> Row:
    from mirage.cli.tables import NOTHING, clock, span, words

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
    from mirage.cli.tables import NOTHING

    return NOTHING if past is None or past.coverage is None else f"{past.coverage:.0%}"
