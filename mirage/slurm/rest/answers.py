"""Answers of slurmrestd: fields of parsed JSON, each checked where it is read, and the lists of errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeGuard

from mirage.domain.errors import BadSpelling, ClusterUnavailable, MirageError
from mirage.domain.job import ABSENT, JobId, job_id_of
from mirage.slurm import error_messages

if TYPE_CHECKING:
    from collections.abc import Iterable

Record = dict[str, Any]
"""One parsed JSON object."""

_TOO_LARGE = 10**18
"""JSON has numbers of any length, columns have 64 bits; a time limit is multiplied yet."""


def wrong(record: Record, name: str, wanted: str) -> BadSpelling:
    """The error for a field that is missing or of another kind; names the record where it has a name."""
    of = next((f"{key} {record[key]}: " for key in ("job_id", "name") if key in record), "")
    return BadSpelling(repr(record.get(name)), f"{of}field {name}: expected {wanted}")


def whole(record: Record, name: str) -> int:
    """A plain whole number. Raises ``BadSpelling``."""
    value = record.get(name)
    if not _is_whole(value):
        raise wrong(record, name, "a whole number")
    return value


def job_id(record: Record) -> JobId:
    """The record's job ID. Raises ``BadSpelling``."""
    return job_id_of(whole(record, "job_id"))


def number(record: Record, name: str, *, infinite: int = ABSENT) -> int:
    """A ``{set, infinite, number}``: ``ABSENT`` where not set, ``infinite`` where it is that.

    Raises ``BadSpelling``.
    """
    value = record.get(name)
    try:
        if value["infinite"]:  # type: ignore[index]
            return infinite
        if not value["set"]:  # type: ignore[index]
            return ABSENT
        found = value["number"]  # type: ignore[index]
    except (TypeError, KeyError):
        raise wrong(record, name, "an object with set, infinite and number") from None
    if not _is_whole(found):
        raise wrong(record, name, "a whole number inside")
    return found


def _is_whole(value: object) -> TypeGuard[int]:
    return type(value) is int and abs(value) < _TOO_LARGE


def instant(record: Record, name: str) -> int:
    """A ``{set, infinite, number}`` of epoch seconds; Slurm's 0 is ``ABSENT`` too."""
    return number(record, name) or ABSENT


def text(record: Record, name: str) -> str:
    """A text, empty where the source has null or nothing. Raises ``BadSpelling``."""
    value = record.get(name)
    if value is None:
        return ""
    if type(value) is not str:
        raise wrong(record, name, "a text")
    return value


def texts(record: Record, name: str) -> list[str]:
    """A list of texts, upper case as Slurm's states are. Raises ``BadSpelling``."""
    value = record.get(name)
    if type(value) is not list or not all(type(item) is str for item in value):
        raise wrong(record, name, "a list of texts")
    return [item.upper() for item in value]


def part(record: Record, name: str) -> Record:
    """An object inside. Raises ``BadSpelling``."""
    value = record.get(name)
    if type(value) is not dict:
        raise wrong(record, name, "an object")
    return value


def set_number(value: int) -> Record:
    """``value`` as Slurm's newer versions write numbers."""
    return {"set": True, "infinite": False, "number": value}


INFINITE: Record = {"set": True, "infinite": True, "number": 0}
UNSET: Record = {"set": False, "infinite": False, "number": 0}


_UNSPECIFIED = -1
_EMPTY_RESULT = 9003
"""ESLURM_REST_EMPTY_RESULT; up to v0.0.37 only its sentence is there."""
_NOT_UNDERSTOOD = range(9000, 9300)
"""ESLURM_REST_*, ESLURM_DATA_*: what was sent is wrong."""


@dataclass(frozen=True, slots=True)
class RestErrors:
    """The errors with which slurmrestd or Slurm rejected a request."""

    text: str
    """Slurm's sentences, a line each, those that come twice once."""
    numbers: tuple[int, ...]
    """Slurm's own (slurm_errno.h); v0.0.36 gives 0, except for submissions."""

    @classmethod
    def read(cls, errors: Iterable[Record]) -> RestErrors:
        """From a list of errors of any version: the number is ``error_number`` or ``error_code``."""
        entries = tuple(errors)
        sentences = [entry[key] for entry in entries for key in _SENTENCES if isinstance(entry.get(key), str)]
        numbers = [entry.get("error_number", entry.get("error_code")) for entry in entries]
        return cls(
            "\n".join(dict.fromkeys(sentences)) or "no reason given",
            tuple(number for number in numbers if type(number) is int),
        )

    @property
    def line(self) -> str:
        """All sentences joined to one line of bounded length."""
        return error_messages.one_line(self.text)

    def of_submission(self, what: str) -> MirageError:
        """The error for a job that was not submitted."""
        if self._unanswered:
            return ClusterUnavailable(f"{what}: {self.line}")
        return error_messages.refusal(f"slurmrestd: error: {self.text}", what)

    def of_act(self, what: str) -> MirageError:
        """The error for what was not done to a job; ``what`` names the act and the job."""
        if self._unanswered:
            return ClusterUnavailable(f"{what}: {self.line}")
        return error_messages.refused_act(self.text, what)

    @property
    def found_nothing(self) -> bool:
        """Whether it is only that nothing matches: accounting answers so instead of with an empty list."""
        return _EMPTY_RESULT in self.numbers or "Nothing found" in self.text

    @property
    def not_understood(self) -> bool:
        """Whether what was sent is wrong."""
        return any(number in _NOT_UNDERSTOOD for number in self.numbers)

    @property
    def already_ended(self) -> bool:
        """Whether all that stands against it is that the job has ended."""
        return error_messages.already_ended(self.text)

    @property
    def _unanswered(self) -> bool:
        """Whether it was not the job that was judged: also a bad token, of which Slurm 22.05 says only -1."""
        return error_messages.unreachable(self.text) or (not self.not_understood and _UNSPECIFIED in self.numbers)


_SENTENCES = ("error", "description")
