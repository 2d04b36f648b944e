"""``mirage submit`` and ``mbatch``: a batch script becomes a chain."""

from __future__ import annotations

import grp
import json
import os
import pwd
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from mirage.cli.printing import open_streams
from mirage.cli.usage import exit_status
from mirage.domain.bounds import LARGEST_SCRIPT
from mirage.domain.chain import Chain, ChainId, HandoverPolicy, Steering
from mirage.domain.errors import BadSpelling, ClusterUnavailable, ConfigError, MirageError
from mirage.ownplaces import make_own_directory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirage.backends.execution import Commands
    from mirage.cli.plan import CommandLine, Outside, Plan
    from mirage.client.client import Client
    from mirage.domain.job import JobId, Seconds

_REFUSED = 4
USAGE = """\
Usage: mirage submit [OPTIONS] [SCRIPT [ARGUMENTS]]        (also: mbatch ...)

Makes a chain from an unmodified batch script: its links are submitted with sbatch in your name, one after another,
each so that it starts as its predecessor ends. Options of sbatch mean what they mean to sbatch, here, on #SBATCH
lines and in SBATCH_ variables; --hold and --begin count for the first link only. Without a script it is read from
standard input; --wrap works too.

Options about the chain, here or on #MIRAGE lines of the script. A TIME has units (30s, 90m, 48h, 1d12h) or is
written 48:00:00 or 2-00:00:00; a number without a unit is rejected:
  --links N             so many links (1 or more), then the chain is done; not given: no such bound
  --total-time TIME     so much running time in all
  --done-file FILE      the chain is done once FILE exists
  --done-exit-code N    a link that exits with N ends the chain (0); none: no exit code does
  --on-failure WHAT     of a script that fails: retry, continue or stop (retry); or a list such as
                        exit=stop,node=continue,cancelled=stop
  --retries N           failures in a row that are still followed by another link (3)
  --handover WHEN       none: one writer, no link starts before the one before it is over (default); overlap: a
                        link may start early, both run until the predecessor's limit; when-ready, on-start: the
                        predecessor is told to exit once its successor is ready, or runs
  --health-command CMD  run by sh beside the script until it succeeds; the link is ready then
  --signal SIG@TIME     Slurm's; SIG also tells a link to make way for its successor (TERM)
  --grace SECONDS       between that signal and the end of the link (60); or a TIME
  --max-overlap TIME    after TIME together the predecessor gets its signal, and has --grace to end (0: no bound,
                        the default); no effect with --handover none
  --predictor NAME      who says when the next link has to be submitted; see mirage plugins
  --aim WHAT            cheapest: by the daemon's prices; no-interruption=90%: so early that nine of ten links are
                        there in time; overlap=30m: as early as that much expected overlap allows
  --steering HOW        submit each link as its predecessor starts, so that it ages in the queue, and keep it back
                        by hold, by nice or by pin (bound to its predecessor's nodes, where no other job fits
                        beside it); auto: by pin, unless a forecast is asked for; off: submit it in time
  --lead TIME           steering: let it go TIME before its predecessor's end (default 10m); pin lets it go only
                        after that end with 0, and always with --handover none; auto only for on-start and
                        when-ready, a tenth of the limit at most
  --name NAME           the chain's name; the job's if not given
  --tasks-state DIR     its links run tasks: mirage allocation run keeps their state in DIR, the daemon shows them
  --held-links N        submit the first N links now, held, for a daemon that releases them (acting.mode release,
                        which needs it)
  --chain CHAIN         make no new chain: add N further held links to CHAIN; give the options and the script with
                        which it was submitted

  --dry-run             show what would be submitted, and submit nothing
  --no-check            submit without asking Slurm first whether it would accept the job (sbatch --test-only)
  --no-wait             do not wait until Slurm has accepted the first link (at most 30 s)
  --json                one JSON document on stdout
  --parsable            the chain's id alone on stdout
  --socket FILE         the daemon's socket
  -h, --help            this page; man sbatch has all other options

Examples:
  mirage submit train.sh                          until you cancel it, or a link exits with 0
  mirage submit --links 8 -t 2-00:00:00 train.sh  eight links of two days
  mirage submit --total-time 30d --handover when-ready serve.sh
  mirage submit --dry-run train.sh                show what would be submitted

Exit codes: 0 ok, 1 error, 2 usage, 3 not found, 4 refused, 5 no daemon.
"""


def submit_command(context: typer.Context) -> None:
    """Make a chain from a batch script."""
    submit(context.args)


