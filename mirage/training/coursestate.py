"""The state of a training on disk, so that one that was stopped continues."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import torch

from mirage.domain.errors import ConfigError
from mirage.wholefile import draft_of

if TYPE_CHECKING:
    from dataclasses import Field
    from pathlib import Path
    from typing import ClassVar


class Course(Protocol):
    """What is trained: a dataclass, of which all but the number of rounds must be equal to continue."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def rounds(self) -> int:
        """How many."""


def write_state(path: Path, course: Course, state: dict[str, Any]) -> None:
    """Whole or not at all."""
    with draft_of(path) as draft:
        torch.save(state | {"course": _named(course)}, draft)


def read_state(path: Path, course: Course) -> dict[str, Any]:
    """What ``write_state`` wrote. Raises ``ConfigError`` where it is of another course, or cannot be read."""
    try:
        state: dict[str, Any] = torch.load(path, weights_only=True)
    except Exception as error:  # torch's own kinds are many
        raise ConfigError(str(path), f"is no state of a training: {error}") from error
    if state.get("course") != _named(course):
        raise ConfigError(str(path), "is the state of another course: name another file or delete it")
    return state


def _named(course: Course) -> str:
    return repr(replace(course, rounds=0))
