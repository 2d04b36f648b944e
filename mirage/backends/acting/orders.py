"""Orders to act in a user's name, and the answers to them.

An agent is a process of the user: the carrier of requests between queue and agent has verified that.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from enum import Enum, auto

from mirage.backends.acting.wire import BadOrder, dump, load
from mirage.domain.errors import (
    ClusterUnavailable,
    JobBlocked,
    MirageError,
    NotPermitted,
    SubmissionRejected,
    UnknownJob,
)
from mirage.domain.files import FileState  # noqa: TC001 (read by its name when orders are)
from mirage.domain.job import JobChange, JobId, JobRequest, Seconds, SignalReach
from mirage.domain.link import NO_JOB
from mirage.domain.texts import one_line

LONGEST_ANSWER = 256 * 1024
"""Bytes of an answer on its way."""
LONGEST_TEXT = 500
"""Characters of a sentence in an answer."""
_PARTS, _PARTS_OF_FILE = 32, 16
"""Brackets, commas and strings of an answer, and for each file in it; about twice as many as it has."""
_LONGEST_WORD = 100
"""Characters of Slurm's reason, such as AssocMaxSubmitJobLimit."""


@dataclass(frozen=True, slots=True)
class Order:
    """One thing to do for ``owner``: exactly one of the five acts is there."""

    order_id: str
    owner: str
    start_by: Seconds
    """Deadline of the start (epoch, UTC): a later start is not allowed, as the request may have been repeated."""
    submit: JobRequest | None = None
    cancel: CancelJob | None = None
    update: UpdateJob | None = None
    signal: SignalJob | None = None
    check_files: CheckFiles | None = None

    @property
    def act(self) -> Act:
        """The one action that is requested."""
        (act,) = self._acts()
        return act

    @property
    def files(self) -> int:
        """How many files the answer may name."""
        return len(self.check_files.paths) if self.check_files is not None else 0

    @property
    def sentence(self) -> str:
        """The order in a few words, for logs."""
        return f"{describe(self.act)} for {self.owner}"

    def to_text(self) -> str:
        """Encode as JSON: one line of ASCII, also where the environment holds bytes that are not UTF-8."""
        return dump(self)

    @classmethod
    def from_text(cls, text: str | bytes) -> Order:
        """The order that ``to_text`` wrote. Raises ``BadOrder``."""
        order = load(cls, text)
        if len(order._acts()) != 1:
            raise BadOrder("Order: expected exactly one of submit, cancel, update, signal and check_files")
        return order

    @classmethod
    def of(cls, act: Act, owner: str, start_by: Seconds) -> Order:
        """A new order, its id unlike any other, also across restarts."""
        order_id = uuid.uuid4().hex
        match act:
            case JobRequest():
                return cls(order_id, owner, start_by, submit=act)
            case CancelJob():
                return cls(order_id, owner, start_by, cancel=act)
            case UpdateJob():
                return cls(order_id, owner, start_by, update=act)
            case SignalJob():
                return cls(order_id, owner, start_by, signal=act)
            case CheckFiles():
                return cls(order_id, owner, start_by, check_files=act)

    def _acts(self) -> list[Act]:
        acts = (self.submit, self.cancel, self.update, self.signal, self.check_files)
        return [act for act in acts if act is not None]


@dataclass(frozen=True, slots=True)
class CancelJob:
    """Cancel a pending or running job."""

    job_id: JobId


@dataclass(frozen=True, slots=True)
class UpdateJob:
    """Change attributes of a pending job."""

    job_id: JobId
    change: JobChange


@dataclass(frozen=True, slots=True)
class SignalJob:
    """Send a signal to a running job."""

    job_id: JobId
    signal: str
    reach: SignalReach


@dataclass(frozen=True, slots=True)
class CheckFiles:
    """Check whether files of the owner have appeared; nothing is changed, opened or read."""

    paths: tuple[str, ...]


