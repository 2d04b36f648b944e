"""Address of a daemon: a Unix socket, or a URL on the network."""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from mirage.client.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Mapping

SOCKET_VARIABLES = ("MIRAGE_SOCKET", "MIRAGE_API__SOCKET")
URL_VARIABLE = "MIRAGE_URL"
TOKEN_VARIABLE = "MIRAGE_TOKEN"  # noqa: S105 - the name of a variable

_SYSTEM = Path("/run/mirage/api.sock")
_SHARED = (Path("/var/tmp"), Path("/tmp"))  # noqa: S108 - a directory of the user's own in there, checked


@dataclass(frozen=True, slots=True)
class Address:
    """Address of one daemon: either ``socket``, or ``host`` and ``port``."""

    socket: str = ""
    host: str = ""
    port: int = 0
    tls: bool = False

    def __str__(self) -> str:
        """Return the text that ``parse`` accepts."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return self.socket or f"{'https' if self.tls else 'http'}://{host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> Address:
        """Parse a path, ``unix:PATH``, ``http://HOST[:PORT]`` or ``https://...``. Raises ``ClientError``."""
        if not text.startswith(("http:", "https:")):
            return cls(socket=text.removeprefix("unix:"))
        try:
            parts = urlsplit(text)
            port = parts.port or (443 if parts.scheme == "https" else 80)
        except ValueError as error:
            raise ClientError(f"{text}: {error}") from None
        if not parts.hostname or parts.path not in ("", "/") or parts.query:
            raise ClientError(f"{text}: expected http://HOST:PORT without a path")
        return cls(host=parts.hostname, port=port, tls=parts.scheme == "https")


def default_address(environ: Mapping[str, str] | None = None, uid: int | None = None) -> Address:
    """Return the address in the environment; else the socket of the user's daemon, or of the machine's.

    The variables are ``$MIRAGE_SOCKET`` and ``$MIRAGE_URL``. The user's daemon has its socket in
    ``~/.local/state/mirage`` or, if the home is on a network file system, in ``/var/tmp/mirage-USER``. A
    directory of another user is ignored.
    """
    environ = os.environ if environ is None else environ
    for name in SOCKET_VARIABLES:
        if environ.get(name):
            return Address(socket=environ[name])
    if environ.get(URL_VARIABLE):
        return Address.parse(environ[URL_VARIABLE])
    own = _own_sockets(environ, os.getuid() if uid is None else uid)
    return Address(socket=str(next((path for path in (*own, _SYSTEM) if path.exists()), own[0])))


def _own_sockets(environ: Mapping[str, str], uid: int) -> tuple[Path, ...]:
    if uid == 0:
        return (_SYSTEM,)
    state = environ.get("XDG_STATE_HOME") or Path(environ.get("HOME") or own_home()) / ".local/state"
    shared = (folder / f"mirage-{user_name(uid)}" for folder in _SHARED)
    return (Path(state, "mirage", "api.sock"), *(place / "api.sock" for place in shared if _is_own(place, uid)))


def _is_own(folder: Path, uid: int) -> bool:
    try:
        return folder.lstat().st_uid == uid and folder.is_dir() and not folder.is_symlink()
    except OSError:
        return False


def user_name(uid: int) -> str:
    """As the user database has it; else the number."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def own_home() -> Path:
    """This user's home by the user database; ``/nonexistent`` where the machine does not know the user."""
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        return Path("/nonexistent")
