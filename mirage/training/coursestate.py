"""State of a training on disk, so that a stopped training continues."""

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
    """Configuration of a training: a dataclass; all but the number of rounds must be equal to continue."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def rounds(self) -> int:
        """Number of rounds to train."""


def write_state(path: Path, course: Course, state: dict[str, Any]) -> None:
    """Write the state, completely or not at all."""
    with draft_of(path) as draft:
        torch.save(state | {"course": _named(course)}, draft)


def read_state(path: Path, course: Course) -> dict[str, Any]:
    """Read the state of ``write_state``. Raises ``ConfigError`` if its configuration differs, or it is invalid."""
    try:
        state: dict[str, Any] = torch.load(path, weights_only=True)
    except Exception as error:  # torch raises many classes
        raise ConfigError(str(path), f"not the state of a training: {error}") from error
    if state.get("course") != _named(course):
        raise ConfigError(
            str(path), "state of a training with another configuration; name another file or delete it"
        )
    return state


def _named(course: Course) -> str:
    return repr(replace(course, rounds=0))
