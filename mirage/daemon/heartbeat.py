"""A small file that says when the daemon last completed a cycle; for people, scripts and ``mirage doctor``."""

from __future__ import annotations

import json
import logging
import os
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from mirage.documenttext import parse_json
from mirage.wholefile import read_regular, write_anew

if TYPE_CHECKING:
    from pathlib import Path

HEARTBEAT = "heartbeat"
"""The file's name in the state directory."""

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Beat:
    """State of the daemon after one cycle, as its heartbeat file records it."""

    pid: int
    time: int
    """Epoch seconds of the machine's clock."""
    cycles: int
    sentence: str
    failed: int = 0
    """Cycles failed in a row."""
    due_s: float = 0.0
    """Seconds until the next beat at the latest; 0: not known."""
    stuck: int = 0
    """Threads of predictors that will hardly end."""
    outdated: str = ""
    """Why an older key or policy is in force."""


class Heartbeat:
    """Writes the file after each cycle; logs an error once."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._failed = False

    def beat(
        self,
        cycles: int,
        sentence: str,
        failed: int = 0,
        due_s: float = 0.0,
        stuck: int = 0,
        outdated: str = "",
    ) -> None:
        """Record a cycle. Arguments as in ``Beat``."""
        beat = Beat(os.getpid(), int(time.time()), cycles, sentence, failed, due_s, stuck, outdated)
        try:
            write_anew(self._file, json.dumps(asdict(beat)).encode())
        except OSError as error:
            if not self._failed:
                _LOG.warning("event=heartbeat_not_written file=%s error=%r", self._file, error.strerror)
            self._failed = True
        else:
            self._failed = False


def read_beat(file: Path) -> Beat | None:
    """The heartbeat in the file; ``None`` where the file is missing or cannot be read."""
    try:
        return Beat(**parse_json(read_regular(file)))
    except (OSError, ValueError, TypeError):
        return None
