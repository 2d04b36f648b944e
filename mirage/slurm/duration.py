"""Time limits as Slurm writes them, and durations as people type them.

Slurm's forms (man sbatch, ``--time``): ``minutes``, ``minutes:seconds``, ``hours:minutes:seconds``,
``days-hours``, ``days-hours:minutes`` and ``days-hours:minutes:seconds``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mirage.domain.errors import BadSpelling
from mirage.domain.job import ABSENT, UNLIMITED, Seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

_WORDS = ("unlimited", "infinite", "-1")
_NO_OWN_LIMIT = ("", "unknown", "none", "partition_limit")
_SLURM = re.compile(r"(?:([0-9]{1,9})-)?([0-9]{1,9})(?::([0-9]{1,9}))?(?::([0-9]{1,9}))?")
_BARE = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")
_ZERO = re.compile(r"0+(?:\.0+)?")
_PIECE = re.compile(r"\s*([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*([a-z]+)\s*")
_UNITS = {
    1: ("s", "sec", "secs", "second", "seconds"),
    60: ("m", "min", "mins", "minute", "minutes"),
    3_600: ("h", "hr", "hrs", "hour", "hours"),
    86_400: ("d", "day", "days"),
    604_800: ("w", "week", "weeks"),
}
_SECONDS_OF = {name: seconds for seconds, names in _UNITS.items() for name in names}
_SUCH_AS = "48h, 90m, 30s or 2d"
_FINE_SECONDS_OF = {**_SECONDS_OF, "us": 1e-6, "ms": 1e-3}


def parse(text: str) -> Seconds:
    """Slurm's text in seconds: a bare number is minutes; UNLIMITED and INFINITE are ``UNLIMITED``.

    Raises ``BadSpelling``.
    """
    stripped = text.strip()
    if stripped.lower() in _WORDS:
        return UNLIMITED
    match = _SLURM.fullmatch(stripped)
    if match is None:
        raise BadSpelling(text, "expected a time such as 2-00:00:00, 48:00:00, 30 (minutes) or UNLIMITED")
    return _seconds(match)


def _seconds(match: re.Match[str]) -> Seconds:
    days, *rest = match.groups()
    first, second, third = (int(part or 0) for part in rest)
    if days is not None:
        return int(days) * 86_400 + first * 3_600 + second * 60 + third
    if match[4] is not None:
        return first * 3_600 + second * 60 + third
    return first * 60 + second


def parse_limit(text: str) -> Seconds:
    """A job's time limit as squeue and sacct print it: as ``parse``, and ``ABSENT`` for Partition_Limit.

    A job without a limit has its partition's. Limits longer than ``UNLIMITED`` become that.
    Raises ``BadSpelling``.
    """
    return ABSENT if text.strip().lower() in _NO_OWN_LIMIT else min(parse(text), UNLIMITED)


def spell(seconds: Seconds) -> str:
    """Seconds as Slurm prints a limit: ``HH:MM:SS``, from a day on ``D-HH:MM:SS``, or ``UNLIMITED``.

    ``seconds`` is 0 or more; ``parse`` gives back the same number up to ``UNLIMITED``.
    """
    if seconds >= UNLIMITED:
        return "UNLIMITED"
    days, rest = divmod(seconds, 86_400)
    clock = f"{rest // 3_600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days}-{clock}" if days else clock


def parse_human(text: str) -> Seconds:
    """Parse a duration as users type it (``48h``, ``90s``, ``1d12h``, ``1.5 h``), or as Slurm prints it.

    A bare number is rejected, since Slurm would read minutes where most people mean hours or seconds; but 0 is 0.
    UNLIMITED is none: most durations have an end. Fractions are rounded to whole seconds. Raises ``BadSpelling``.
    """
    return round(_typed(text, _SECONDS_OF, _SUCH_AS))


def parse_human_limit(text: str) -> Seconds:
    """As ``parse_human``, for the time limit of a job: ``UNLIMITED``, too, where Slurm would read that."""
    return UNLIMITED if text.strip().lower() in _WORDS else parse_human(text)


def parse_fine(text: str) -> float:
    """As ``parse_human``, in seconds that are not rounded, and with ``us`` and ``ms``: ``15ms``, ``0.5s``."""
    return _typed(text, _FINE_SECONDS_OF, "15ms, 2s or 1min")


def _typed(text: str, units: Mapping[str, float], such_as: str) -> float:
    lowered = text.strip().lower()
    if lowered in _WORDS:
        raise BadSpelling(text, f"expected a duration such as {such_as}; only a job's time limit can be UNLIMITED")
    if ":" in lowered or "-" in lowered:
        if match := _SLURM.fullmatch(lowered):
            return _seconds(match)
        raise BadSpelling(text, f"expected a time such as {such_as}, 48:00:00 or 2-00:00:00")
    if _ZERO.fullmatch(lowered):
        return 0.0
    if _BARE.fullmatch(lowered):
        written = ", ".join(f"{lowered}{unit}" for unit in "smh")
        problem = f"expected a number with its unit, such as {such_as}; write {written} or {lowered}d"
        raise BadSpelling(text, problem)
    pieces = [match for match in _PIECE.finditer(lowered) if match[2] in units]
    if not pieces or "".join(match[0] for match in pieces) != lowered:
        raise BadSpelling(text, f"expected a number with its unit, such as {such_as}")
    return sum(float(match[1]) * units[match[2]] for match in pieces)
