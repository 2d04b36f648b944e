"""Where a daemon keeps its things when nothing says otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

SYSTEM_FILE = Path("/etc/mirage/mirage.toml")


@dataclass(frozen=True, slots=True)
class Places:
    """Folders of one daemon; they need not exist yet."""

    state: Path
    """Kept across restarts: store, lock, heartbeat."""
    runtime: Path
    """Gone with the session or the machine: the socket."""


def default_places(environ: Mapping[str, str], uid: int) -> Places:
    """systemd's folders of a unit; else the system's for root; else those of the user's session."""
    home = Path(environ.get("HOME") or "~").expanduser()
    state = Path(environ.get("XDG_STATE_HOME") or home / ".local/state") / "mirage"
    runtime = Path(environ["XDG_RUNTIME_DIR"]) / "mirage" if environ.get("XDG_RUNTIME_DIR") else state
    if uid == 0:
        state, runtime = Path("/var/lib/mirage"), Path("/run/mirage")
    return Places(_first(environ, "STATE_DIRECTORY") or state, _first(environ, "RUNTIME_DIRECTORY") or runtime)


def default_file(environ: Mapping[str, str], uid: int) -> Path | None:
    """The file that is read when none is named: root's in ``/etc``, a user's own; ``None`` where there is none.

    An ordinary user's daemon does not read the system's file: that one describes another daemon.
    """
    home = Path(environ.get("HOME") or "~").expanduser()
    own = Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "mirage" / "mirage.toml"
    file = SYSTEM_FILE if uid == 0 else own
    return file if file.exists() else None


def _first(environ: Mapping[str, str], name: str) -> Path | None:
    """The first folder of a variable that systemd sets (colons between)."""
    listed = environ.get(name, "")
    return Path(listed.split(":")[0]) if listed else None
