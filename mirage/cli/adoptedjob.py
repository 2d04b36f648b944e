"""The job that is to become link 1: what Slurm shows of it to its owner, and its mark."""

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
"""Answers next to those of the client's own making after which certainly no chain was made."""


class UnknownHere(ConfigError):
    """Slurm does not show the job."""


class Unfit(ConfigError):
    """The job cannot be the first link of a chain."""


def read_job(job_id: JobId, commands: Commands) -> ShownJob:
    """As ``scontrol show job`` has it. Raises ``UnknownHere`` and ``ClusterUnavailable``."""
    answer = commands.run(["scontrol", "show", "job", str(job_id)])
    if answer.status and unreachable(answer.said):
        raise ClusterUnavailable(f"scontrol: {one_line(answer.said)}")
    if answer.status:
        raise UnknownHere(_place(job_id), f"Slurm does not show it: {one_line(answer.said)}")
    try:
        return read_shown_job(answer.out, job_id)
    except BadSpelling as error:
        raise ClusterUnavailable(f"scontrol show job {job_id}: {error}") from None


def check_adoptable(job: ShownJob, uid: int) -> None:
    """Raise ``Unfit`` for a job that cannot be the first link of a chain of the user ``uid``."""
    if problem := _problem(job, uid):
        raise Unfit(_place(job.job_id), problem)


def read_script(job_id: JobId, commands: Commands) -> str:
    """Its batch script, as Slurm keeps it for the owner. Raises ``ConfigError``."""
    answer = commands.run(["scontrol", "write", "batch_script", str(job_id), "-"])
    if answer.status or not answer.out:  # scontrol ends well where it has none
        raise ConfigError(_place(job_id), f"Slurm does not show its batch script: {one_line(answer.said)}")
    return answer.out


def read_submit_line(job: ShownJob, commands: Commands) -> str:
    """The command line of ``sbatch``, words joined by blanks; empty where Slurm or its accounting has none."""
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
    """While the chain is made, and after that: the job's comment is the mark of its link.

    Where certainly no chain was made, the comment that the job had is put back. Where that is not known the mark
    stays: it is what the chain's link is known by. Raises ``Unfit`` for a job that has another chain's mark
    by now.
    """
    check_adoptable(read_job(job.job_id, commands), job.uid)
    try:
        _set_comment(job.job_id, tag, commands)
    except MirageError:
        _put_back(job, commands)  # it may have been set all the same
        raise
    try:
        yield
    except ClientError as error:
        if _certainly_not_made(error):
            _put_back(job, commands)
        raise


def other_mark(job: ShownJob, tag: str, commands: Commands) -> str:
    """The comment that the job has instead of ``tag``: another chain may be made of it at the same time."""
    try:
        comment = read_job(job.job_id, commands).value("Comment")
    except MirageError:  # it has ended meanwhile, or Slurm does not answer: nothing speaks against the chain
        return ""
    return "" if comment == tag else comment or "none"


def _certainly_not_made(error: ClientError) -> bool:
    if isinstance(error, Refusal):
        return error.status < 500 or error.status in _NOT_STORED
    return not isinstance(error, Unanswered)


def _problem(job: ShownJob, uid: int) -> str:
    if job.uid != uid:
        return "it is not yours; only its owner can make a chain of it"
    if job.value("ArrayJobId"):
        return "it is a task of an array; a chain follows one job"
    if job.value("HetJobId"):
        return "it is a component of a heterogeneous job; a chain follows one job"
    if job.value("JobState").startswith("COMPLETING") or job.state.finished:
        return f"it has ended ({job.value('JobState')}); submit its script with mirage submit"
    if job.value("BatchFlag") != "1":
        return "it has no batch script (salloc or srun), so nothing could follow it"
    if job.state is JobState.PENDING and job.value("Dependency"):
        return (
            f"it waits for other jobs ({job.value('Dependency')}), the next links would not; adopt it once it runs"
        )
    if link := split_tag(job.value("Comment")):
        return (
            f"by its comment it is link {link[1]} of chain {link[0]} already: see mirage chain show {link[0]}. "
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
        _place(job_id), f"its comment cannot be set to the mark of the link, so no chain is made: {said}"
    )


def _put_back(job: ShownJob, commands: Commands) -> None:
    try:
        _set_comment(job.job_id, job.value("Comment"), commands)
    except MirageError as error:
        show(f"mirage: the comment of job {job.job_id} could not be put back: {error}", err=True)


def _place(job_id: JobId) -> str:
    return f"job {job_id}"
