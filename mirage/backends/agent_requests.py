"""Requests to act in a user's name, the responses, and their JSON.

An agent is a process of the user: the carrier of requests between queue and agent has verified that. Reading is
strict, because the content is executed as a user.
"""

from __future__ import annotations

import json
import re
import uuid
from dataclasses import dataclass, field, fields, is_dataclass, replace
from enum import Enum, auto
from functools import cache
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin, get_type_hints

from mirage.documentreading import MOST_PARTS, parse_json
from mirage.domain.errors import (
    BadSpelling,
    ClusterUnavailable,
    JobBlocked,
    MirageError,
    NotPermitted,
    SubmissionRejected,
    UnknownJob,
)
from mirage.domain.files import FileState  # noqa: TC001 (read by its name when orders are)
from mirage.domain.job import JobChange, JobId, JobRequest, Seconds, SignalReach, job_id_of
from mirage.domain.link import NO_JOB
from mirage.domain.texts import one_line

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_HALVES = re.compile("[\ud800-\udc7f\udd00-\udfff]")
"""Not those that stand for bytes that are no UTF-8."""
LARGEST_NUMBER = 1 << 62
_LATER = "later"
"""Mark of a field that the first version of the format lacks: it is written only where it has a value."""


class BadOrder(MirageError):
    """An order or an answer cannot be read; the text names the field."""


def dump(value: object) -> str:
    """A dataclass as one line of ASCII, whatever bytes its strings stand for."""
    return json.dumps(_plain(value), separators=(",", ":"))


def load(kind: type[T], text: str | bytes, most: int = MOST_PARTS) -> T:
    """The dataclass that ``dump`` wrote. Raises ``BadOrder`` for anything else, naming the field.

    ``most``: brackets, commas and strings.
    """
    try:
        data = parse_json(text, most=most)
    except ValueError as error:
        raise BadOrder(f"not JSON: {error}") from None
    value: T = _read(kind, data, kind.__name__)
    return value


def _plain(value: object) -> object:
    if isinstance(value, Enum):
        return value.name
    if is_dataclass(value):
        items = ((f.name, getattr(value, f.name), f.metadata) for f in fields(value))
        return {name: _plain(item) for name, item, about in items if item is not None or not about.get(_LATER)}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


def _read(kind: Any, data: object, where: str) -> Any:
    """``data`` as a value of ``kind``: a dataclass, enum, tuple, optional, job ID or plain value."""
    if kind is JobId:
        return _read_job_id(data, where)
    kind = getattr(kind, "__supertype__", kind)
    if get_origin(kind) is UnionType:
        (kind,) = [member for member in get_args(kind) if member is not NoneType]
        return None if data is None else _read(kind, data, where)
    if get_origin(kind) is tuple:
        return _read_tuple(get_args(kind), data, where)
    if is_dataclass(kind):
        return _read_fields(kind, data, where)
    if issubclass(kind, Enum):
        return _read_member(kind, data, where)
    return _read_scalar(kind, data, where)


def _read_fields(kind: Any, data: object, where: str) -> Any:
    wanted = _hints(kind)
    if not isinstance(data, dict):
        raise BadOrder(f"{where}: expected an object with {', '.join(wanted)}")
    later = {f.name for f in fields(kind) if f.metadata.get(_LATER)}
    for name in (data.keys() ^ wanted.keys()) - (later - data.keys()):
        raise BadOrder(f"{where}.{name}: {'no such field' if name in data else 'missing'}")
    found = {name: hint for name, hint in wanted.items() if name in data}
    return kind(**{name: _read(hint, data[name], f"{where}.{name}") for name, hint in found.items()})


def _read_tuple(kinds: tuple[Any, ...], data: object, where: str) -> tuple[Any, ...]:
    if not isinstance(data, list):
        raise BadOrder(f"{where}: expected a list")
    if kinds[-1] is Ellipsis:
        kinds = kinds[:1] * len(data)
    if len(kinds) != len(data):
        raise BadOrder(f"{where}: expected {len(kinds)} items, found {len(data)}")
    return tuple(
        _read(kind, item, f"{where}[{at}]") for at, (kind, item) in enumerate(zip(kinds, data, strict=True))
    )


