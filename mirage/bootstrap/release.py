"""Which Slurm the daemon speaks to."""

from __future__ import annotations

import re
import threading
import time
from typing import TYPE_CHECKING

from mirage.bootstrap.world import command_environment
from mirage.domain.errors import MirageError

if TYPE_CHECKING:
    from mirage.config.model import Config

_HOLDS = 3_600.0
_RETRIED = 60.0
"""Real seconds after which a Slurm that did not say its version is asked again."""
_VERSION = re.compile(r"(?<![0-9])[0-9]++\.[0-9]++[.0-9a-z-]*")


class Release:
    """The backend and Slurm's version, asked for periodically. For every thread but the loop's."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._lock = threading.Lock()
        self._known: str | None = None
        self._until = 0.0

    def __call__(self) -> tuple[str, str | None]:
        """The version is ``None`` where it is not known."""
        with self._lock:
            if time.monotonic() >= self._until:
                self._known = self._asked()
                self._until = time.monotonic() + (_HOLDS if self._known else _RETRIED)
            return self._config.cluster.backend, self._known

    def _asked(self) -> str | None:
        if self._config.cluster.backend not in ("cli", "pyslurm"):
            return None
        from mirage.backends.execution import Commands

        section = self._config.cluster
        try:
            answer = Commands(command_environment(section), section.timeout).run(["scontrol", "--version"])
        except MirageError:
            return None
        found = _VERSION.search(answer.out)
        return found[0] if found and not answer.status else None
