"""Jobs that their users submitted with ``sbatch``: what Slurm shows of them, and whether they ask for a chain.

A job asks for one, it is **marked**, by ``#MIRAGE`` lines in its script or by a comment such as
``mirage: --links 5``. ``MarkedJobs`` acts in a process of the job's owner: what it reads is the owner's, and it
creates the chain with ``mirage adopt``, as the owner could.
"""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

from mirage.backends.agent_requests import LONGEST_TEXT, AgentResponse, Verdict
from mirage.backends.execution import CommandRunner, TooMuch, converse
from mirage.documentreading import decode_foreign
from mirage.domain.bounds import LARGEST_SCRIPT
from mirage.domain.errors import BadSpelling, ClusterUnavailable, ConfigError
from mirage.domain.job import JobState
from mirage.domain.tags import split_tag
from mirage.ownprocess import own_python
from mirage.slurm import batchscript
from mirage.slurm.error_messages import one_line, unreachable
from mirage.slurm.shown_jobs import read_shown_job
from mirage.slurm.wrapper import unwrapped

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mirage.domain.job import JobId
    from mirage.slurm.shown_jobs import ShownJob


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
        raise UnknownHere(place_of(job_id), f"not found in Slurm: {one_line(answer.said)}")
    try:
        return read_shown_job(answer.out, job_id)
    except BadSpelling as error:
        raise ClusterUnavailable(f"scontrol show job {job_id}: {error}") from None


def check_adoptable(job: ShownJob, uid: int) -> None:
    """Raise ``Unfit`` for a job that cannot be the first link of a chain of the user ``uid``."""
    if problem := _problem(job, uid):
        raise Unfit(place_of(job.job_id), problem)


def read_script(job_id: JobId, commands: CommandRunner) -> str:
    """Return the batch script that Slurm stores. Raises ``ConfigError``."""
    answer = commands.run(["scontrol", "write", "batch_script", str(job_id), "-"])
    if answer.status or not answer.out:  # scontrol succeeds for a job without a script
        raise ConfigError(place_of(job_id), f"Slurm does not show its batch script: {one_line(answer.said)}")
    return answer.out


def set_comment(job_id: JobId, comment: str, commands: CommandRunner) -> None:
    """Raises ``ConfigError`` where Slurm rejects it, and ``ClusterUnavailable``."""
    answer = commands.run(["scontrol", "update", f"JobId={job_id}", f"Comment={comment}"])
    if not answer.status:
        return
    said = one_line(answer.said)
    if unreachable(answer.said):
        raise ClusterUnavailable(f"scontrol update: {said}")
    raise ConfigError(
        place_of(job_id), f"the mark of the link cannot be written to its comment, so no chain is created: {said}"
    )


def place_of(job_id: JobId) -> str:
    """How errors name a job."""
    return f"job {job_id}"


def has_ended(job: ShownJob) -> bool:
    """Whether the job's script has ended."""
    return job.value("JobState").startswith("COMPLETING") or job.state.finished


def _is_further_part(job: ShownJob) -> bool:
    """Whether another job speaks for it: of an array and of a heterogeneous job the first."""
    return job.value("ArrayJobId") not in ("", str(job.job_id)) or job.value("HetJobOffset") not in ("", "0")


def _waits_for_others(job: ShownJob) -> bool:
    return job.state is JobState.PENDING and bool(job.value("Dependency"))


def _problem(job: ShownJob, uid: int) -> str:
    if job.uid != uid:
        return "the job belongs to another user; only its owner can adopt it"
    if job.value("ArrayJobId"):
        return "the job is a task of an array; a chain follows one job"
    if job.value("HetJobId"):
        return "the job is a component of a heterogeneous job; a chain follows one job"
    if has_ended(job):
        return f"the job has ended ({job.value('JobState')}); submit its script with mirage submit"
    if job.value("BatchFlag") != "1":
        return "the job has no batch script (salloc or srun), so no link can follow it"
    if _waits_for_others(job):
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


OFF = "mirage:off"
"""Comment of a job that no daemon adopts by itself; a reason may follow it."""
_OFF = re.compile(r"mirage:[ \t]*off(?![A-Za-z0-9._-])")
_OPTIONS = re.compile(r"mirage:[ \t]*(|--.*)", re.DOTALL)


def comment_options(comment: str) -> str | None:
    """Return the options in a comment such as ``mirage: --links 5``; ``None`` for any other comment."""
    found = _OPTIONS.fullmatch(comment.strip())
    return found[1] if found else None


def is_off(comment: str) -> bool:
    """Whether a comment says that the job is to be left alone."""
    return _OFF.match(comment.strip()) is not None


def why_marked(job: ShownJob, script: Callable[[], str]) -> str:
    """Return by what the job asks for a chain; empty if it does not.

    A link of Mirage asks for none. ``script`` is called only if the rest says neither. Raises what it raises.
    """
    comment = job.value("Comment")
    if is_off(comment) or split_tag(comment) or job.value("BatchFlag") != "1":
        return ""
    text = None if comment_options(comment) is None else f"its comment is {comment[:_SHOWN]!r}"
    found = script() if text is None else ""
    if text is None and batchscript.has_directives(found, batchscript.MIRAGE_LINE) and unwrapped(found) is None:
        text = "its script has #MIRAGE lines"
    return text or ""


