"""``mirage submit`` and ``mbatch``: a batch script becomes a chain."""

from __future__ import annotations

import grp
import json
import os
import pwd
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from mirage.cli.printing import open_streams
from mirage.cli.sending import (
    check_plan,
    make_room,
    post_chain,
    show_plan,
    slurm_commands,
    tell_warnings,
    warn_of_parts,
)
from mirage.cli.usage import exit_status
from mirage.domain.bounds import LARGEST_SCRIPT
from mirage.domain.errors import BadSpelling, ClusterUnavailable, ConfigError, MirageError

if TYPE_CHECKING:
    from collections.abc import Sequence

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

    line = _command_line([text_of(os.fsencode(word)) for word in argv])
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
            show_plan(plan, 1, as_json=line.has("json"))
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
        environment={text_of(name): text_of(value) for name, value in os.environb.items()},
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


def text_of(value: bytes) -> str:
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
        answer = slurm_commands().run(["scontrol", "--oneliner", "show", "partition"])
        problem = answer.said if answer.status else ""
    except ClusterUnavailable as error:
        problem = str(error)
    if problem:
        raise ClusterUnavailable(f"there is no --time, and Slurm does not tell the partition's default: {problem}")
    try:
        return read_default_limit(answer.out, partition)
    except BadSpelling as error:
        raise ConfigError("--partition", f"{partition!r}: {error.problem}") from None


def _send(plan: Plan, line: CommandLine) -> None:
    from mirage.cli.connection import connect
    from mirage.cli.heldlinks import add_held_links, held_links

    if plan.chain:
        _tell_added(*add_held_links(plan, connect(line.value("socket") or ""), slurm_commands()), line)
        return
    warn_of_parts(plan)
    daemon = connect(line.value("socket") or "")
    if not line.has("no-check"):
        check_plan(plan, daemon)
    make_room(plan)
    with held_links(plan, slurm_commands()) as held:
        answer = post_chain(daemon, f"/chains?held_links={plan.held_links}" if held else "/chains", plan)
    tell_warnings(answer)
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


def _tell_added(chain_id: str, held: Sequence[JobId], line: CommandLine) -> None:
    if line.has("json"):
        typer.echo(json.dumps({"id": chain_id, "held_jobs": list(held)}))
    elif line.has("parsable"):
        typer.echo(chain_id)
    elif not line.has("quiet"):
        typer.echo(f"Submitted {len(held)} held links of chain {chain_id}: jobs {', '.join(map(str, held))}")
