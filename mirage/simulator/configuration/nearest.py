"""The nearest valid name, for error messages."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_MOST_COMPARED = 5000


def did_you_mean(given: str, valid: Iterable[str]) -> str:
    """``"; did you mean X?"`` for the valid name nearest to ``given``, "" where none is near.

    Case, underscores and dashes do not count, so that Slurm's ``MaxTime`` finds ``max_time``.
    """
    plain: dict[str, str] = {}
    for name in valid:
        plain.setdefault(_plain(name), name)
        if len(plain) >= _MOST_COMPARED:
            break
    near = get_close_matches(_plain(given), plain, n=1, cutoff=0.7)
    return f"; did you mean {plain[near[0]]}?" if near else ""


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")
