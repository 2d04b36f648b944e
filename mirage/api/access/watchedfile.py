"""Files that are read again when they change, such as keys and the policy."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Generic, TypeVar

from mirage.atomic_file import read_regular
from mirage.backends.seldom import Seldom
from mirage.domain.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_LOG = logging.getLogger(__name__)
_EVERY = 1.0

T = TypeVar("T")


class ReloadedFile(Generic[T]):
    """The parsed content of a file, at most a second old. Any thread.

    Raises ``ConfigError`` if the file is invalid at first. If it becomes invalid later, that is logged and the
    last valid content stays in force. Each check reads the whole file and compares its bytes: size, time and inode
    do not change with the access rights, and need not change with the content.
    """

    def __init__(
        self, path: Path, key: str, parse: Callable[[bytes], T], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._path, self._key, self._parse, self._now = path, key, parse, now
        content = self._content()
        self._held = content, self._parsed(content)
        self._read_at = now()
        self._reading = threading.Lock()
        self._seldom = Seldom(now)
        self.outdated = ""
        """Why an older version is in force; empty: the file is in force."""

    @property
    def value(self) -> T:
        """The last valid content."""
        if self._now() - self._read_at >= _EVERY:
            self.refresh()
        return self._held[1]

    def refresh(self) -> None:
        """Read the file now, unless another thread is doing so."""
        if not self._reading.acquire(blocking=False):
            return
        try:
            self._read_at = self._now()
            self._refresh()
        except ConfigError as error:
            self._fail(str(error))
        finally:
            self._reading.release()

    def _refresh(self) -> None:
        content = self._content()
        changed = content != self._held[0]
        if changed:
            self._held = content, self._parsed(content)
        if changed or self.outdated:
            _LOG.info("event=file_reloaded key=%s file=%s", self._key, self._path)
            self.outdated, self._seldom = "", Seldom(self._now)

    def _fail(self, problem: str) -> None:
        self.outdated = problem
        if self._seldom.allows("outdated", problem):
            text = "event=file_invalid reason=%r text=%r"
            _LOG.error(text, problem, "the version read before stays in force until the file is valid")

    def _content(self) -> bytes:
        try:
            return read_regular(self._path)
        except OSError as error:
            raise ConfigError(self._key, f"{self._path} cannot be read: {error.strerror}") from None

    def _parsed(self, content: bytes) -> T:
        try:
            return self._parse(content)
        except ValueError as error:
            raise ConfigError(self._key, f"{self._path}: {error}") from None
