"""``mirage submit`` and ``mbatch``: a batch script becomes a chain; Slurm accepts its first link."""

from __future__ import annotations

import grp
import json
import os
import pwd
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from mirage.cli.arguments import exit_status
from mirage.cli.printing import open_streams
from mirage.cli.sending import (
    check_plan,
    make_room,
    post_chain,
    show_plan,
    slurm_commands,
    tell_warnings,
    warn_of_parts,
    warn_of_untrapped,
)
from mirage.client.errors import ClientError, Refusal
from mirage.domain.bounds import LARGEST_SCRIPT
from mirage.domain.errors import BadSpelling, ClusterUnavailable, ConfigError, MirageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mirage.cli.chain_request import ChainRequest, CommandLine, SubmissionContext
    from mirage.client.client import Client
    from mirage.client.documents import Chain
    from mirage.domain.job import JobId, Seconds

LINK_TIMEOUT_S = 30.0
"""Real seconds. A command starts a cycle, which takes a few seconds."""
_EVERY = 0.25


@dataclass(frozen=True, slots=True)
class FirstLink:
    """The state of the first link as the daemon last reported it."""

    job_id: int | None = None
    why_not: str = ""
    """The daemon's reason why there is no job yet; empty if there is one."""
    rejected: bool = False
    """Slurm will never accept it."""


