"""Default directories of a daemon, for the daemon and for its clients."""

from __future__ import annotations

import contextlib
import os
import pwd
import stat
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from mirage.client.address import own_home
from mirage.ownplaces import network_file_system

if TYPE_CHECKING:
    from collections.abc import Mapping

SYSTEM_FILE = Path("/etc/mirage/mirage.toml")
SOCKET = "api.sock"
CALLS = "cycle.json"
"""File of the state directory: the calls of ``mirage cycle``."""
SHARED = "shared"
"""Directory of ``~/.local/state/mirage``: the database of every machine, where links look after their chains."""
CONTROLLER = "controller"
"""Script in there that links run."""
SHARED_FOLDERS = (Path("/var/tmp"), Path("/tmp"))  # noqa: S108 - a directory of the user's own in there, checked
"""Local directories for files of ordinary users; the first one survives a reboot."""


@dataclass(frozen=True, slots=True)
class Places:
    """Directories of one daemon; they may not exist yet."""

    state: Path
    """Database, lock and heartbeat; kept across restarts."""
    runtime: Path
    """The socket. For an ordinary user this is the state directory, because not every session has a runtime
    directory."""
    remark: str = ""
    """Why the state is not in the usual directory; empty: it is."""
    shared: Path | None = None
    """The user's shared directory, whether or not it exists; ``None``: the user has none."""

    @property
    def self_driven(self) -> bool:
        """Whether the links look after their chains: this user has made the directory and the script in it."""
        if self.shared is None:
            return False
        try:
            return {self.shared.lstat().st_uid, (self.shared / CONTROLLER).lstat().st_uid} == {os.geteuid()}
        except OSError:
            return False


def network_kind(folder: Path) -> str:
    """Return the type of the network file system that ``folder`` is, or will be, on; empty: a local one."""
    there = next(above for above in (folder, *folder.parents) if _is_there(above))
    return network_file_system(there)


def default_places(environ: Mapping[str, str], uid: int) -> Places:
    """Return the directories of a systemd unit; else the system's for root; else the user's.

    An ordinary user's state directory is ``~/.local/state/mirage`` (or ``$XDG_STATE_HOME``). A network file system
    cannot hold a database: then it is ``mirage-USER`` in the first shared directory that is local and available to
    the user.
    """
    home = Places(Path("/var/lib/mirage"), Path("/run/mirage")) if uid == 0 else _users_place(environ, uid)
    state, runtime = _first(environ, "STATE_DIRECTORY"), _first(environ, "RUNTIME_DIRECTORY")
    if state:
        return Places(state, runtime or home.runtime)
    return replace(home, runtime=runtime or home.runtime)


_OF_PLACES = ("MIRAGE_SERVICE__", "MIRAGE_API__")


def used_places(environ: Mapping[str, str], uid: int) -> tuple[Path, Path]:
    """Return the state directory and the socket of this user's daemon, as its configuration has them.

    Raises ``ConfigError``. Without a configuration nothing of it is imported: every command asks.
    """
    if default_file(environ, uid) is not None or any(name.startswith(_OF_PLACES) for name in environ):
        from mirage.config.loading import load_config

        config = load_config().config
        return Path(config.service.state), Path(config.api.socket)
    places = default_places(environ, uid)
    return places.state, places.runtime / SOCKET


def daemon_socket(own: Path) -> Path:
    """Return the user's ``own`` socket, or the site's if only that one exists."""
    system = default_places({}, 0).runtime / SOCKET
    return system if system.exists() and not own.exists() else own


def remark_on(state: Path) -> str:
    """Return why ``state`` is the default directory instead of the usual one; else an empty text."""
    places = default_places(os.environ, os.getuid())
    return places.remark if places.state == state else ""


def _users_place(environ: Mapping[str, str], uid: int) -> Places:
    own = (_folder(environ, "XDG_STATE_HOME") or _home(environ) / ".local/state") / "mirage"
    # An existing database was created by a daemon: its directory stays valid, without a check of the mounts.
    if environ.get("STATE_DIRECTORY") or _is_there(own / "mirage.db") or not (kind := network_kind(own)):
        return Places(own, own, shared=own / SHARED)
    for folder in SHARED_FOLDERS:
        place = folder / f"mirage-{_user_name(uid)}"
        if folder.is_dir() and not network_kind(place) and _is_taken(place, uid) and not network_kind(place):
            said = f"{own} is on a network file system ({kind}): the state is in {place}, only for this machine"
            lasts = "" if folder is SHARED_FOLDERS[0] else ", and a reboot may delete it"
            return Places(place, place, said + lasts, own / SHARED)
    return Places(own, own, shared=own / SHARED)


def _is_taken(place: Path, uid: int) -> bool:
    """Create ``place`` if it is missing, and return whether it is this user's directory.

    Another user could create a missing directory between two checks, but cannot replace one of this user's.
    """
    if uid == os.geteuid():
        with contextlib.suppress(OSError):
            place.mkdir(0o700)
        if is_absent(place):
            return False
    return may_be_had(place, uid)


def may_be_had(folder: Path, uid: int) -> bool:
    """Return whether ``folder`` belongs to this user or does not exist. A symbolic link never does."""
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
    """Return the default configuration file: root's in ``/etc``, or the user's; ``None`` if it does not exist.

    An ordinary user's daemon does not read the system's file, which describes another daemon.
    """
    own = (_folder(environ, "XDG_CONFIG_HOME") or _home(environ) / ".config") / "mirage" / "mirage.toml"
    file = SYSTEM_FILE if uid == 0 else own
    return None if is_absent(file) else file


def in_url(path: Path) -> str:
    """The path as a part of a URL, which decodes ``%`` and ends a path at ``?``."""
    return str(path).replace("%", "%25").replace("?", "%3F")


def is_absent(path: Path) -> bool:
    """Return whether nothing has this name. Dangling links and inaccessible files exist."""
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
    """Return the directory in a variable; a relative path is ignored, as in the XDG specification."""
    path = Path(environ.get(name) or ".")
    return path if path.is_absolute() else None


def _user_name(uid: int) -> str:
    """Return the name from the user database, because variables are not reliable."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _first(environ: Mapping[str, str], name: str) -> Path | None:
    """Return the first directory of a colon-separated variable of systemd."""
    listed = environ.get(name, "")
    return Path(listed.split(":")[0]) if listed else None
