"""Actions in a process of the user, by Slurm's commands: the common part of the agent and the sudo helper.

The helper reads one request from stdin and writes one response to stdout. The first line of the output comes
before any action: without it nothing was done.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

from mirage.backends.agent_requests import (
    AdoptJob,
    AgentRequest,
    AgentResponse,
    BadOrder,
    CancelJob,
    CheckFiles,
    SignalJob,
    UpdateJob,
    Verdict,
)
from mirage.backends.background_files import CheckLimits, local_files
from mirage.backends.cli_actuator import CliActuator
from mirage.backends.links_only import JobIdentity, LinksOnly
from mirage.backends.marked_jobs import MarkedJobs
from mirage.domain.bounds import LARGEST_ENVIRONMENT, LARGEST_SCRIPT
from mirage.domain.errors import BadSpelling, ClusterUnavailable, MirageError, NotPermitted, UnknownJob
from mirage.domain.files import WatchedFile
from mirage.domain.job import ABSENT, JobRequest
from mirage.ports import Actuator
from mirage.slurm import error_messages
from mirage.slurm.job_state import parse_state

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import BinaryIO, TextIO

    from mirage.backends.agent_requests import Act
    from mirage.backends.execution import CommandRunner
    from mirage.domain.files import FileState
    from mirage.domain.job import JobId, JobState

_EPOCH, _END = {"SLURM_TIME_FORMAT": "%s", "TZ": "UTC"}, "\x1e"
_SHAPE = "%i %u %V %T %k"
_TIMEOUT, _PATIENCE = 3.0, 4.0
"""Seconds; less than the next order waits for an agent that is busy."""


def own_links(commands: CommandRunner, user: str, environment: Mapping[str, str] | None = None) -> LinksOnly:
    """Acts on the links of ``user``, who is the user of this process, and adopts jobs that ask for it.

    ``environment``: of ``mirage adopt`` and of the links that follow such a job; ``None``: that of ``commands``.
    """
    files = local_files(CheckLimits(timeout=_TIMEOUT))
    marked = MarkedJobs(commands, commands.environment if environment is None else environment).adopt

    def check(paths: tuple[str, ...]) -> tuple[FileState, ...]:
        return files.ask([WatchedFile(user, path) for path in paths], _PATIENCE)

    return LinksOnly(CliActuator(commands, user), user, lambda job_id: identify(commands, job_id), check, marked)


def identify(commands: CommandRunner, job_id: JobId) -> JobIdentity:
    """Owner, comment, submission time and state of a job.

    Raises ``UnknownJob`` and ``ClusterUnavailable``.
    """
    what = f"squeue --jobs={job_id}"
    answer = commands.run(
        ["squeue", "--noheader", "--all", "--states=all", f"--jobs={job_id}", f"--format={_SHAPE}{_END}"],
        environment=commands.environment | _EPOCH,
    )
    if answer.status:
        raise error_messages.refused_act(answer.said, what)
    *rows, _ = answer.out.split(_END)
    if not rows:
        raise UnknownJob(f"{what}: no such job")
    if len(rows) > 1:
        raise ClusterUnavailable(f"{what}: expected one job, found {len(rows)}")
    cells = rows[0].strip().split(" ", maxsplit=4)
    if len(cells) < 4:
        raise ClusterUnavailable(f"{what}: {rows[0].strip()[:80]!r} is no job")
    shown, user, submit, word, *comment = cells
    instant = int(submit) if submit.isdecimal() else ABSENT
    return JobIdentity(user, "".join(comment).strip(), instant, _state(word), alone=shown == str(job_id))


def _state(word: str) -> JobState | None:
    try:
        return parse_state(word)
    except BadSpelling:
        return None


class UserSide(Actuator, Protocol):
    """Actions that a process of the user performs on request."""

    def check_files(self, paths: tuple[str, ...], owner: str) -> tuple[FileState, ...]:
        """The states of these files, in order. Raises ``NotPermitted``."""

    def adopt_job(self, job_id: JobId, owner: str) -> AgentResponse:
        """Adopt a job that asks for it. Raises ``NotPermitted``."""


def execute(order: AgentRequest, actuator: UserSide, now: Callable[[], float] = time.time) -> AgentResponse:
    """Do what ``order`` says, with an actuator that may act for its owner, unless it is too late for it.

    Errors become answers; an error that is no ``MirageError`` is a bug and is raised.
    """
    late = now() - order.start_by
    if late > 0:
        return AgentResponse(Verdict.TOO_LATE, text=f"the order to {order.sentence} came {late:.0f} s too late")
    try:
        return _carry_out(order, actuator)
    except MirageError as error:
        return AgentResponse.failed(error)


def carry_out(act: Act, owner: str, actuator: Actuator) -> AgentResponse:
    """Do what ``act`` says to jobs of ``owner``. Raises what ``actuator`` raises."""
    match act:
        case JobRequest() as request:
            return AgentResponse(Verdict.DONE, actuator.submit(request))
        case CancelJob(job_id):
            actuator.cancel(job_id, owner)
        case UpdateJob(job_id, change):
            actuator.update(job_id, owner, change)
        case SignalJob(job_id, signal, reach):
            actuator.signal(job_id, owner, signal, reach=reach)
        case CheckFiles():
            raise NotPermitted(f"{owner}: files are not checked by acts on jobs")
        case AdoptJob(job_id):
            raise NotPermitted(f"{owner}: job {job_id} is not adopted by acts on links")
    return AgentResponse(Verdict.DONE)


def _carry_out(order: AgentRequest, actuator: UserSide) -> AgentResponse:
    match order.act:
        case CheckFiles(paths):
            return AgentResponse(Verdict.DONE, files=actuator.check_files(paths, order.owner))
        case AdoptJob(job_id):
            return actuator.adopt_job(job_id, order.owner)
        case act:
            return carry_out(act, order.owner, actuator)


GREETING = "mirage-act 1"
_LONGEST = 6 * (LARGEST_SCRIPT + 3 * LARGEST_ENVIRONMENT)
"""Bytes of an order: the largest script, environment, options and arguments, each byte escaped as ``\\udcff``."""


def serve(read: BinaryIO, write: TextIO, actuator: LinksOnly) -> None:
    """Greet, read an order, execute it with ``actuator`` as far as that permits, and write the answer."""
    write.write(GREETING + "\n")
    write.flush()
    answer = _obey(read.read(_LONGEST + 1), actuator)
    write.write(answer.to_text() + "\n")
    write.flush()


def _obey(text: bytes, actuator: LinksOnly) -> AgentResponse:
    if len(text) > _LONGEST:
        return AgentResponse(Verdict.NOT_PERMITTED, text=f"the request is longer than {_LONGEST} bytes")
    try:
        order = AgentRequest.from_text(text)
    except BadOrder as error:
        return AgentResponse(Verdict.NOT_PERMITTED, text=f"the request cannot be read: {error}")
    return execute(order, actuator)
