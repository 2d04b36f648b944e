"""The daemon's folders: made where they are missing, and nobody else's where everybody may make some."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from mirage.config.places import may_be_had
from mirage.domain.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def make_folder(folder: Path, mode: int, key: str) -> Path:
    """The folder, made where it is missing. Raises ``ConfigError`` naming ``key`` where it cannot be used."""
    try:
        folder.mkdir(mode=mode, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            key, f"the folder {folder} cannot be made: {error.strerror}; name another one"
        ) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigError(key, f"the folder {folder} cannot be written by this user; name another one")
    return folder


def make_private_folder(folder: Path, key: str) -> Path:
    """As ``make_folder``, for what is nobody else's business.

    In a folder that everybody may write to (``/var/tmp``) somebody else may have been there first: what is a link,
    belongs to another user or is open to others is refused.
    """
    made = make_folder(folder, 0o700, key)
    if not folder.absolute().parent.stat().st_mode & stat.S_IWOTH:
        return made
    if not may_be_had(folder, os.geteuid()):
        raise ConfigError(
            key, f"{folder} is a link or another user's, in a folder that is open to all; name another one"
        )
    if stat.S_IMODE(folder.lstat().st_mode) & _OTHERS:
        raise ConfigError(
            key, f"{folder} is open to others, and scripts of chains lie in there; chmod 700 {folder}"
        )
    return made
