"""What addresses and queries may name, within the bounds that hold everywhere."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path
from pydantic import AfterValidator, Field

from mirage.domain.bounds import LONGEST_NAME, MOST_LINKS, NAME


def _shown(text: str) -> str:
    """A text that people are shown; pydantic makes a fault of the field out of a ``ValueError``."""
    if problem := NAME.problem(text):
        raise ValueError(problem)
    return text


SHOWN = AfterValidator(_shown)
"""Marks a text that holds no control characters."""
Name = Annotated[str, Field(max_length=LONGEST_NAME), SHOWN]
"""Whatever has a name."""
ChainName = Annotated[str, Path(max_length=LONGEST_NAME), SHOWN]
"""A chain's id or name."""
Word = Annotated[str, Path(max_length=64), SHOWN]
"""What the daemon made up itself, and one's command."""
LinkIndex = Annotated[int, Field(ge=1, le=MOST_LINKS)]
"""The number of a link of a chain."""
