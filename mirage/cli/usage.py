"""Exit code 2: an invalid command line, reported in one line that names the option or argument."""

from __future__ import annotations

import re
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from mirage.domain.errors import ArtifactMismatch, ConfigError, MirageError, MissingExtra, TraceError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

USAGE = 2
_OPTION = re.compile(r"--[a-z-]+")
_OF_FILES = (ArtifactMismatch, MissingExtra, TraceError)
"""Errors of the file or model that an option names, not of the option."""


class UsageError(ConfigError):
    """The option or argument ``where`` has an invalid value."""


@contextmanager
def value_of(where: str) -> Iterator[None]:
    """Report errors inside as errors of the option or argument ``where``. Raises ``UsageError``."""
    try:
        yield
    except _OF_FILES:
        raise
    except MirageError as error:
        if isinstance(error, ConfigError) and error.where == where:
            raise UsageError(where, error.problem) from None
        raise UsageError(where, str(error)) from None


def value_unless_file(where: str, name: str) -> AbstractContextManager[None]:
    """Like ``value_of`` if ``name`` is no file; errors in the content of a file stay unchanged."""
    try:
        return nullcontext() if Path(name).exists() else value_of(where)
    except (OSError, ValueError):  # too long, or with a NUL
        return value_of(where)


def exit_status(error: Exception) -> int:
    """Return 2 for an error of an option or argument, else 1."""
    if isinstance(error, UsageError) or (isinstance(error, ConfigError) and _OPTION.fullmatch(error.where)):
        return USAGE
    return 1


def duration_of(option: str, text: str) -> int:
    """Return the seconds of a duration with a unit. Raises ``UsageError``."""
    from mirage.slurm.duration import parse_human

    with value_of(option):
        return parse_human(text)


def limit_of(option: str, text: str) -> int:
    """Return the seconds of a time limit. Raises ``UsageError``."""
    from mirage.slurm.duration import parse_human_limit

    with value_of(option):
        return parse_human_limit(text)