def await_first_link(
    daemon: Client,
    chain: str,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> FirstLink:
    """Wait at most ``LINK_TIMEOUT_S`` until Slurm accepts or rejects the link; cancel a chain that it rejects."""
    deadline = now() + LINK_TIMEOUT_S
    while True:
        try:
            found = _seen(daemon.chain(chain), last=now() >= deadline)
            if found is not None and found.rejected:
                daemon.cancel(chain)
        except ClientError as error:
            gone = isinstance(error, Refusal) and error.status == 404
            if gone or now() >= deadline:
                return FirstLink(why_not=str(error))
            found = None
        if found is not None:
            return found
        sleep(_EVERY)


def _seen(chain: Chain, *, last: bool) -> FirstLink | None:
    """``None``: not decided yet."""
    for link in chain.links:
        if link.job_id is not None:
            return FirstLink(link.job_id)
    paused = chain.status == "paused"
    if chain.rejection:
        return FirstLink(why_not=f"Slurm rejects it: {chain.rejection}", rejected=paused)
    if paused or chain.over:
        return FirstLink(why_not=chain.reason)
    if last:
        return FirstLink(why_not=chain.sentence or "the daemon has not processed the chain yet")
    return None


_REFUSED = 4
USAGE = """\
Usage: mirage submit [OPTIONS] [SCRIPT [ARGUMENTS]]        (also: mbatch ...)

Create a chain from an unmodified batch script, for work that runs longer than the time limit. Mirage submits the
jobs of the chain, the links, one after another with sbatch in your name, so that each one starts when its
predecessor ends. Without SCRIPT the script is read from standard input. All options of sbatch work as in sbatch,
also --wrap, #SBATCH lines and SBATCH_ variables; --hold and --begin apply only to the first link.

Options of the chain, also valid on #MIRAGE lines of the script. TIME has units (30s, 90m, 48h, 1d12h) or the form
48:00:00 or 2-00:00:00; a number without a unit is an error.
  --links N             end the chain after N links (1 or more; default: no limit)
  --total-time TIME     end the chain after this run time of all links (default: no limit)
  --done-file FILE      end the chain when FILE exists
  --done-exit-code N    end the chain when a link exits with N (default 0); none: ignore exit codes
  --on-failure ACTION   after a failed script: retry, continue or stop (default retry); or a list for each kind,
                        such as exit=stop,node=continue,cancelled=stop
  --retries N           stop after more than N failures in a row (default 3)
  --handover WHEN       none (default): one writer, no link starts before its predecessor has ended; overlap: both
                        run until the predecessor's time limit; when-ready, on-start: the predecessor is signalled
                        to exit once its successor is ready, or runs
  --health-command CMD  shell command, repeated next to the script; the link is ready when CMD succeeds
  --signal SIG@TIME     as in sbatch; Mirage also uses SIG to ask a link to exit for its successor (default TERM)
  --grace SECONDS       time between that signal and the end of the link (default 60); a TIME is also valid
  --max-overlap TIME    signal the predecessor after TIME of overlap; it then has --grace to exit (default 0: no
                        limit; no effect with --handover none)
  --predictor NAME      predictor that decides when to submit the next link (default: the daemon's); list them
                        with mirage plugins
  --aim OBJECTIVE       cheapest: lowest cost by the daemon's prices; no-interruption=90%: early enough that 90% of
                        the links start in time; overlap=30m: at most this expected overlap
  --steering HOW        early submission: submit each link when its predecessor starts, so that it ages in the
                        queue, and delay its start by hold, nice or pin (to its predecessor's nodes, if no other
                        job fits next to it). auto: pin, unless you name a --predictor or --aim; off: submit each
                        link when the predictor says so
  --lead TIME           with early submission, release the link TIME before its predecessor ends (default 10m).
                        pin: with 0 or --handover none, release it after that end. auto: only with on-start and
                        when-ready, at most a tenth of the time limit
  --name NAME           name of the chain (default: the job name)
  --tasks-state DIR     state directory of mirage allocation run, if the links run tasks; the daemon shows them
  --held-links N        submit the first N links now, held, for a daemon that only releases jobs; acting.mode
                        "release" requires it
  --chain CHAIN         add N held links to CHAIN instead of creating a chain; give the same options and script as
                        at its submission

  --dry-run             show what would be submitted, but submit nothing
  --no-check            skip the check whether Slurm would accept the job (sbatch --test-only)
  --no-wait             do not wait until Slurm accepts the first link (at most 30 s)
  --json                print one JSON document on stdout
  --parsable            print only the chain ID
  --controller WHO      who looks after the chain: daemon; job: the jobs of the chain, without a daemon; auto
                        (default): job if no daemon answers and the home directory is on a network file system
  --socket FILE         socket of the daemon, or its http(s):// URL
  -h, --help            show this help; for all other options see man sbatch

Examples:
  mirage submit train.sh                          run until you cancel the chain or a link exits with 0
  mirage submit --links 8 -t 2-00:00:00 train.sh  eight links of two days
  mirage submit --total-time 30d --handover when-ready serve.sh
  mirage submit --dry-run train.sh                show what would be submitted

Exit codes: 0 ok, 1 error, 2 usage, 3 not found, 4 rejected, 5 no daemon.
"""


def submit_command(context: typer.Context) -> None:
    """Create a chain from a batch script."""
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
    """Run ``mirage submit`` with these arguments."""
    from mirage.cli.chain_request import make_plan
    from mirage.cli.connection import exit_codes

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
    from mirage.cli.chain_request import read_command_line

    try:
        return read_command_line(argv)
    except BadSpelling as error:
        raise _usage_error(error) from None


def _usage_error(error: BadSpelling) -> SystemExit:
    typer.echo(f"mirage: {error}\nTry mirage submit --help", err=True)
    return SystemExit(2)


def outside() -> SubmissionContext:
    """Return what a plan reads from this process and this machine."""
    from mirage.cli.chain_request import Shell, SubmissionContext
    from mirage.slurm.sbatch import read_resource_limits, read_umask

    return SubmissionContext(
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
        raise MirageError("the working directory does not exist any more; change to another one") from None


def _other_group(group: int) -> str:
    """Return the name of ``group`` where it is not the user's primary one, else an empty text."""
    if group == pwd.getpwuid(os.getuid()).pw_gid:
        return ""
    try:
        return grp.getgrgid(group).gr_name
    except KeyError:
        return f"GID {group}"


def text_of(value: bytes) -> str:
    """Decode bytes as everywhere in Mirage, independent of the locale."""
    return value.decode("utf-8", "surrogateescape")


def _slurm_time() -> Seconds:
    """Now, on Slurm's clock: a testbed's may run fast."""
    clock = os.environ.get("MIRAGE_CLUSTER__CLOCK")
    if not clock:
        return int(time.time())
    from mirage.control.clocks import read_clock

    return read_clock(Path(clock)).now()


def default_limit(partition: str) -> Seconds:
    """Return the partition's default time limit from ``scontrol``.

    Raises ``ClusterUnavailable``, and ``ConfigError`` for an unknown partition.
    """
    from mirage.slurm.shares_and_partitions import read_default_limit

    try:
        answer = slurm_commands().run(["scontrol", "--oneliner", "show", "partition"])
        problem = answer.said if answer.status else ""
    except ClusterUnavailable as error:
        problem = str(error)
    if problem:
        raise ClusterUnavailable(
            f"--time is missing, and the partition's default time limit cannot be read: {problem}"
        )
    try:
        return read_default_limit(answer.out, partition)
    except BadSpelling as error:
        raise ConfigError("--partition", f"{partition!r}: {error.problem}") from None


def _send(plan: ChainRequest, line: CommandLine) -> None:
    from mirage.cli.connection import connect
    from mirage.cli.controllers import choose_controller
    from mirage.cli.heldlinks import add_held_links, held_links

    choose_controller(line, plan.request.partition)
    if plan.chain:
        _tell_added(*add_held_links(plan, connect(line.value("socket") or ""), slurm_commands()), line)
        return
    warn_of_parts(plan)
    warn_of_untrapped(plan)
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


def _tell_first_link(daemon: Client, plan: ChainRequest, line: CommandLine) -> None:
    """Raises ``SystemExit`` where Slurm will never accept the first link."""

    found = await_first_link(daemon, plan.chain_id)
    if found.rejected:
        typer.echo(f"mirage: no job submitted: {found.why_not}; chain {plan.chain_id} is cancelled", err=True)
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