def main() -> None:
    """``mbatch``."""
    open_streams()
    try:
        submit(sys.argv[1:])
    except MirageError as error:
        typer.echo(f"mbatch: {error}", err=True)
        sys.exit(exit_status(error))


def submit(argv: Sequence[str]) -> None:
    """Do what the command line says."""
    from mirage.cli.connection import exit_codes
    from mirage.cli.plan import make_plan

    line = _command_line([_text(os.fsencode(word)) for word in argv])
    if line.has("help", "usage"):
        typer.echo(USAGE, nl=False)
        return
    if line.has("version"):
        from mirage import __version__

        typer.echo(f"mirage {__version__}")
        return
    try:
        plan = make_plan(line, outside())
    except BadSpelling as error:
        raise _usage_error(error) from None
    for remark in plan.remarks:
        typer.echo(f"mirage: {remark}", err=True)
    with exit_codes():
        if line.has("dry-run"):
            _show(plan, as_json=line.has("json"))
        else:
            _send(plan, line)


def _command_line(argv: Sequence[str]) -> CommandLine:
    from mirage.cli.plan import read_command_line

    try:
        return read_command_line(argv)
    except BadSpelling as error:
        raise _usage_error(error) from None


def _usage_error(error: BadSpelling) -> SystemExit:
    typer.echo(f"mirage: {error}\nTry mirage submit --help", err=True)
    return SystemExit(2)


def outside() -> Outside:
    """What a plan takes from this process and this machine."""
    from mirage.cli.plan import Outside, Shell
    from mirage.slurm.submitshell import read_resource_limits, read_umask

    return Outside(
        user=pwd.getpwuid(os.getuid()).pw_name,
        environment={_text(name): _text(value) for name, value in os.environb.items()},
        directory=_directory(),
        now=_slurm_time(),
        default_limit=default_limit,
        read_stdin=lambda: sys.stdin.buffer.read(LARGEST_SCRIPT + 1),
        shell=Shell(
            read_umask(), read_resource_limits(), os.getpriority(os.PRIO_PROCESS, 0), _other_group(os.getegid())
        ),
    )


def _directory() -> str:
    try:
        return str(Path.cwd())
    except FileNotFoundError:
        raise MirageError("the working directory is gone; change to one that is there") from None


def _other_group(group: int) -> str:
    """Return the name of ``group`` where it is not the user's primary one, else an empty text."""
    if group == pwd.getpwuid(os.getuid()).pw_gid:
        return ""
    try:
        return grp.getgrgid(group).gr_name
    except KeyError:
        return f"GID {group}"


def _text(value: bytes) -> str:
    """Bytes as every part of Mirage spells them, whatever this process's locale."""
    return value.decode("utf-8", "surrogateescape")


def _slurm_time() -> Seconds:
    """Now, on Slurm's clock: a testbed's may run fast."""
    clock = os.environ.get("MIRAGE_CLUSTER__CLOCK")
    if not clock:
        return int(time.time())
    from mirage.control.wallclock import read_clock

    return read_clock(Path(clock)).now()


def default_limit(partition: str) -> Seconds:
    """As ``scontrol`` has it. Raises ``ClusterUnavailable``, and ``ConfigError`` for an unknown partition."""
    from mirage.slurm.defaultlimit import read_default_limit

    try:
        answer = _commands().run(["scontrol", "--oneliner", "show", "partition"])
        problem = answer.said if answer.status else ""
    except ClusterUnavailable as error:
        problem = str(error)
    if problem:
        raise ClusterUnavailable(f"there is no --time, and Slurm does not tell the partition's default: {problem}")
    try:
        return read_default_limit(answer.out, partition)
    except BadSpelling as error:
        raise ConfigError("--partition", f"{partition!r}: {error.problem}") from None


def _commands() -> Commands:
    from mirage.backends.execution import Commands

    return Commands(os.environ)


def _send(plan: Plan, line: CommandLine) -> None:
    from mirage.cli.connection import connect
    from mirage.cli.heldlinks import add_held_links, held_links

    if plan.chain:
        _tell_added(*add_held_links(plan, connect(line.value("socket") or ""), _commands()), line)
        return
    _warn_of_parts(plan)
    daemon = connect(line.value("socket") or "")
    if not line.has("no-check"):
        _check(plan, daemon)
    _make_room(plan)
    with held_links(plan, _commands()) as held:
        answer = _make(daemon, f"/chains?held_links={plan.held_links}" if held else "/chains", plan)
    if (shown := answer.get("chain")) and shown["files_unknown"]:
        typer.echo(f"mirage: warning: a file cannot be checked: {shown['files_unknown']}", err=True)
    if warning := answer.get("warning"):
        typer.echo(f"mirage: warning: {warning}", err=True)
    if line.has("json"):
        typer.echo(json.dumps(answer | ({"held_jobs": held} if held else {})))
    elif line.has("parsable"):
        typer.echo(plan.chain_id)
    elif not line.has("quiet"):
        typer.echo(f"Submitted chain {plan.chain_id}")
        if held:
            typer.echo(f"Submitted {len(held)} held links: jobs {', '.join(map(str, held))}")
    sys.stdout.flush()
    if not (held or line.has("no-wait")):
        _tell_first_link(daemon, plan, line)


