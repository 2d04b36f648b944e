"""Log lines on stderr: ``key=value``, or one JSON object a line; the journal is told their priority."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TextIO

_PRIORITIES = ((logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6), (logging.NOTSET, 7))
"""From which level on which of syslog's priorities; see sd-daemon(3)."""
_PLAIN = re.compile(r"[^\s\"=\\]+")


def set_up_logging(level: str, form: str) -> None:
    """Log to stderr in this form (``text`` or ``json``), from this level on; may be called again."""
    handler = logging.StreamHandler(sys.stderr)
    lines = JsonLines() if form == "json" else KeyValues()
    handler.setFormatter(Prioritised(lines) if read_by_journal(sys.stderr, os.environ) else lines)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for chatty in ("apscheduler", "alembic", "uvicorn"):
        logging.getLogger(chatty).setLevel(max(logging.WARNING, root.level))


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
    """``time=... level=info from=journal text="..." chain=...``; a traceback follows on lines of its own."""

    def format(self, record: logging.LogRecord) -> str:
        """One record."""
        line = " ".join(f"{key}={_quoted(str(value))}" for key, value in _fields(record).items())
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonLines(logging.Formatter):
    """One object a line, a traceback among its fields."""

    def format(self, record: logging.LogRecord) -> str:
        """One record."""
        fields = _fields(record)
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False, default=str)


class Prioritised(logging.Formatter):
    """The lines of another, each after its priority, such as ``<4>``: those of a traceback as well."""

    def __init__(self, lines: logging.Formatter) -> None:
        super().__init__()
        self._lines = lines

    def format(self, record: logging.LogRecord) -> str:
        """One record."""
        mark = next(f"<{priority}>" for level, priority in _PRIORITIES if record.levelno >= level)
        return "\n".join(f"{mark}{line}" for line in self._lines.format(record).split("\n"))


def _quoted(text: str) -> str:
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)