_SHOWN = 80
"""Characters of a comment that are shown."""
_SUBMITS = re.compile(r"(?<![\w./-])(?:[\w./-]*/)?sbatch(?![\w.-])(.*)")
_ITSELF = ('"$0"', "$0", "${0}", "BASH_SOURCE")


def resubmission(script: str, command: str) -> str:
    """Return the line in which a script submits itself with ``sbatch``; empty if none does.

    ``command``: the file of the script, as Slurm shows it. A chain that continued such a job would multiply it.
    """
    name = PurePath(command).name
    for line in script.splitlines():
        if line.lstrip().startswith("#") or not (found := _SUBMITS.search(line)):
            continue
        words = re.split(r"[\s\"';|&()]+", found[1])
        if any(itself in found[1] for itself in _ITSELF) or (name and name in {PurePath(w).name for w in words}):
            return line.strip()[:_SHOWN]
    return ""


@dataclass(frozen=True, slots=True)
class Adopter:
    """How a daemon has marked jobs adopted, and whose."""

    adopt: Callable[[str, JobId], AgentResponse]
    """Adopts a job of a user, if it is marked; takes seconds. Raises ``NotPermitted``, ``ClusterUnavailable``."""
    serves: Callable[[str], bool] | None = None
    """Whether a process can act for a user; ``None``: look at jobs of users who have chains."""


_TIMEOUT = 100.0
"""Seconds for ``mirage adopt``: it waits for a cycle of the daemon."""
_LONGEST = 1 << 20
"""Bytes of what it may print."""
_OF_A_UNIT = (
    "NOTIFY_SOCKET",
    "WATCHDOG_",
    "LISTEN_FD",
    "LISTEN_PID",
    "MEMORY_PRESSURE_",
    "INVOCATION_ID",
    "JOURNAL_STREAM",
    "MAINPID",
)
"""Beginnings of variables by which systemd speaks to the daemon."""


class MarkedJobs:
    """Adopts marked jobs of the user whom this process belongs to."""

    def __init__(self, commands: CommandRunner, environment: Mapping[str, str]) -> None:
        """``environment``: of ``mirage adopt`` and of the next links; ``MIRAGE_SOCKET`` names the daemon."""
        self._commands = CommandRunner(commands.environment, most=LARGEST_SCRIPT)
        self._environment = {name: value for name, value in environment.items() if not name.startswith(_OF_A_UNIT)}

    def adopt(self, job_id: JobId) -> AgentResponse:
        """Adopt the job if it is marked. Raises no error of Slurm or of the daemon.

        ``DONE`` with the job's ID: it is link 1 of a chain; without: it does not ask for one. ``REJECTED``: it
        asks and cannot have one, the text says why. ``BLOCKED`` and ``UNAVAILABLE``: a later try may succeed.
        """
        try:
            job = read_job(job_id, self._commands)
            if job.uid != os.getuid() or has_ended(job) or _is_further_part(job):
                return AgentResponse(Verdict.DONE)
            if not why_marked(job, lambda: read_script(job_id, self._commands)):
                return AgentResponse(Verdict.DONE)
        except ClusterUnavailable as error:
            return AgentResponse.failed(error)
        except ConfigError:  # Slurm does not show the job any more, or keeps no scripts
            return AgentResponse(Verdict.DONE)
        if _waits_for_others(job):
            return AgentResponse(Verdict.BLOCKED, text="the job depends on other jobs")
        return self._run(job_id)

    def _run(self, job_id: JobId) -> AgentResponse:
        argv = own_python("-m", "mirage", "adopt", str(job_id), "--if-marked", "--parsable", "--quiet")
        try:
            process = subprocess.Popen(  # noqa: S603 - this program
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self._environment,
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            return AgentResponse(Verdict.UNAVAILABLE, text=f"mirage adopt cannot be run: {error.strerror}")
        with process:
            try:
                out, err = converse(process, b"", _TIMEOUT, _LONGEST)
            except (TimeoutError, TooMuch):
                process.kill()
                return AgentResponse(Verdict.UNAVAILABLE, text=f"mirage adopt has not ended in {_TIMEOUT:g} s")
        return _answer(job_id, process.returncode, decode_foreign(out), decode_foreign(err))


def _answer(job_id: JobId, status: int, out: str, err: str) -> AgentResponse:
    said = one_line(err.strip().rpartition("\n")[2].removeprefix("mirage: "))[:LONGEST_TEXT]
    match status:
        case 0 if chain := out.strip():
            return AgentResponse(Verdict.DONE, job_id, text=chain[:LONGEST_TEXT])
        case 0 | 3:
            return AgentResponse(Verdict.DONE)
        case 2 | 4:
            return AgentResponse(Verdict.REJECTED, text=said)
    return AgentResponse(Verdict.UNAVAILABLE, text=said or f"mirage adopt: exit {status}")
