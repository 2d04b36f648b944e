"""``mirage adopt``: a job that runs or waits already becomes the first link of a chain."""

from __future__ import annotations

import json
import os
import shlex
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING
from urllib.parse import quote

import typer

from mirage.cli.printing import show
from mirage.cli.sending import (
    check_plan,
    make_room,
    post_chain,
    show_plan,
    slurm_commands,
    tell_warnings,
    warn_of_parts,
)
from mirage.domain.errors import BadSpelling, ConfigError
from mirage.domain.job import job_id_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mirage.cli.chain_request import ChainRequest, CommandLine
    from mirage.domain.job import JobId
    from mirage.slurm.shown_jobs import ShownJob

USAGE = """\
Usage: mirage adopt [OPTIONS] JOBID [OPTIONS] [-- ARGUMENTS]

Create a chain from one of your jobs that is running or pending in Slurm. The job becomes link 1 and continues
unchanged. Mirage submits the next links from its batch script in your name, so that each one starts when its
predecessor ends. The next links have:
  - the #SBATCH and #MIRAGE lines of the script;
  - the job's time limit, partition, account, QOS, directory, nodes, tasks, memory, GPUs and output files;
  - the options of its sbatch command, if accounting stores them. If not, repeat options that Slurm does not show,
    such as --signal;
  - the environment of this shell.

Options are those of mirage submit (see mirage submit --help): options of the chain, such as --links, --total-time,
--done-file and --handover, and options of sbatch for the next links. ARGUMENTS are the arguments of the script.
Without them Mirage uses those that Slurm shows, and Slurm splits an argument that contains blanks.

Only the comment of the job changes: it becomes the mark of the link. The job's exit code counts as that of every
link: 0 means that the work is done, unless --done-exit-code or --done-file say otherwise. Its run time counts for
--total-time, and mirage chain cancel cancels it. It has no MIRAGE_ variables. With --handover none, the default,
no link starts before the job has ended.

The daemon adopts a job by itself if its script has #MIRAGE lines, or if its comment begins with "mirage:", such as
sbatch --comment "mirage: --links 8" train.sh (chains.adopt in the configuration). Options in the comment override
those of the script. A job with the comment mirage:off is left alone.

  --if-marked           do nothing unless the daemon would adopt the job by itself; if the job cannot become a
                        chain, set its comment to mirage:off and the reason
  --dry-run             show what would be submitted, but change nothing
  --no-check            skip the check whether Slurm would accept the next link
  --json, --parsable    print one JSON document on stdout; print only the chain ID
  --controller WHO      as in mirage submit; the adopted job itself runs no controller
  --socket FILE         socket of the daemon, or its http(s):// URL
  -h, --help            show this help

Examples:
  mirage adopt 4711                               run until you cancel the chain or a link exits with 0
  mirage adopt 4711 --links 8 --handover none     the job, and seven links after it
  mirage adopt 4711 --total-time 30d -t 1-00:00:00 --signal B:USR1@300
  mirage adopt 4711 --dry-run                     show what would be submitted

Exit codes: 0 ok, 1 error, 2 usage, 3 not found, 4 rejected, 5 no daemon.
"""
_NOT_FOUND, _REFUSED = 3, 4
_DIGITS = 10
_LONGEST = 400
"""Characters of a command line that are shown."""
_SHOWN = 80
"""Characters of a comment that are shown."""
_NOT_HERE = {
    "wrap": "the script is the job's",
    "hold": "it applies to the first link, which already exists",
    "begin": "it applies to the first link, which already exists",
    "held-links": "this command creates a chain whose first link is not held",
    "chain": "this command creates a chain",
}


def adopt_command(context: typer.Context) -> None:
    """Create a chain from a running or pending job."""
    adopt(context.args)


def adopt(argv: Sequence[str]) -> None:
    """Run ``mirage adopt`` with these arguments."""
    from mirage.backends.marked_jobs import Unfit, UnknownHere

    try:
        _adopt(argv)
    except (Unfit, UnknownHere) as error:
        show(f"mirage: {error}", err=True)
        raise SystemExit(_NOT_FOUND if isinstance(error, UnknownHere) else _REFUSED) from None


def _adopt(argv: Sequence[str]) -> None:
    from mirage.cli.connection import exit_codes
    from mirage.cli.slurm_checks import announced
    from mirage.cli.submit import text_of

    try:
        line, word = _read([text_of(os.fsencode(word)) for word in argv])
        if line.has("help", "usage"):
            typer.echo(USAGE, nl=False)
            return
        job_id = _job_id(line, word)
        with exit_codes(), announced(job_id, slurm_commands()) if line.has("if-marked") else nullcontext():
            _perform(line, job_id)
    except BadSpelling as error:
        show(f"mirage: {error}", err=True)
        show("Try mirage adopt --help", err=True)
        raise SystemExit(2) from None


def _perform(line: CommandLine, job_id: JobId) -> None:
    adoption = _plan(line, job_id)
    if adoption is None:
        return
    for remark in () if line.has("quiet") else adoption.plan.remarks:
        show(f"mirage: {remark}", err=True)
    if line.has("dry-run"):
        show_plan(adoption.plan, 2, as_json=line.has("json"))
    else:
        _send(adoption, line)


def _read(argv: Sequence[str]) -> tuple[CommandLine, str]:
    """The command line with the script's arguments, and the word for the job; options may follow that one."""
    from mirage.cli.chain_request import ADOPT, ADOPT_NAMES, CommandLine, read_command_line

    first = read_command_line(argv, ADOPT, ADOPT_NAMES)
    rest = read_command_line(first.arguments, ADOPT, ADOPT_NAMES)
    arguments = (rest.script, *rest.arguments) if rest.script or rest.arguments else ()
    if arguments and "--" not in argv:
        raise BadSpelling(arguments[0], "expected one job ID; put arguments of the script after --")
    return CommandLine((*first.sbatch, *rest.sbatch), first.chain | rest.chain, "", arguments), first.script


