"""Where the chain's current gateway is, and the proof that it is this one.

The state directory holds the gateway's address, and what gateways have measured. Any process may listen where a
gateway has listened, so keys and requests go only to a gateway that has authenticated, by a shared secret:
mutually between a worker and its gateway, and towards a reverse proxy. The proof includes the gateway's
address, so that another process cannot relay it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import os
import secrets
import stat
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mirage.atomic_file import draft_of, read_regular
from mirage.documentreading import parse_json
from mirage.domain.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

PLACE, CHALLENGE = "/proof", "x-mirage-challenge"
"""Path and header by which a gateway proves that it is the one named in the state directory."""
LONGEST_CHALLENGE = 128
GATE, SECRET, NAME = "MIRAGE_SERVING_GATE", "MIRAGE_SERVING_SECRET", "MIRAGE_SERVING_UNIT"
"""Environment of a worker: the gateway's address (``HOST:PORT``), the shared secret and the worker's name."""


def fresh() -> str:
    """A random secret or challenge."""
    return secrets.token_hex(32)


def prove(secret: str, side: str, challenge: str) -> str:
    """The answer to a challenge (HMAC-SHA-256); ``side`` prevents an answer from being reflected."""
    return hmac.new(secret.encode(), f"{side}:{challenge}".encode(), hashlib.sha256).hexdigest()


def gateway_at(url: str) -> str:
    """Name of the side of a gateway that listens there."""
    return f"gateway at {url}"


def proves(secret: str, side: str, challenge: str, proof: object) -> bool:
    """Whether an answer is correct."""
    return isinstance(proof, str) and hmac.compare_digest(prove(secret, side, challenge), proof)


_ADDRESS, _LEARNT = "address.json", "learnt.json"
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True, slots=True)
class GatewayAddress:
    """Address and token of one gateway."""

    url: str
    token: str
    """The operator key; the file is readable only by its owner."""


@dataclass(frozen=True, slots=True)
class GatewayStateFolder:
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

    def read_address(self) -> GatewayAddress | None:
        """The current gateway; ``None`` where no gateway is recorded. Raises ``ConfigError`` as ``check`` does."""
        self.check()
        document = self._read(_ADDRESS)
        if document is None or not all(isinstance(document.get(key), str) for key in ("url", "token")):
            return None
        return GatewayAddress(document["url"], document["token"])

    def write_address(self, address: GatewayAddress) -> None:
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
