"""Log lines on stderr: ``key=value``, or one JSON object a line."""

from __future__ import annotations

import json
import logging
import re
import sys
import time

_PLAIN = re.compile(r"[^\s\"=\\]+")


def set_up_logging(level: str, form: str) -> None:
    """Log to stderr in this form (``text`` or ``json``), from this level on; may be called again."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else KeyValues())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for chatty in ("apscheduler", "alembic", "uvicorn"):
        logging.getLogger(chatty).setLevel(max(logging.WARNING, root.level))


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


def _quoted(text: str) -> str:
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)