def _job_id(line: CommandLine, word: str) -> JobId:
    for name, why in _NOT_HERE.items():
        if line.has(name):
            raise BadSpelling(f"--{name}", f"cannot be given here: {why}")
    if not word:
        raise BadSpelling("JOBID", "is missing; squeue --me shows the IDs of your jobs")
    if not (word.isascii() and word.isdigit() and len(word) <= _DIGITS):
        raise BadSpelling(word, "expected a job ID, such as 4711; an array task cannot be a link")
    return job_id_of(int(word))


@dataclass(frozen=True, slots=True)
class _Adoption:
    """The chain that a job is to begin."""

    plan: ChainRequest
    job: ShownJob
    why: str
    """Why it is adopted without its owner's command; empty: by that command."""


def _plan(line: CommandLine, job_id: JobId) -> _Adoption | None:
    """``None``: the job is to be adopted only if it is marked, and is not."""
    from mirage.backends.marked_jobs import check_adoptable, read_job, read_script
    from mirage.cli.chain_request import Followed, Shell, make_plan
    from mirage.cli.slurm_checks import read_submit_line, read_wish
    from mirage.cli.submit import outside
    from mirage.slurm.shown_jobs import options_of_line, shown_arguments, without_nodes
    from mirage.slurm.wrapper import unwrapped

    commands = slurm_commands()
    job = read_job(job_id, commands)
    stored = cache(lambda: read_script(job_id, commands))
    wish = read_wish(job, stored) if line.has("if-marked") else ""
    if line.has("if-marked") and not wish:
        return None
    check_adoptable(job, os.getuid())
    script = stored()
    former = unwrapped(script)
    script, given = (former.script, former.arguments) if former else (script, ())
    line = replace(line, arguments=line.arguments or given or shown_arguments(job))
    submitted = read_submit_line(job, commands)
    options = options_of_line(submitted, job, script)
    bound = job.value("ReqNodeList") if former and former.gated else ""
    followed = Followed(job, script, options or ())
    if bound:
        others = tuple(option for option in followed.options if option.name != "nodelist")
        followed = Followed(without_nodes(job), script, others)
    here = outside()
    if wish:  # a daemon's process: its umask and limits are not the user's
        here = replace(here, shell=Shell())
    plan = make_plan(line, here, followed)
    remarks = list(_remarks(plan, job, submitted, known=options is not None))
    if former:
        remarks.append("the next links run the script inside Mirage's wrapper; changes around it are left out")
    if bound and not line.has("nodelist"):
        remarks.append(f"the job was a link of another chain: its binding to {bound} is not taken over")
    return _Adoption(replace(plan, remarks=(*plan.remarks, *remarks)), job, wish)


def _remarks(plan: ChainRequest, job: ShownJob, submitted: str, *, known: bool) -> Iterator[str]:
    """How the next links differ from the job, as far as it cannot be known or helped."""
    assert plan.request.batch is not None
    if arguments := plan.request.batch.arguments:
        yield f"arguments of the script: {shlex.join(arguments)}; if they are wrong, give them after --"
    stays = f"job {job.job_id} does not change; the next links get this shell's environment, and "
    if known:
        yield f"{stays}the options of its script and of its command line: {submitted[:_LONGEST]}"
    else:
        yield (
            f"{stays}options that Slurm does not show, such as --signal, only from the script and this command "
            "line"
        )
    if submitted and not known:
        yield (
            "options may be missing: Slurm stores the command line without quotes, and this one is ambiguous: "
            f"{submitted[:_LONGEST]}"
        )
    if comment := job.value("Comment"):
        yield f"the mark of the link replaces the comment {comment[:_SHOWN]!r} of job {job.job_id}"


def _send(adoption: _Adoption, line: CommandLine) -> None:
    """The mark first: without it the daemon takes no job, and by it the job is known whatever happens then."""
    from mirage.cli.connection import connect
    from mirage.cli.controllers import choose_controller
    from mirage.cli.slurm_checks import check_name, marked, other_mark
    from mirage.client.client import chain_path

    plan, job = adoption.plan, adoption.job
    choose_controller(line, plan.request.partition)
    warn_of_parts(plan)
    daemon = connect(line.value("socket") or "")
    if adoption.why:
        check_name(plan.document["name"], daemon)
    if line.has("no-check"):
        daemon.get("/cluster")  # nothing is marked for a daemon that is not there
    else:
        check_plan(plan, daemon)
    make_room(plan)
    tag = f"mirage:{plan.chain_id}:1"
    why = f"&adopt_because={quote(adoption.why, safe='')}" if adoption.why else ""
    with marked(job, tag, slurm_commands()):
        answer = post_chain(daemon, f"/chains?adopt={job.job_id}{why}", plan)
    if comment := other_mark(job, tag, slurm_commands()):
        daemon.patch(chain_path(plan.chain_id), {"done": {"links": 1}})
        raise ConfigError(
            f"job {job.job_id}",
            f"its comment is {comment[:_SHOWN]!r} now, not the mark of link 1: another daemon may follow it. "
            f"Chain {plan.chain_id} ends with this job and submits no further link",
        )
    tell_warnings(answer)
    if line.has("json"):
        typer.echo(json.dumps(answer))
    elif line.has("parsable"):
        show(plan.chain_id)
    elif not line.has("quiet"):
        show(f"Job {job.job_id} is link 1 of chain {plan.chain_id}")
