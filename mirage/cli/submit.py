"""``mirage submit`` and ``mbatch``: a batch script becomes a chain."""

from __future__ import annotations

import json
import os
import pwd
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from mirage.domain.chain import NO_JOB, Chain, ChainId, HandoverPolicy
from mirage.domain.errors import ClusterUnavailable, ConfigError, MirageError, UnknownJob

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mirage.backends.cli_actuator import CliActuator
    from mirage.backends.execution import Commands
    from mirage.cli.plan import CommandLine, Outside, Plan
    from mirage.domain.job import JobId, Seconds

USAGE = """\
Usage: mirage submit [OPTIONS] [SCRIPT [ARGUMENTS]]        (also: mbatch ...)

Makes a chain from an unmodified batch script: its links are submitted with sbatch in your name, one after another,
each so that it starts as its predecessor ends. Options of sbatch mean what they mean to sbatch, here, on #SBATCH
lines and in SBATCH_ variables. Without a script it is read from standard input; --wrap works too.

Options about the chain, here or on #MIRAGE lines of the script:
  --links N             so many links, then the chain is done
  --total-time TIME     so much running time in all, such as 10-00:00:00 or 240h
  --done-file FILE      the chain is done once FILE exists
  --done-exit-code N    a link that exits with N ends the chain (0); none: no exit code does
  --on-failure WHAT     of a script that fails: retry, continue or stop (retry); or a list such as
                        exit=stop,node=continue,cancelled=stop
  --retries N           failures in a row that are still followed by another link (3)
  --handover WHEN       when a link makes way for its running successor: none, when-ready, on-start
  --health-command CMD  run by sh beside the script until it succeeds; the link is ready then
  --signal SIG@TIME     Slurm's; SIG also tells a link to make way for its successor (TERM)
  --grace SECONDS       between that signal and the end of the link (60)
  --max-overlap TIME    two links run together no longer than this
  --predictor NAME      who says when the next link has to be submitted; see mirage plugins
  --aim WHAT            cheapest: by the daemon's prices; no-interruption=90%: so early that nine of ten links are
                        there in time; overlap=30m: as early as that much expected overlap allows
  --steering HOW        submit each link as its predecessor starts, so that it ages in the queue, and keep it back
                        by hold, by nice or by pin (bound to its predecessor's nodes); off: submit it in time
  --lead TIME           steering: let it go so long before its predecessor's end (10m); 0 with pin: never
  --name NAME           the chain's name; the job's if not given
  --tasks-state DIR     its links run tasks: mirage allocation run keeps their state in DIR, the daemon shows them
  --held-links N        submit the first N links now, held, for a daemon that releases them

  --dry-run             show what would be submitted, and submit nothing
  --json                one JSON document on stdout
  --parsable            the chain's id alone on stdout
  --socket FILE         the daemon's socket
  -h, --help            this page; man sbatch has all other options

Exit codes: 0 ok, 1 error, 2 usage, 3 not found, 4 refused, 5 no daemon.
"""


def submit_command(context: typer.Context) -> None:
    """Make a chain from a batch script."""
    submit(context.args)


def main() -> None:
    """``mbatch``."""
    try:
        submit(sys.argv[1:])
    except MirageError as error:
        typer.echo(f"mbatch: {error}", err=True)
        sys.exit(1)


def submit(argv: Sequence[str]) -> None:
    """Do what the command line says."""
    from mirage.cli.connection import exit_codes
    from mirage.cli.plan import make_plan

    line = _command_line(argv)
    if line.has("help", "usage"):
        typer.echo(USAGE, nl=False)
        return
    if line.has("version"):
        from mirage import __version__

        typer.echo(f"mirage {__version__}")
        return
    plan = make_plan(line, _outside())
    for remark in plan.remarks:
        typer.echo(f"mirage: {remark}", err=True)
    with exit_codes():
        if line.has("dry-run"):
            _show(plan, as_json=line.has("json"))
        else:
            _send(plan, line)


def _command_line(argv: Sequence[str]) -> CommandLine:
    from mirage.cli.plan import read_command_line
    from mirage.domain.errors import BadSpelling

    try:
        return read_command_line(argv)
    except BadSpelling as error:
        typer.echo(f"mirage: {error}\nTry mirage submit --help", err=True)
        raise SystemExit(2) from None


def _outside() -> Outside:
    from mirage.cli.plan import Outside

    return Outside(
        user=pwd.getpwuid(os.getuid()).pw_name,
        environment=dict(os.environ),
        directory=str(Path.cwd()),
        now=_slurm_time(),
        default_limit=_default_limit,
        read_stdin=sys.stdin.buffer.read,
    )


def _slurm_time() -> Seconds:
    """Now, on Slurm's clock: a testbed's may run fast."""
    clock = os.environ.get("MIRAGE_CLUSTER__CLOCK")
    if not clock:
        return int(time.time())
    from mirage.control.wallclock import read_clock

    return read_clock(Path(clock)).now()


