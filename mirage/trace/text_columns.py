"""Columns of text as columns of numbers and times: every distinct text is read once.

Times are ISO text or epoch seconds, with time zones and the hour that comes twice.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import numpy as np

from mirage.domain.errors import BadSpelling, ConfigError
from mirage.domain.job import ABSENT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from mirage.domain.jobtable import Int64
    from mirage.trace.result import Mask, RowErrors

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
    texts: Sequence[str],
    read: Callable[[str], int],
    dtype: type[np.signedinteger[Any]],
    name: str,
    faults: RowErrors,
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


_BLOCK = 900
"""Seconds. Every change of a UTC offset since 1971 was at a multiple of it in local time."""
_DIGITS = (0, 1, 2, 3, 5, 6, 8, 9, 11, 12, 14, 15, 17, 18)
_SEPARATORS = ((4, "-"), (7, "-"), (13, ":"), (16, ":"))
_YEARS = (1971, 2200)
_FORM = "expected a time such as 2023-02-28T13:45:00 or epoch seconds"


@dataclass(frozen=True, slots=True)
class Stamps:
    """One column of times, ``ABSENT`` where the source has none."""

    epoch: Int64
    """Epoch seconds; of a wall-clock time that came twice (clocks set back), the first."""
    again: Int64
    """Seconds from the first to the second of those; 0 for all other times."""


def time_zone(name: str) -> ZoneInfo:
    """The zone of that name; raises ``ConfigError`` where this machine knows none."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        problem = "is not a time zone known here; give one such as Europe/Berlin (or install tzdata)"
        raise ConfigError(f"time zone {name!r}", problem) from error


def read_stamps(texts: Sequence[str], zone: ZoneInfo, name: str, faults: RowErrors) -> Stamps:
    """Read a column of timestamps; those without an offset are local times in ``zone``.

    Row errors: invalid times, dates outside 1971-2200, local times skipped by a clock change.
    """
    local, plain = _civil_seconds(texts)
    epoch, again, skipped = _to_epoch(local, plain, zone)
    for row in np.flatnonzero(~plain).tolist():
        epoch[row] = _other_form(texts[row], row, name, faults)
    faults.add_where(
        skipped, name, lambda row: f"{texts[row]!r} does not exist in {zone.key}; is it the right zone?"
    )
    return Stamps(epoch, again)


def in_order(*columns: Stamps) -> tuple[Int64, ...]:
    """The columns' times, each row's in the order of the columns where a second reading makes them so."""
    known: list[Int64] = []
    for column in columns:
        latest = np.max(np.stack(known), axis=0) if known else np.full(len(column.epoch), ABSENT)
        late = (column.again > 0) & (column.epoch < latest) & (column.epoch + column.again >= latest)
        known.append(np.where(late, column.epoch + column.again, column.epoch))
    return tuple(known)


def twice_note(zone: ZoneInfo, *columns: Stamps) -> tuple[str, ...]:
    """Return a note on ambiguous timestamps; empty without any."""
    count = sum(int((column.again > 0).sum()) for column in columns)
    if not count:
        return ()
    return (f"stamps in an hour that came twice in {zone.key} (the first, unless order forbids it): {count}",)


def _civil_seconds(texts: Sequence[str]) -> tuple[Int64, Mask]:
    """Seconds since 1970-01-01T00:00:00 of the wall clock, and which texts are such stamps."""
    letters = np.array(texts, dtype="U20").view(np.uint32).reshape(len(texts), 20)
    digits = (letters[:, _DIGITS] - np.uint32(48)).astype(np.int64)
    good = (digits <= 9).all(axis=1) & (letters[:, 19] == 0) & np.isin(letters[:, 10], [ord("T"), ord(" ")])
    for place, sign in _SEPARATORS:
        good &= letters[:, place] == ord(sign)
    year = digits[:, :4] @ np.array([1000, 100, 10, 1])
    month, day, hour, minute, second = (digits[:, k] * 10 + digits[:, k + 1] for k in (4, 6, 8, 10, 12))
    good &= (year >= _YEARS[0]) & (year <= _YEARS[1]) & (month >= 1) & (month <= 12)
    good &= (hour < 24) & (minute < 60) & (second < 60)
    months = np.where(good, (year - 1970) * 12 + month - 1, 0).astype("datetime64[M]")
    first, following = (m.astype("datetime64[D]").astype(np.int64) for m in (months, months + 1))
    good &= (day >= 1) & (day <= following - first)
    seconds = (first + day - 1) * 86_400 + hour * 3_600 + minute * 60 + second
    return np.where(good, seconds, 0), good


def _to_epoch(local: Int64, plain: Mask, zone: ZoneInfo) -> tuple[Int64, Int64, Mask]:
    """Epoch of the first reading, seconds to the second one, and which times were skipped."""
    blocks, which = np.unique(local // _BLOCK, return_inverse=True)
    first, second = _offsets(blocks, zone)
    first, second = first[which], second[which]
    again = np.where(plain, np.maximum(first - second, 0), 0)
    return np.where(plain, local - first, ABSENT), again, plain & (second > first)


def _offsets(blocks: Int64, zone: ZoneInfo) -> tuple[Int64, Int64]:
    """Seconds ahead of UTC at the start of each block, in the first and the second reading."""
    begin = datetime(1970, 1, 1, tzinfo=zone)
    times = [begin + timedelta(seconds=block * _BLOCK) for block in blocks.tolist()]
    pairs = [(_offset(t), _offset(t.replace(fold=1))) for t in times]
    columns = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return columns[:, 0], columns[:, 1]


def _offset(time: datetime) -> int:
    offset = time.utcoffset()
    return round(offset.total_seconds()) if offset is not None else 0


def _other_form(text: str, row: int, name: str, faults: RowErrors) -> int:
    """Read a missing value, epoch seconds, or a timestamp with offset; anything else is a row error."""
    stripped = text.strip()
    if is_missing(stripped):
        return ABSENT
    instant = _epoch(stripped)
    if instant == ABSENT:
        faults.add(row, name, f"{text[:40]!r}: {_FORM}")
    return instant


def _epoch(text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) <= 10:
        return int(text) or ABSENT
    try:
        stamp = datetime.fromisoformat(text)
    except ValueError:
        return ABSENT
    if stamp.tzinfo is None or not _YEARS[0] <= stamp.year <= _YEARS[1]:
        return ABSENT
    return int(stamp.astimezone(UTC).timestamp())
