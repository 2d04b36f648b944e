"""Questions to Slurm before a chain exists: does it accept the request; what is the adopted job.

An adopted job becomes link 1; the mark of its link is set in its comment.
"""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from mirage.backends.cli_actuator import CliActuator
from mirage.backends.marked_jobs import (
    OFF,
    Unfit,
    UnknownHere,
    check_adoptable,
    comment_options,
    has_ended,
    place_of,
    read_job,
    resubmission,
    set_comment,
    why_marked,
)
from mirage.cli.printing import show
from mirage.client.errors import ClientError, Refusal, Unanswered
from mirage.domain.errors import BadSpelling, ClusterUnavailable, ConfigError, MirageError, SubmissionRejected
from mirage.domain.tags import split_tag
from mirage.domain.texts import one_line
from mirage.slurm.accounting import AT_ANY_TIME
from mirage.slurm.error_messages import is_permanent
from mirage.slurm.shares_and_partitions import (
    PARTITION_ARGUMENTS,
    RESERVATION_ARGUMENTS,
    SETTINGS,
    read_partition_nodes,
    read_reservations,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mirage.backends.execution import CommandRunner
    from mirage.client.client import Client
    from mirage.domain.job import JobId, JobRequest
    from mirage.slurm.shown_jobs import ShownJob

_NOT_STORED = (503,)
"""Server errors after which certainly no chain was created."""
_DENIED = (401, 403)
_LONGEST_NOTE = 200
"""Characters of a reason in a comment."""


def read_submit_line(job: ShownJob, commands: CommandRunner) -> str:
    """Return the ``sbatch`` command line, words joined by blanks; empty if Slurm and accounting have none."""
    if line := job.value("SubmitLine"):
        return line
    asked = ["sacct", "--noheader", "--parsable2", "--allocations", "--format=SubmitLine", f"--jobs={job.job_id}"]
    asked += AT_ANY_TIME  # this shell's clock may not be Slurm's
    try:
        answer = commands.run(asked)
    except ClusterUnavailable:
        return ""
    return "" if answer.status else answer.out.strip()


@contextmanager
def marked(job: ShownJob, tag: str, commands: CommandRunner) -> Iterator[None]:
    """Set the job's comment to the mark of its link, before the chain is created and permanently.

    If certainly no chain was created the old comment is restored. If that is unknown the mark stays, because the
    daemon identifies the link by it. Raises ``Unfit`` for a job that has another chain's mark by now.
    """
    check_adoptable(read_job(job.job_id, commands), job.uid)
    try:
        set_comment(job.job_id, tag, commands)
    except MirageError:
        _put_back(job, tag, commands)  # the failed command may have set it
        raise
    try:
        yield
    except ClientError as error:
        if _certainly_not_made(error):
            _put_back(job, tag, commands)
        raise


def other_mark(job: ShownJob, tag: str, commands: CommandRunner) -> str:
    """Return a comment other than ``tag``: another chain may have adopted the job at the same time."""
    try:
        comment = read_job(job.job_id, commands).value("Comment")
    except MirageError:  # the job has ended, or Slurm does not reply: no objection
        return ""
    return "" if comment == tag else comment or "none"


def read_wish(job: ShownJob, script: Callable[[], str]) -> str:
    """Return by what a job asks for a chain; empty if it does not, or has ended.

    Raises ``Unfit`` for a script that would multiply the chain, and what ``script`` raises.
    """
    if has_ended(job):
        return ""
    wish = why_marked(job, script)
    if wish and (line := resubmission(script(), job.value("Command").partition(" ")[0])):
        problem = f"its script submits itself ({line}), which the chain does as well; remove that line"
        raise Unfit(place_of(job.job_id), problem)
    return wish


def check_name(name: str, daemon: Client) -> None:
    """Raise ``Unfit`` if a chain of this name is not over: its own script may have submitted the job."""
    for chain in daemon.iterate_chains():
        if chain.name == name and not chain.over:
            advice = "give the job another name, or run mirage adopt"
            raise Unfit("the job", f"your chain {chain.id} has the same name {name!r}; {advice}")


@contextmanager
def announced(job_id: JobId, commands: CommandRunner) -> Iterator[None]:
    """Write into the job's comment why it cannot become a chain, so that no daemon tries again.

    A comment of the owner's own stays. Raises ``Unfit`` with the reason, or ``UnknownHere`` if the job has ended
    or is a link by now. Passing errors are raised unchanged.
    """
    try:
        yield
    except UnknownHere:
        raise
    except (BadSpelling, ConfigError, Refusal) as error:
        if isinstance(error, Refusal) and (not error.permanent or error.status in _DENIED):
            raise
        job, reason = read_job(job_id, commands), str(error).removeprefix(f"{place_of(job_id)}: ")
        comment = job.value("Comment")
        if has_ended(job) or split_tag(comment):
            raise UnknownHere(place_of(job_id), "it has ended, or is a link already") from None
        if not comment or comment_options(comment) is not None:
            with suppress(MirageError):
                set_comment(job_id, f"{OFF} {one_line(reason, _LONGEST_NOTE)}", commands)
        raise Unfit(place_of(job_id), reason) from None


def _certainly_not_made(error: ClientError) -> bool:
    if isinstance(error, Refusal):
        return error.status < 500 or error.status in _NOT_STORED
    return not isinstance(error, Unanswered)


def _put_back(job: ShownJob, tag: str, commands: CommandRunner) -> None:
    """Restore the old comment, but leave a mark that another daemon has set meanwhile."""
    try:
        if other_mark(job, tag, commands):
            return
        set_comment(job.job_id, job.value("Comment"), commands)
    except MirageError as error:
        show(f"mirage: the old comment of job {job.job_id} could not be restored: {error}", err=True)


_AVAILABLE = ("alloc", "idle", "mix", "comp", "plnd")
_ANYWAY = "correct it, or submit with --no-check"


def check_directory(request: JobRequest) -> None:
    """Raise ``ConfigError`` if the working directory of the links does not exist."""
    directory = request.batch.directory if request.batch else ""
    if directory and not Path(directory).is_dir():
        raise ConfigError("--chdir", f"directory '{directory}' does not exist; {_ANYWAY}")


def check_done_file(path: str) -> None:
    """Raise ``ConfigError`` if the done-file exists already: no link would be submitted.

    Also for a directory or a dangling symbolic link, which could never end the chain.
    """
    if not path or not os.path.lexists(path):
        return
    if Path(path).is_file():
        problem = f"'{path}' already exists, so the chain would end before its first link; remove the file"
    else:
        problem = f"'{path}' is not a readable file, so it could never end the chain; name another file"
    raise ConfigError("--done-file", f"{problem}, or submit with --no-check")


def check_request(request: JobRequest, commands: CommandRunner) -> str:
    """Ask Slurm whether it would accept the link (``sbatch --test-only``); return a remark or an empty text.

    Raises ``ConfigError`` with Slurm's message if no retry can fix the rejection. A temporary rejection is only a
    remark, because the daemon retries. If Slurm does not reply there is no remark.
    """
    try:
        CliActuator(commands, request.user).estimate_start(request)
    except ClusterUnavailable:
        return ""
    except SubmissionRejected as error:
        if not is_permanent(error.reason) or _nodes_may_be_away(error, request, commands):
            return f"Slurm does not accept the first link now: {error}; Mirage retries until Slurm accepts it"
        raise ConfigError(request.name, f"Slurm rejects this job: {error}; {_ANYWAY}") from None
    return ""


def why_rejected(request: JobRequest, commands: CommandRunner) -> str:
    """Return Slurm's message if it would reject such a job permanently; else an empty text."""
    try:
        CliActuator(commands, request.user).estimate_start(request)
    except SubmissionRejected as error:
        if is_permanent(error.reason) and not _nodes_may_be_away(error, request, commands):
            return f"Slurm rejects such a job: {error}"
    except ClusterUnavailable:
        pass
    return ""


def _has_reserved_nodes(partition: str, commands: CommandRunner) -> bool:
    """Whether a reservation that is active takes nodes of the partition; an empty name means the default one."""
    environment = commands.environment | SETTINGS
    try:
        shown = commands.run(["scontrol", *RESERVATION_ARGUMENTS], environment=environment).out
        active = read_reservations("\n".join(line for line in shown.splitlines() if "State=ACTIVE" in line))
        if not active:
            return False
        answer = commands.run(["scontrol", *PARTITION_ARGUMENTS], environment=environment)
        partitions = read_partition_nodes(answer.out)
    except (ClusterUnavailable, BadSpelling):
        return True
    named = partition.split(",") if partition else [name for name, each in partitions.items() if each.default]
    nodes = frozenset[str]().union(*(partitions[name].nodes for name in named if name in partitions))
    return any(each.nodes & nodes for each in active)


def _nodes_may_be_away(error: SubmissionRejected, request: JobRequest, commands: CommandRunner) -> bool:
    """``--test-only`` treats down, drained and reserved nodes as missing; ``sbatch`` does not."""
    if error.reason != "BadConstraints":
        return False
    if _has_reserved_nodes(request.partition, commands):
        return True  # a reserved node that runs a job is shown as allocated
    where = [f"--partition={request.partition}"] if request.partition else []
    try:
        answer = commands.run(["sinfo", "--noheader", "--format=%t", *where])
    except ClusterUnavailable:
        return True
    states = [line.strip() for line in answer.out.split(os.linesep) if line.strip()]
    return answer.status != 0 or not all(state.rstrip("*~#!%$@^-").startswith(_AVAILABLE) for state in states)