def _default_limit(partition: str) -> Seconds:
    from mirage.slurm.defaultlimit import read_default_limit

    try:
        answer = _commands().run(["scontrol", "--oneliner", "show", "partition"])
        problem = answer.said if answer.status else ""
    except ClusterUnavailable as error:
        problem = str(error)
    if problem:
        raise ClusterUnavailable(f"there is no --time, and Slurm does not tell the partition's default: {problem}")
    return read_default_limit(answer.out, partition)


def _commands() -> Commands:
    from mirage.backends.execution import Commands

    return Commands(os.environ)


def _send(plan: Plan, line: CommandLine) -> None:
    from mirage.cli.connection import connect

    _make_room(plan)
    daemon = connect(line.value("socket") or "")
    with _held_links(plan) as held:
        answer = daemon.post("/chains", plan.document)
    if line.has("json"):
        typer.echo(json.dumps(answer | ({"held_jobs": held} if held else {})))
    elif line.has("parsable"):
        typer.echo(plan.chain_id)
    elif not line.has("quiet"):
        typer.echo(f"Submitted chain {plan.chain_id}")
        if held:
            typer.echo(f"Submitted {len(held)} held links: jobs {', '.join(map(str, held))}")


def _make_room(plan: Plan) -> None:
    """The folder of the hand-over files, so that a script has but to ``touch "$MIRAGE_HANDOVER_FILE"``."""
    if plan.document.get("handover", {}).get("policy") != HandoverPolicy.WHEN_READY:
        return
    file = Path(Chain(ChainId(plan.chain_id), "", plan.request.user, plan.request).handover_file(1))
    try:
        file.parent.mkdir(exist_ok=True)
    except OSError as error:
        raise ConfigError(str(file.parent), f"no place for the hand-over files: {error.strerror}") from error


@contextmanager
def _held_links(plan: Plan) -> Iterator[list[JobId]]:
    """The ids of the first links, held by their owner, for a daemon that may release them.

    They are there before the daemon learns of their chain, or else it would find none to release. Where the chain,
    or one of them, is refused, those that are there are cancelled.
    """
    jobs: list[JobId] = []
    if not plan.held_links:
        yield jobs
        return
    from mirage.backends.cli_actuator import CliActuator

    actuator = CliActuator(_commands(), plan.request.user)
    chain = Chain(
        ChainId(plan.chain_id), plan.request.name, plan.request.user, plan.request,
        tasks_state=plan.document.get("tasks_state", ""),
    )  # fmt: skip
    try:
        for index in range(1, plan.held_links + 1):
            request = chain.link_request(index, jobs[-1] if jobs else NO_JOB)
            jobs.append(actuator.submit(replace(request, held=True)))
        yield jobs
    except BaseException:
        _take_back(jobs, actuator, chain.owner)
        raise


def _take_back(jobs: Sequence[JobId], actuator: CliActuator, user: str) -> None:
    """Cancel held links that nobody will release; those that remain are named."""
    left: list[str] = []
    for job_id in jobs:
        try:
            actuator.cancel(job_id, user)
        except UnknownJob:
            continue
        except MirageError as error:
            left.append(str(job_id))
            typer.echo(f"mirage: job {job_id} could not be cancelled: {error}", err=True)
    if left:
        typer.echo(f"mirage: nobody will release these held links: scancel {' '.join(left)}", err=True)
    elif jobs:
        typer.echo(f"mirage: cancelled {len(jobs)} held links that had been submitted for the chain", err=True)


def _show(plan: Plan, *, as_json: bool) -> None:
    from mirage.slurm.sbatch import sbatch_arguments

    request = plan.request
    assert request.batch is not None
    arguments = sbatch_arguments(replace(request, tag=f"mirage:{plan.chain_id}:1"))
    variables = [name for name, _ in request.batch.environment]
    chain = {name: value for name, value in plan.document.items() if name != "request"}
    if as_json:
        typer.echo(
            json.dumps(
                {"chain": chain, "sbatch": arguments, "script": request.batch.text, "environment": variables},
                indent=1,
            )
        )
        return
    typer.echo("Nothing is submitted. The chain, where it differs from the daemon's defaults:")
    typer.echo(json.dumps(chain, indent=1))
    typer.echo("Its first link, and each one after it with another comment:")
    typer.echo("sbatch " + " \\\n  ".join(_quoted(arguments)))
    typer.echo(f"with {len(variables)} variables of your environment, MIRAGE_ variables, and the script:")
    typer.echo(request.batch.text.encode("utf-8", "surrogateescape"), nl=False)


def _quoted(arguments: Sequence[str]) -> list[str]:
    import shlex

    return [shlex.quote(argument) for argument in arguments]
