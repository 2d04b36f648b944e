"""Fields of parsed JSON, each checked where it is read."""

from __future__ import annotations

from typing import Any, TypeGuard

from mirage.domain.errors import BadSpelling
from mirage.domain.job import ABSENT, JobId, job_id_of

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
