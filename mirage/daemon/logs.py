"""Log lines on stderr: ``key=value``, or one JSON object per line, with a priority for systemd's journal."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirage.api.access.rates import RateLimiter, TooOften
from mirage.domain.bounds import STEERING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TextIO

_PRIORITIES = ((logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6), (logging.NOTSET, 7))
"""From which level on which of syslog's priorities; see sd-daemon(3)."""
ALWAYS = "always"
"""Attribute of records that are never left out, such as those that stand for a line of the audit."""
ALIKE = "alike"
"""Attribute of records that say the same as others with this word, whatever their texts."""
MOST_AT_ONCE = 100
"""Lines that say the same before any is left out."""
_EVERY = 60.0
"""Seconds after which one more is written."""
_COUNTED_FOR = 600.0
"""Seconds after which lines left out are counted in one line, if no other of the kind has been written."""
_MOST_COUNTED = 1_000
"""Kinds of lines of which some are left out."""
_NUMBER = re.compile(r"(?<![0-9a-f])[a-f]*+[0-9][0-9a-f]*+")
_PLAIN = re.compile(r"[^\s\"=\\]+")


def set_up_logging(level: str, form: str) -> None:
    """Log to stderr in this form (``text`` or ``json``), from this level on; may be called again."""
    handler = SparingHandler(sys.stderr)
    lines = JsonLines() if form == "json" else KeyValues()
    handler.setFormatter(Prioritised(lines) if read_by_journal(sys.stderr, os.environ) else lines)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for chatty in ("apscheduler", "alembic", "uvicorn"):
        logging.getLogger(chatty).setLevel(max(logging.WARNING, root.level))


class SparingHandler(logging.StreamHandler["TextIO"]):
    """Leaves out lines that say the same too often; one line counts them.

    The same: from one place, of one chain and caller, in one text but for its numbers. Users can cause many lines.
    """

    def __init__(self, stream: TextIO, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__(stream)
        self._now = now
        self._rates = RateLimiter(1 / _EVERY, MOST_AT_ONCE, now)
        self._left_out: dict[str, _LeftOut] = {}
        """By what is the same, those of the longest time first."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record, or count it."""
        key = _sameness(record)
        try:
            if not getattr(record, ALWAYS, False):
                self._rates.take(key)
        except TooOften:
            self._leave_out(key, record)
            key = ""
        while self._left_out and (first := next(iter(self._left_out))):
            if first != key and self._now() - self._left_out[first].since < _COUNTED_FOR:
                break
            self._sum_up(first)
        if key in self._left_out:
            self._sum_up(key)
        if key:
            super().emit(record)

    def _leave_out(self, key: str, record: logging.LogRecord) -> None:
        if key not in self._left_out and len(self._left_out) >= _MOST_COUNTED:
            self._sum_up(next(iter(self._left_out)))
        self._left_out.setdefault(key, _LeftOut(record, self._now())).count += 1

    def _sum_up(self, key: str) -> None:
        found = self._left_out.pop(key)
        record = logging.makeLogRecord(found.record.__dict__ | {"exc_info": None})
        record.__dict__["fields"] = getattr(record, "fields", {}) | {"left-out": found.count}
        super().emit(record)


@dataclass(slots=True)
class _LeftOut:
    record: logging.LogRecord
    """The first of them."""
    since: float
    count: int = 0


def _sameness(record: logging.LogRecord) -> str:
    fields = getattr(record, "fields", {})
    about = (record.name, record.levelno, record.lineno, fields.get("chain"), fields.get("caller"))
    return f"{about} {getattr(record, ALIKE, '') or _NUMBER.sub('#', record.getMessage())}"


def read_by_journal(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Whether systemd's journal is at the other end; ``JOURNAL_STREAM`` names its socket (systemd.exec(5))."""
    try:
        found = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return environ.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"


def _fields(record: logging.LogRecord) -> dict[str, object]:
    said = {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created)),
        "level": record.levelname.lower(),
        "from": record.name.removeprefix("mirage."),
        "text": record.getMessage(),
    }
    return said | getattr(record, "fields", {})


class KeyValues(logging.Formatter):
    """``time=... level=info from=journal text="..." chain=...``; a traceback follows on separate lines."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record as ``key=value`` pairs on one line; a traceback follows on further lines."""
        line = " ".join(f"{key}={_quoted(str(value))}" for key, value in _fields(record).items())
        if record.exc_info:
            told = self.formatException(record.exc_info).split("\n")
            line = "\n".join((line, *map(_without_controls, told)))
        return line


class JsonLines(logging.Formatter):
    """One object a line, a traceback among its fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record, traceback included, as one line of JSON."""
        fields = _fields(record)
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return _without_controls(json.dumps(fields, ensure_ascii=False, default=str))


class Prioritised(logging.Formatter):
    """The lines of another, each after its priority, such as ``<4>``: those of a traceback as well."""

    def __init__(self, lines: logging.Formatter) -> None:
        super().__init__()
        self._lines = lines

    def format(self, record: logging.LogRecord) -> str:
        """Put the syslog priority, such as ``<6>``, in front of each line."""
        mark = next(f"<{priority}>" for level, priority in _PRIORITIES if record.levelno >= level)
        return "\n".join(f"{mark}{line}" for line in self._lines.format(record).split("\n"))


def _quoted(text: str) -> str:
    plain = _PLAIN.fullmatch(text) and not STEERING.search(text)
    return text if plain else _without_controls(json.dumps(text, ensure_ascii=False))


def _without_controls(text: str) -> str:
    """Escape as JSON does what would command a terminal or turn the direction of a text around."""
    return STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
