"""The job that becomes link 1: what Slurm shows its owner, and the mark in its comment."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from mirage.cli.printing import show
from mirage.client.errors import ClientError, Refusal, Unanswered
from mirage.domain.chainid import split_tag
from mirage.domain.errors import BadSpelling, ClusterUnavailable, ConfigError, MirageError
from mirage.domain.job import JobState
from mirage.slurm.shownjob import read_shown_job
from mirage.slurm.wording import one_line, unreachable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirage.backends.execution import Commands
    from mirage.domain.job import JobId
    from mirage.slurm.shownjob import ShownJob

_NOT_STORED = (503,)
"""Server errors after which certainly no chain was created."""


class UnknownHere(ConfigError):
    """Slurm does not show this job."""


class Unfit(ConfigError):
    """The job cannot be the first link of a chain."""


def read_job(job_id: JobId, commands: Commands) -> ShownJob:
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


def read_script(job_id: JobId, commands: Commands) -> str:
    """Return the batch script that Slurm stores. Raises ``ConfigError``."""
    answer = commands.run(["scontrol", "write", "batch_script", str(job_id), "-"])
    if answer.status or not answer.out:  # scontrol succeeds for a job without a script
        raise ConfigError(_place(job_id), f"Slurm does not show its batch script: {one_line(answer.said)}")
    return answer.out


def read_submit_line(job: ShownJob, commands: Commands) -> str:
    """Return the ``sbatch`` command line, words joined by blanks; empty if Slurm and accounting have none."""
    if line := job.value("SubmitLine"):
        return line
    asked = ["sacct", "--noheader", "--parsable2", "--allocations", "--format=SubmitLine", f"--jobs={job.job_id}"]
    try:
        answer = commands.run(asked)
    except ClusterUnavailable:
        return ""
    return "" if answer.status else answer.out.strip()


@contextmanager
def marked(job: ShownJob, tag: str, commands: Commands) -> Iterator[None]:
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


def other_mark(job: ShownJob, tag: str, commands: Commands) -> str:
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


def _set_comment(job_id: JobId, comment: str, commands: Commands) -> None:
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


def _put_back(job: ShownJob, commands: Commands) -> None:
    try:
        _set_comment(job.job_id, job.value("Comment"), commands)
    except MirageError as error:
        show(f"mirage: the old comment of job {job.job_id} could not be restored: {error}", err=True)


def _place(job_id: JobId) -> str:
    return f"job {job_id}"
