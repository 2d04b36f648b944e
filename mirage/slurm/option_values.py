"""Values of ``--begin``, ``--signal`` and ``--mail-type``, which ``sbatch`` checks before it asks slurmctld.

Times of ``--begin`` are in the local time zone (man sbatch).
"""

from __future__ import annotations

import re
from datetime import datetime, time, timedelta
from typing import TYPE_CHECKING

from mirage.domain.errors import BadSpelling
from mirage.domain.job import WarnSignal

if TYPE_CHECKING:
    from mirage.domain.job import Seconds

_RELATIVE = re.compile(r"now(?:\s*([+-])\s*([0-9]{1,9})\s*([a-z]*))?")
_EPOCH = re.compile(r"uts([0-9]{1,11})")
_CLOCK = re.compile(r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?")
_DATE = re.compile(r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})(?:t(.+))?")
_UNITS = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400, "week": 604_800}
_HOURS = {"midnight": 0, "noon": 12, "fika": 15, "teatime": 16}
_DAYS = {"today": 0, "tomorrow": 1}


def parse_begin(text: str, now: Seconds) -> Seconds:
    """Epoch seconds of ``now+2hours``, ``2026-12-24T18:00``, ``16:30``, ``tomorrow``, ``noon``, ``uts1700000000``.

    A time of day that has passed is tomorrow's. Raises ``BadSpelling``.
    """
    lowered = text.strip().lower()
    if match := _RELATIVE.fullmatch(lowered):
        return now + _offset(match, text)
    if match := _EPOCH.fullmatch(lowered):
        return int(match[1])
    try:
        return _absolute(lowered, datetime.fromtimestamp(now).astimezone())
    except (ValueError, OverflowError):
        problem = "expected a time such as now+2hours, 2026-12-24T18:00:00, 18:00, tomorrow or noon"
        raise BadSpelling(text, problem) from None


def _offset(match: re.Match[str], text: str) -> Seconds:
    if match[1] is None:
        return 0
    unit = match[3] or "second"
    sizes = [size for name, size in _UNITS.items() if f"{name}s".startswith(unit) and len(unit) >= 1]
    if len(sizes) != 1:
        raise BadSpelling(text, f"the unit is one of {', '.join(_UNITS)}s")
    return int(f"{match[1]}{match[2]}") * sizes[0]


def _absolute(text: str, now: datetime) -> Seconds:
    if text in _DAYS:
        return int((now + timedelta(days=_DAYS[text])).timestamp())
    if match := _DATE.fullmatch(text):
        day = datetime(int(match[1]), int(match[2]), int(match[3])).date()
        return _local(datetime.combine(day, _time_of_day(match[4]) if match[4] else time()))
    instant = _local(datetime.combine(now.date(), _time_of_day(text)))
    if instant > now.timestamp():
        return instant
    return _local(datetime.combine(now.date() + timedelta(days=1), _time_of_day(text)))


def _time_of_day(text: str) -> time:
    if text in _HOURS:
        return time(_HOURS[text])
    match = _CLOCK.fullmatch(text)
    if match is None:
        raise ValueError(text)
    return time(int(match[1]), int(match[2]), int(match[3] or 0))


def _local(naive: datetime) -> Seconds:
    return int(naive.astimezone().timestamp())


_SIGNAL = re.compile(r"(?:([RBrb]{1,2}):)?([A-Za-z]+[0-9]*|[0-9]{1,2})(?:@([0-9]{1,5}))?")
_SIGNALS = (
    *("HUP", "INT", "QUIT", "ABRT", "KILL", "ALRM", "TERM", "CHLD", "USR1", "USR2"),
    *("PIPE", "URG", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "XCPU"),
)
"""All that some version of Slurm knows by name; any other has to be a number."""
_LONGEST_LEAD = 65_535
_DEFAULT_LEAD = 60
_MAIL_TYPES = (
    *("BEGIN", "END", "FAIL", "REQUEUE", "ALL", "NONE", "INVALID_DEPEND", "STAGE_OUT", "ARRAY_TASKS"),
    *("TIME_LIMIT", "TIME_LIMIT_90", "TIME_LIMIT_80", "TIME_LIMIT_50"),
)


def read_signal(text: str) -> tuple[WarnSignal, bool]:
    """The warning before the limit, and whether it is sent before a reservation begins, too (``R:``).

    Raises ``BadSpelling`` for what ``sbatch`` rejects.
    """
    match = _SIGNAL.fullmatch(text)
    if match is None:
        raise BadSpelling(text, "expected a signal such as B:USR1@300 (seconds before the limit)")
    flags, name, lead = (
        (match[1] or "").upper(),
        match[2].upper().removeprefix("SIG"),
        int(match[3] or _DEFAULT_LEAD),
    )
    if not (int(name) if name.isdigit() else name in _SIGNALS):
        raise BadSpelling(text, f"expected a signal's number, or one of {', '.join(_SIGNALS)}")
    if lead > _LONGEST_LEAD:
        raise BadSpelling(text, f"expected a signal at most {_LONGEST_LEAD} seconds before the limit")
    return WarnSignal(name, lead, "B" in flags), "R" in flags


def check_mail_type(text: str) -> None:
    """Raise ``BadSpelling`` where Slurm knows no word of it; ``sbatch`` ignores others next to a known one."""
    if not set(text.upper().split(",")) & set(_MAIL_TYPES):
        raise BadSpelling(text, f"expected {', '.join(_MAIL_TYPES)}; comma-separated")
