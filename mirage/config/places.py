"""Where a daemon keeps its things when nothing says otherwise: the same answer for it and for who looks for it."""

from __future__ import annotations

import contextlib
import os
import pwd
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mirage.client.address import own_home
from mirage.store.mounts import network_file_system

if TYPE_CHECKING:
    from collections.abc import Mapping

SYSTEM_FILE = Path("/etc/mirage/mirage.toml")
SOCKET = "api.sock"
SHARED_FOLDERS = (Path("/var/tmp"), Path("/tmp"))  # noqa: S108 - a directory of the user's own in there, checked
"""Where an ordinary user may keep things on this machine's own disk; the first is kept over a reboot."""


@dataclass(frozen=True, slots=True)
class Places:
    """Directories of one daemon; they need not exist yet."""

    state: Path
    """Kept across restarts: store, lock, heartbeat."""
    runtime: Path
    """The socket. An ordinary user's lies next to the state: sessions come and go, and not all of them have a
    runtime directory."""
    remark: str = ""
    """Why the state is not where one would look for it; empty: it is."""


def network_kind(folder: Path) -> str:
    """The type of the network file system that holds ``folder``, or will; empty: a local one does."""
    there = next(above for above in (folder, *folder.parents) if _is_there(above))
    return network_file_system(there)


def default_places(environ: Mapping[str, str], uid: int) -> Places:
    """systemd's directories of a unit; else the system's for root; else the user's.

    An ordinary user's is ``~/.local/state/mirage`` (or ``$XDG_STATE_HOME``). Where that is on a network file
    system, on which no database can be kept, it is ``mirage-USER`` in the first of the shared directories that is
    local and lets the user have it.
    """
    home = Places(Path("/var/lib/mirage"), Path("/run/mirage")) if uid == 0 else _users_place(environ, uid)
    state, runtime = _first(environ, "STATE_DIRECTORY"), _first(environ, "RUNTIME_DIRECTORY")
    return Places(state or home.state, runtime or home.runtime, "" if state else home.remark)


def daemon_socket(own: Path) -> Path:
    """The socket to ask on: one's ``own``; the site's, where there is only that."""
    system = default_places({}, 0).runtime / SOCKET
    return system if system.exists() and not own.exists() else own


def remark_on(state: Path) -> str:
    """Why the state is in ``state``, where that is by default and not where one would look; else empty."""
    places = default_places(os.environ, os.getuid())
    return places.remark if places.state == state else ""


def _users_place(environ: Mapping[str, str], uid: int) -> Places:
    own = (_folder(environ, "XDG_STATE_HOME") or _home(environ) / ".local/state") / "mirage"
    # A store that is there was taken by a daemon: it stays the place, and needs no look at the mounts.
    if environ.get("STATE_DIRECTORY") or _is_there(own / "mirage.db") or not (kind := network_kind(own)):
        return Places(own, own)
    for folder in SHARED_FOLDERS:
        place = folder / f"mirage-{_user_name(uid)}"
        if folder.is_dir() and not network_kind(place) and _is_taken(place, uid) and not network_kind(place):
            said = f"{own} is on a network file system ({kind}): the state is in {place}, for this machine only"
            lasts = "" if folder is SHARED_FOLDERS[0] else ", and a restart of the machine may empty it"
            return Places(place, place, said + lasts)
    return Places(own, own)


def _is_taken(place: Path, uid: int) -> bool:
    """Whether ``place`` is this user's directory now; it is created if it is missing.

    Another user could create a missing directory between two checks, but cannot replace one of this user's.
    """
    if uid == os.geteuid():
        with contextlib.suppress(OSError):
            place.mkdir(0o700)
        if is_absent(place):
            return False
    return may_be_had(place, uid)


def may_be_had(folder: Path, uid: int) -> bool:
    """Whether ``folder`` is this user's, or nobody's yet. A link is not, wherever it leads."""
    try:
        about = folder.lstat()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return stat.S_ISDIR(about.st_mode) and about.st_uid == uid


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except PermissionError:
        return False


def default_file(environ: Mapping[str, str], uid: int) -> Path | None:
    """The file that is read when none is named: root's in ``/etc``, a user's own; ``None`` where there is none.

    An ordinary user's daemon does not read the system's file: that one describes another daemon.
    """
    own = (_folder(environ, "XDG_CONFIG_HOME") or _home(environ) / ".config") / "mirage" / "mirage.toml"
    file = SYSTEM_FILE if uid == 0 else own
    return None if is_absent(file) else file


def is_absent(path: Path) -> bool:
    """Whether nothing has this name. A link that leads nowhere is there, and so is what may not be seen."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def _home(environ: Mapping[str, str]) -> Path:
    return _folder(environ, "HOME") or own_home()


def _folder(environ: Mapping[str, str], name: str) -> Path | None:
    """What a variable names; a relative path is ignored, as the XDG specification has it."""
    path = Path(environ.get(name) or ".")
    return path if path.is_absolute() else None


def _user_name(uid: int) -> str:
    """By the user database: a variable could say anything."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _first(environ: Mapping[str, str], name: str) -> Path | None:
    """The first directory of a variable that systemd sets (colons between)."""
    listed = environ.get(name, "")
    return Path(listed.split(":")[0]) if listed else None
