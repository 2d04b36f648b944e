"""Files that are read again when they change: keys are rotated and policies edited while the daemon runs."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from mirage.domain.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

_LOG = logging.getLogger(__name__)
_LOOK_EVERY = 1.0

T = TypeVar("T")


class WatchedFile(Generic[T]):
    """What ``read`` makes of a file, at most a second old.

    Raises ``ConfigError`` where the file is wrong from the start; one that goes wrong later is logged, and what
    was right before it stays.
    """

    def __init__(self, path: Path, key: str, read: Callable[[bytes], T]) -> None:
        self._path, self._key, self._read = path, key, read
        self._seen = self._mark()
        self._value = self._parsed()
        self._looked = time.monotonic()

    @property
    def value(self) -> T:
        """As the file last was when it was right."""
        if time.monotonic() - self._looked >= _LOOK_EVERY:
            self._looked = time.monotonic()
            self._look()
        return self._value

    def _look(self) -> None:
        try:
            mark = self._mark()
            if mark != self._seen:
                self._seen = mark
                self._value = self._parsed()
                _LOG.info("%s: read again", self._path)
        except ConfigError as error:
            _LOG.error("%s; what was read before stays", error)

    def _mark(self) -> tuple[int, int, int]:
        try:
            about = self._path.stat()
        except OSError as error:
            raise ConfigError(self._key, f"{self._path} cannot be read: {error.strerror}") from None
        return about.st_mtime_ns, about.st_size, about.st_ino

    def _parsed(self) -> T:
        try:
            return self._read(self._path.read_bytes())
        except OSError as error:
            raise ConfigError(self._key, f"{self._path} cannot be read: {error.strerror}") from None
        except ValueError as error:
            raise ConfigError(self._key, f"{self._path}: {error}") from None
