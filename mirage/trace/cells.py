"""Columns of text as columns of numbers: every distinct text is read once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from mirage.domain.errors import BadSpelling
from mirage.domain.job import ABSENT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from mirage.trace.faults import Faults

MISSING = frozenset({"", "unknown", "none", "n/a", "(null)", "none assigned"})
"""What Slurm prints, in any case, for a value that a job does not have."""

_WHOLE = re.compile(r"[+-]?[0-9]{1,19}")


def is_missing(text: str) -> bool:
    """Whether the cell says that there is no value."""
    return text.strip().lower() in MISSING


def whole_number(text: str) -> int:
    """A whole number of either sign; ``ABSENT`` where missing. Raises ``BadSpelling``."""
    if is_missing(text):
        return ABSENT
    if not _WHOLE.fullmatch(text.strip()):
        raise BadSpelling(text, "expected a whole number")
    return int(text.strip())


def natural_number(text: str) -> int:
    """As ``whole_number``, and rejects negative ones."""
    number = whole_number(text)
    if number < 0 and not is_missing(text):
        raise BadSpelling(text, "cannot be negative")
    return number


def read_cells(
    texts: Sequence[str], read: Callable[[str], int], dtype: type[np.signedinteger[Any]], name: str, faults: Faults
) -> NDArray[Any]:
    """``read`` of each text as an array of ``dtype``; rejected rows get a row error and ``ABSENT``.

    ``name``: field name in the error. Values out of the range of ``dtype`` are errors too.
    """
    bounds = np.iinfo(dtype)
    values: dict[str, int] = {}
    problems: dict[str, str] = {}
    for text in set(texts):
        values[text] = ABSENT
        try:
            value = read(text)
        except BadSpelling as refusal:
            problems[text] = str(refusal)
            continue
        if bounds.min <= value <= bounds.max:
            values[text] = value
        else:
            problems[text] = f"{text!r} is out of range"
    if problems:
        for row, text in enumerate(texts):
            if text in problems:
                faults.add(row, name, problems[text])
    return np.fromiter(map(values.__getitem__, texts), dtype=dtype, count=len(texts))
