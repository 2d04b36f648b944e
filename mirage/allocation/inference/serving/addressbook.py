"""The state directory: the address of the chain's current gateway, and what gateways have measured."""

from __future__ import annotations

import json
import math
import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mirage.documenttext import parse_json
from mirage.domain.errors import ConfigError
from mirage.wholefile import draft_of, read_regular

if TYPE_CHECKING:
    from pathlib import Path

_ADDRESS, _LEARNT = "address.json", "learnt.json"
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True, slots=True)
class Address:
    """Address and token of one gateway."""

    url: str
    token: str
    """The operator key; the file is readable only by its owner."""


@dataclass(frozen=True, slots=True)
class StateFolder:
    """The state directory, on a file system that all links and the reverse proxy see.

    Its content decides where requests go, with the keys of tenants. So the directory must belong to this user and
    be closed to others.
    """

    path: Path

    def make(self) -> None:
        """Create it, readable only by its owner. Raises ``ConfigError`` where that fails, or as ``check`` does."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError):
                self.path.mkdir(mode=0o700)
        except OSError as error:
            problem = f"cannot create the state directory: {error.strerror}; name another one"
            raise ConfigError(str(self.path), problem) from error
        self.check()

    def check(self) -> None:
        """Raise ``ConfigError`` for a symbolic link, another owner or access by others; it may not exist yet."""
        try:
            about = self.path.lstat()
        except FileNotFoundError:
            return
        except OSError as error:
            problem = f"cannot read the state directory: {error.strerror}; name another one"
            raise ConfigError(str(self.path), problem) from error
        if problem := _problem_of(about):
            raise ConfigError(str(self.path), problem)

    def read_address(self) -> Address | None:
        """The current gateway; ``None`` where no gateway is recorded. Raises ``ConfigError`` as ``check`` does."""
        self.check()
        document = self._read(_ADDRESS)
        if document is None or not all(isinstance(document.get(key), str) for key in ("url", "token")):
            return None
        return Address(document["url"], document["token"])

    def write_address(self, address: Address) -> None:
        """Record the current gateway. Raises ``ConfigError`` as ``check`` does."""
        self.check()
        self._write(_ADDRESS, {"url": address.url, "token": address.token})

    def read_learnt(self) -> dict[str, dict[str, float]]:
        """Estimated seconds of a request by model and kind; empty where the file is damaged."""
        document = self._read(_LEARNT) or {}
        return {
            model: {kind: float(seconds) for kind, seconds in of.items() if _is_time(seconds)}
            for model, of in document.items()
            if isinstance(of, dict)
        }

    def write_learnt(self, learnt: dict[str, dict[str, float]]) -> None:
        """Record estimates for the next gateway."""
        self._write(_LEARNT, learnt)

    def _read(self, name: str) -> dict[str, Any] | None:
        try:
            content = read_regular(self.path / name, follow_links=False, owner=os.geteuid())
            document = parse_json(content.decode())
        except (OSError, ValueError):
            return None
        return document if isinstance(document, dict) else None

    def _write(self, name: str, document: dict[str, Any]) -> None:
        """Create a file that only its owner can read from the first byte on: it holds a key."""
        with draft_of(self.path / name) as draft:
            draft.touch(mode=0o600)
            draft.write_text(json.dumps(document), encoding="utf-8")


def _problem_of(about: os.stat_result) -> str:
    if stat.S_ISLNK(about.st_mode):
        return "the state directory is a symbolic link; name the directory itself"
    if not stat.S_ISDIR(about.st_mode):
        return "the state directory is not a directory; name another one"
    if about.st_uid != os.geteuid():
        return f"the state directory belongs to another user (UID {about.st_uid}); name one of your own"
    if about.st_mode & _OTHERS:
        mode = stat.S_IMODE(about.st_mode)
        return f"the state directory is open to others (mode {mode:04o}), and it holds keys; run chmod 700 on it"
    return ""


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value) and value > 0
