"""What values of the configuration are: their types, their bounds and how they may be written."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from mirage.domain.bounds import HIGHEST_COUNT, HIGHEST_FACTOR, LONGEST_SPAN, path_problem
from mirage.domain.errors import BadSpelling
from mirage.provisioner.aims import parse_aim
from mirage.slurm.duration import parse_human

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

_OF_FILES = re.compile(r"[~/.]")
"""What no preset has in its name."""

# pydantic makes a fault of the key out of a ValueError, and of nothing else.


def _duration(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError('expected a duration such as "90s" or "10m", or a number of seconds')  # noqa: TRY004
    if isinstance(value, str) and not value.strip().isdigit():
        try:
            return parse_human(value)
        except BadSpelling as error:
            raise ValueError(str(error)) from error
    return value


def valid_aim(value: str) -> str:
    """An aim as it is written, where it is one."""
    try:
        parse_aim(value)
    except BadSpelling as error:
        raise ValueError(str(error)) from error
    return value


def absolute_path(value: str) -> str:
    """The absolute path of a file or directory, where one can have it; empty: none is named.

    A relative one would be another place with each directory that a daemon is started in.
    """
    if value and not value.startswith("/"):
        raise ValueError("expected an absolute path, such as /var/lib/mirage (~ is not replaced)")
    if value and (problem := path_problem(value)):
        raise ValueError(f"no file can have this name: {problem}")
    return value


def path_or_name(value: str) -> str:
    """A name that Mirage knows, such as ``ls6`` or ``generated:demo:1``, or an absolute path."""
    return absolute_path(value) if _OF_FILES.search(value) else value


def database_url(value: str) -> str:
    """A database's URL; SQLite's file is named by its absolute path."""
    kind, _, file = value.partition(":///")
    if kind.startswith("sqlite") and file and not file.startswith(("/", ":memory:")):
        raise ValueError("expected an absolute path, hence four slashes: sqlite:////var/lib/mirage/mirage.db")
    return value


def _number(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("expected a number")  # noqa: TRY004
    return value


SECONDS = BeforeValidator(_duration)
"""Marks a whole number that may be written as a duration."""
NUMBER = BeforeValidator(_number)
"""Marks a number that ``true`` and ``false`` are none of."""

Duration = Annotated[int, Field(ge=0, le=LONGEST_SPAN), SECONDS]
Positive = Annotated[int, Field(ge=1, le=LONGEST_SPAN), SECONDS]
Count = Annotated[int, Field(ge=0, le=HIGHEST_COUNT), NUMBER]
Ratio = Annotated[float, Field(ge=0, le=1), NUMBER]
Price = Annotated[float, Field(ge=0, le=HIGHEST_COUNT), NUMBER]
FileName = Annotated[str, AfterValidator(absolute_path)]
FileOrName = Annotated[str, AfterValidator(path_or_name)]
DatabaseUrl = Annotated[str, AfterValidator(database_url)]
AboveZero = Annotated[float, Field(gt=0, le=HIGHEST_FACTOR), NUMBER]


def is_duration(about: FieldInfo) -> bool:
    """Whether the key holds seconds, and may be written as a duration."""
    return SECONDS in about.metadata