def _read_member(kind: type[Enum], data: object, where: str) -> Enum:
    if not isinstance(data, str) or data not in kind.__members__:
        raise BadOrder(f"{where}: expected one of {', '.join(kind.__members__)}")
    return kind[data]


def _read_scalar(kind: type, data: object, where: str) -> object:
    if type(data) is not kind:
        raise BadOrder(f"{where}: expected {kind.__name__}, found {type(data).__name__}")
    if isinstance(data, str) and "\0" in data:
        raise BadOrder(f"{where}: holds a NUL, which no command and no environment can")
    if isinstance(data, str) and _HALVES.search(data):
        raise BadOrder(f"{where}: holds an unpaired surrogate, which cannot be encoded")
    if isinstance(data, int) and abs(data) > LARGEST_NUMBER:
        raise BadOrder(f"{where}: {str(data)[:20]}... is out of range")
    return data


def _read_job_id(data: object, where: str) -> JobId:
    """A job ID, or 0 where there is no job."""
    number = _read_scalar(int, data, where)
    assert isinstance(number, int)
    try:
        return job_id_of(number) if number else JobId(0)
    except BadSpelling as error:
        raise BadOrder(f"{where}: {error}") from None


_hints: Callable[[Any], dict[str, Any]] = cache(get_type_hints)


LONGEST_ANSWER = 256 * 1024
"""Bytes of an answer on its way."""
LONGEST_TEXT = 500
"""Characters of a sentence in an answer."""
_PARTS, _PARTS_OF_FILE = 32, 16
"""Brackets, commas and strings of an answer, and for each file in it; about twice as many as it has."""
_LONGEST_WORD = 100
"""Characters of Slurm's reason, such as AssocMaxSubmitJobLimit."""


@dataclass(frozen=True, slots=True)
class AgentRequest:
    """One thing to do for ``owner``: exactly one of the six acts is there."""

    order_id: str
    owner: str
    start_by: Seconds
    """Deadline of the start (epoch, UTC): a later start is not allowed, as the request may have been repeated."""
    submit: JobRequest | None = None
    cancel: CancelJob | None = None
    update: UpdateJob | None = None
    signal: SignalJob | None = None
    check_files: CheckFiles | None = None
    adopt: AdoptJob | None = field(default=None, metadata={_LATER: True})

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
    def from_text(cls, text: str | bytes) -> AgentRequest:
        """The order that ``to_text`` wrote. Raises ``BadOrder``."""
        order = load(cls, text)
        if len(order._acts()) != 1:
            acts = "submit, cancel, update, signal, check_files and adopt"
            raise BadOrder(f"AgentRequest: expected exactly one of {acts}")
        return order

    @classmethod
    def of(cls, act: Act, owner: str, start_by: Seconds) -> AgentRequest:
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
            case AdoptJob():
                return cls(order_id, owner, start_by, adopt=act)

    def _acts(self) -> list[Act]:
        acts = (self.submit, self.cancel, self.update, self.signal, self.check_files, self.adopt)
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


@dataclass(frozen=True, slots=True)
class AdoptJob:
    """Make a job of the owner link 1 of a new chain, if the job itself asks for that."""

    job_id: JobId


Act = JobRequest | CancelJob | UpdateJob | SignalJob | CheckFiles | AdoptJob


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
        case AdoptJob():
            return f"adopt job {act.job_id} if it is marked"


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
class AgentResponse:
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
    def from_text(cls, text: str | bytes, files: int = 0) -> AgentResponse:
        """The answer that ``to_text`` wrote, checked before it is stored or shown. Raises ``BadOrder``.

        A user's process writes it. It may name at most ``files`` files and say no more than its request asks for.
        Each text in it becomes one printable line, no longer than an answer of Slurm.
        """
        answer = load(cls, text, _PARTS + _PARTS_OF_FILE * files)
        if len(answer.files) > files:
            raise BadOrder(f"AgentResponse.files: expected at most {files} items, found {len(answer.files)}")
        states = tuple(replace(state, reason=one_line(state.reason, LONGEST_TEXT)) for state in answer.files)
        reason, said = one_line(answer.reason, _LONGEST_WORD), one_line(answer.text, LONGEST_TEXT)
        return replace(answer, reason=reason, text=said, files=states)

    @classmethod
    def failed(cls, error: MirageError) -> AgentResponse:
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
