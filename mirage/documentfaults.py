"""What pydantic finds wrong with a document, in words for its author."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError

_PREFIX = "Value error, "
"""Before what a validator of ours says."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong."""

    path: tuple[str | int, ...]
    """Keys, and places in lists from 0 on; empty: the document as a whole."""
    kind: str
    """Pydantic's, such as ``extra_forbidden`` or ``missing``."""
    said: str

    @property
    def key(self) -> str:
        """``tenant.0.rate``; empty: the document as a whole."""
        return ".".join(map(str, self.path))

    def __str__(self) -> str:
        """With its key in front."""
        return f"{self.key}: {self.said}" if self.path else self.said


def faults_of(error: ValidationError) -> list[Fault]:
    """All of them, at least one. What the document holds is not repeated: it may be secret."""
    return [
        Fault(tuple(each["loc"]), each["type"], each["msg"].removeprefix(_PREFIX))
        for each in error.errors(include_url=False, include_input=False, include_context=False)
    ]


def more_faults(faults: list[Fault]) -> str:
    """What is said behind the first: how many follow; nothing where it is the only one."""
    return f" ({len(faults) - 1} more to fix after it)" if len(faults) > 1 else ""
