"""Types, bounds and formats of configuration values."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from mirage.domain.bounds import HIGHEST_COUNT, HIGHEST_FACTOR, LONGEST_SPAN, path_problem
from mirage.domain.errors import BadSpelling
from mirage.provisioner.objectives import parse_objective
from mirage.slurm.duration import parse_human

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

_OF_FILES = re.compile(r"[~/.]")
"""Characters that no preset name has."""

# pydantic converts only a ValueError into an error of the key.


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
    """Return a valid objective unchanged. Raises ``ValueError``."""
    try:
        parse_objective(value)
    except BadSpelling as error:
        raise ValueError(str(error)) from error
    return value


def absolute_path(value: str) -> str:
    """Return a valid absolute path unchanged; empty: no path. Raises ``ValueError``.

    A relative path would depend on the directory in which the daemon is started.
    """
    if value and not value.startswith("/"):
        raise ValueError("expected an absolute path, such as /var/lib/mirage (~ is not expanded)")
    if value and (problem := path_problem(value)):
        raise ValueError(f"invalid file name: {problem}")
    return value


def path_or_name(value: str) -> str:
    """Return a preset name, such as ``ls6`` or ``generated:demo:1``, or a valid absolute path."""
    return absolute_path(value) if _OF_FILES.search(value) else value


def database_url(value: str) -> str:
    """Return a database URL; SQLite requires an absolute path. Raises ``ValueError``."""
    kind, _, file = value.partition(":///")
    if kind.startswith("sqlite") and file and not file.startswith(("/", ":memory:")):
        raise ValueError("expected an absolute path, hence four slashes: sqlite:////var/lib/mirage/mirage.db")
    if value.startswith("directory:") and not (kind == "directory" and file.strip("/")):
        raise ValueError("expected an absolute path, such as directory:///home/me/mirage")
    return value


def _number(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("expected a number")  # noqa: TRY004
    return value


SECONDS = BeforeValidator(_duration)
"""Marks a whole number that may be written as a duration."""
NUMBER = BeforeValidator(_number)
"""Marks a number; ``true`` and ``false`` are invalid."""

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
    """Return whether the key is in seconds and may be written as a duration."""
    return SECONDS in about.metadata