def _tell_first_link(daemon: Client, plan: Plan, line: CommandLine) -> None:
    """Raises ``SystemExit`` where Slurm will never accept the first link."""
    from mirage.cli.firstlink import await_first_link

    found = await_first_link(daemon, plan.chain_id)
    if found.rejected:
        typer.echo(f"mirage: no job: {found.why_not}; chain {plan.chain_id} is cancelled", err=True)
        raise SystemExit(_REFUSED)
    if found.job_id is None:
        typer.echo(f"mirage: link 1 is not submitted yet: {found.why_not}", err=True)
    elif not line.has("json", "parsable", "quiet"):
        typer.echo(f"Link 1 is job {found.job_id}")


def _make(daemon: Client, target: str, plan: Plan) -> Any:
    """The daemon's answer. Raises ``Unanswered``, which names the chain that may have been made."""
    from mirage.client.errors import Unanswered

    try:
        return daemon.post(target, plan.document)
    except Unanswered as error:
        may = f"chain {plan.chain_id} may have been made: see mirage chains before you submit it again"
        raise Unanswered(f"{error}; {may}") from error


def _tell_added(chain_id: str, held: Sequence[JobId], line: CommandLine) -> None:
    if line.has("json"):
        typer.echo(json.dumps({"id": chain_id, "held_jobs": list(held)}))
    elif line.has("parsable"):
        typer.echo(chain_id)
    elif not line.has("quiet"):
        typer.echo(f"Submitted {len(held)} held links of chain {chain_id}: jobs {', '.join(map(str, held))}")


def _check(plan: Plan, daemon: Client) -> None:
    """Raises ``ConfigError`` for a chain whose links could not run; held links are their own check."""
    from mirage.cli.slurmcheck import check_directory, check_done_file, check_request

    check_directory(plan.request)
    check_done_file(plan.document.get("done", {}).get("file") or "")
    if plan.held_links or daemon.get("/cluster")["backend"] == "simulated":
        return
    if remark := check_request(plan.request, _commands()):
        typer.echo(f"mirage: {remark}", err=True)


def _warn_of_parts(plan: Plan) -> None:
    """Say that a pin may not keep links back; whether it does is known once the first of them runs."""
    if plan.document.get("steering") == Steering.PIN and not plan.request.exclusive:
        typer.echo(
            "mirage: --steering=pin: the job does not ask for whole nodes; add --exclusive. Where a second link "
            "fits beside the first, links are not pinned, and do not age while they wait (see mirage explain)",
            err=True,
        )


def _make_room(plan: Plan) -> None:
    """The folder of the hand-over files, so that a script has but to ``touch "$MIRAGE_HANDOVER_FILE"``."""
    if plan.document.get("handover", {}).get("policy") != HandoverPolicy.WHEN_READY:
        return
    file = Path(Chain(ChainId(plan.chain_id), "", plan.request.user, plan.request).handover_file(1))
    try:
        make_own_directory(file.parent)
    except OSError as error:
        problem = f"no place for the hand-over files: {error.strerror or error}"
        raise ConfigError(str(file.parent), problem) from error


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
                {
                    "chain": chain,
                    "sbatch": arguments,
                    "script": request.batch.text,
                    "arguments": request.batch.arguments,
                    "environment": variables,
                },
                indent=1,
            )
        )
        return
    typer.echo("Nothing is submitted. The chain, where it differs from the daemon's defaults:")
    typer.echo(json.dumps(chain, indent=1))
    typer.echo("Its first link, and each one after it with another comment:")
    script = ["SCRIPT", *_quoted(request.batch.arguments)] if request.batch.arguments else []
    typer.echo("sbatch " + " \\\n  ".join([*_quoted(arguments), *script]))
    typer.echo(f"with {len(variables)} variables of your environment, MIRAGE_ variables, and the script:")
    typer.echo(request.batch.text.encode("utf-8", "surrogateescape"), nl=False)


def _quoted(arguments: Sequence[str]) -> list[str]:
    import shlex

    return [shlex.quote(argument) for argument in arguments]