Act = JobRequest | CancelJob | UpdateJob | SignalJob | CheckFiles


def describe(act: Act) -> str:
    """An act in a few words; nothing of the script and the environment."""
    match act:
        case JobRequest():
            return f"submit {act.tag or act.name}"
        case CancelJob():
            return f"cancel job {act.job_id}"
        case UpdateJob():
            changed = {name: getattr(act.change, name) for name in ("held", "nice", "begin", "node_list")}
            words = [f"{name}={value}" for name, value in changed.items() if value is not None]
            return f"update job {act.job_id}: {' '.join(words)}"
        case SignalJob():
            return f"signal {act.signal} to job {act.job_id}"
        case CheckFiles():
            return f"check {len(act.paths)} files"


class Verdict(Enum):
    """The outcome of a request."""

    DONE = auto()
    REJECTED = auto()
    """Slurm rejected the submission."""
    UNKNOWN_JOB = auto()
    NOT_PERMITTED = auto()
    UNAVAILABLE = auto()
    """Whether it happened is unknown."""
    TOO_LATE = auto()
    """The request arrived too late and was not started."""
    BLOCKED = auto()
    """Slurm lets the job not be changed for now."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a request, in a form that can be sent."""

    verdict: Verdict
    """Result of the request."""
    job_id: JobId = NO_JOB
    """Of the job submitted."""
    reason: str = ""
    """REJECTED only: Slurm's reason."""
    text: str = ""
    """Slurm's error text; empty: no error."""
    files: tuple[FileState, ...] = ()
    """Of the files to be checked, in order."""

    def to_text(self) -> str:
        """Encode the answer as JSON: one line of ASCII."""
        return dump(self)

    @classmethod
    def from_text(cls, text: str | bytes, files: int = 0) -> Answer:
        """The answer that ``to_text`` wrote, checked before it is stored or shown. Raises ``BadOrder``.

        A user's process writes it. It may name at most ``files`` files and say no more than its request asks for.
        Each text in it becomes one printable line, no longer than an answer of Slurm.
        """
        answer = load(cls, text, _PARTS + _PARTS_OF_FILE * files)
        if len(answer.files) > files:
            raise BadOrder(f"Answer.files: expected at most {files} items, found {len(answer.files)}")
        states = tuple(replace(state, reason=one_line(state.reason, LONGEST_TEXT)) for state in answer.files)
        reason, said = one_line(answer.reason, _LONGEST_WORD), one_line(answer.text, LONGEST_TEXT)
        return replace(answer, reason=reason, text=said, files=states)

    @classmethod
    def failed(cls, error: MirageError) -> Answer:
        """The answer that says ``error``; errors without a verdict leave the outcome unknown."""
        match error:
            case SubmissionRejected():
                return cls(Verdict.REJECTED, reason=error.reason, text=str(error))
            case UnknownJob():
                return cls(Verdict.UNKNOWN_JOB, text=str(error))
            case NotPermitted():
                return cls(Verdict.NOT_PERMITTED, text=str(error))
            case JobBlocked():
                return cls(Verdict.BLOCKED, text=str(error))
        return cls(Verdict.UNAVAILABLE, text=str(error))

    def job(self) -> JobId:
        """The id of the job submitted (``NO_JOB`` for other acts), or the error that the answer stands for."""
        match self.verdict:
            case Verdict.DONE:
                return self.job_id
            case Verdict.REJECTED:
                raise SubmissionRejected(self.reason, self.text.removeprefix(self.reason).removeprefix(": "))
            case Verdict.UNKNOWN_JOB:
                raise UnknownJob(self.text)
            case Verdict.NOT_PERMITTED | Verdict.TOO_LATE:
                raise NotPermitted(self.text)
            case Verdict.BLOCKED:
                raise JobBlocked(self.text)
            case Verdict.UNAVAILABLE:
                raise ClusterUnavailable(self.text)
