"""Questions to Slurm before a chain exists: does it accept the request; what is the adopted job.

An adopted job becomes link 1; the mark of its link is set in its comment.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from mirage.backends.cli_actuator import CliActuator
from mirage.cli.printing import show
from mirage.client.errors import ClientError, Refusal, Unanswered
from mirage.domain.errors import BadSpelling, ClusterUnavailable, ConfigError, MirageError, SubmissionRejected
from mirage.domain.job import JobState
from mirage.domain.tags import split_tag
from mirage.slurm.accounting import AT_ANY_TIME
from mirage.slurm.error_messages import is_permanent, one_line, unreachable
from mirage.slurm.shares_and_partitions import (
    PARTITION_ARGUMENTS,
    RESERVATION_ARGUMENTS,
    SETTINGS,
    read_partition_nodes,
    read_reservations,
)
from mirage.slurm.shown_jobs import read_shown_job

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirage.backends.execution import CommandRunner
    from mirage.domain.job import JobId, JobRequest
    from mirage.slurm.shown_jobs import ShownJob

_NOT_STORED = (503,)
"""Server errors after which certainly no chain was created."""


class UnknownHere(ConfigError):
    """Slurm does not show this job."""


class Unfit(ConfigError):
    """The job cannot be the first link of a chain."""


def read_job(job_id: JobId, commands: CommandRunner) -> ShownJob:
    """Read ``scontrol show job``. Raises ``UnknownHere`` and ``ClusterUnavailable``."""
    answer = commands.run(["scontrol", "show", "job", str(job_id)])
    if answer.status and unreachable(answer.said):
        raise ClusterUnavailable(f"scontrol: {one_line(answer.said)}")
    if answer.status:
        raise UnknownHere(_place(job_id), f"not found in Slurm: {one_line(answer.said)}")
    try:
        return read_shown_job(answer.out, job_id)
    except BadSpelling as error:
        raise ClusterUnavailable(f"scontrol show job {job_id}: {error}") from None


def check_adoptable(job: ShownJob, uid: int) -> None:
    """Raise ``Unfit`` for a job that cannot be the first link of a chain of the user ``uid``."""
    if problem := _problem(job, uid):
        raise Unfit(_place(job.job_id), problem)


def read_script(job_id: JobId, commands: CommandRunner) -> str:
    """Return the batch script that Slurm stores. Raises ``ConfigError``."""
    answer = commands.run(["scontrol", "write", "batch_script", str(job_id), "-"])
    if answer.status or not answer.out:  # scontrol succeeds for a job without a script
        raise ConfigError(_place(job_id), f"Slurm does not show its batch script: {one_line(answer.said)}")
    return answer.out


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
        _set_comment(job.job_id, tag, commands)
    except MirageError:
        _put_back(job, commands)  # the failed command may have set it
        raise
    try:
        yield
    except ClientError as error:
        if _certainly_not_made(error):
            _put_back(job, commands)
        raise


def other_mark(job: ShownJob, tag: str, commands: CommandRunner) -> str:
    """Return a comment other than ``tag``: another chain may have adopted the job at the same time."""
    try:
        comment = read_job(job.job_id, commands).value("Comment")
    except MirageError:  # the job has ended, or Slurm does not reply: no objection
        return ""
    return "" if comment == tag else comment or "none"


def _certainly_not_made(error: ClientError) -> bool:
    if isinstance(error, Refusal):
        return error.status < 500 or error.status in _NOT_STORED
    return not isinstance(error, Unanswered)


def _problem(job: ShownJob, uid: int) -> str:
    if job.uid != uid:
        return "the job belongs to another user; only its owner can adopt it"
    if job.value("ArrayJobId"):
        return "the job is a task of an array; a chain follows one job"
    if job.value("HetJobId"):
        return "the job is a component of a heterogeneous job; a chain follows one job"
    if job.value("JobState").startswith("COMPLETING") or job.state.finished:
        return f"the job has ended ({job.value('JobState')}); submit its script with mirage submit"
    if job.value("BatchFlag") != "1":
        return "the job has no batch script (salloc or srun), so no link can follow it"
    if job.state is JobState.PENDING and job.value("Dependency"):
        return (
            f"the job depends on other jobs ({job.value('Dependency')}), the next links would not; adopt it once "
            "it runs"
        )
    if link := split_tag(job.value("Comment")):
        return (
            f"its comment marks it as link {link[1]} of chain {link[0]}: see mirage chain show {link[0]}. "
            f"If no daemon has that chain, clear the comment: scontrol update JobId={job.job_id} Comment="
        )
    return ""


def _set_comment(job_id: JobId, comment: str, commands: CommandRunner) -> None:
    """Raises ``ConfigError`` where Slurm rejects it, and ``ClusterUnavailable``."""
    answer = commands.run(["scontrol", "update", f"JobId={job_id}", f"Comment={comment}"])
    if not answer.status:
        return
    said = one_line(answer.said)
    if unreachable(answer.said):
        raise ClusterUnavailable(f"scontrol update: {said}")
    raise ConfigError(
        _place(job_id), f"the mark of the link cannot be written to its comment, so no chain is created: {said}"
    )


def _put_back(job: ShownJob, commands: CommandRunner) -> None:
    try:
        _set_comment(job.job_id, job.value("Comment"), commands)
    except MirageError as error:
        show(f"mirage: the old comment of job {job.job_id} could not be restored: {error}", err=True)


def _place(job_id: JobId) -> str:
    return f"job {job_id}"


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
