"""Root continues as the daemon's account where a command changes its files: it could not use files of root's.

What that account may not do is then not done for it either, such as writing through a link that it has made. A
configuration names programs that are run, so the same holds for the owner of its file.
"""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mirage.config.loading import Loaded
    from mirage.config.model import Config


def configured(config: str) -> Config:
    """The daemon's configuration; root continues as the owner of its files, else of its state directory."""
    loaded = load(config)
    become_owner_of_files(loaded)
    become_owner(Path(loaded.config.service.state))
    return loaded.config


def load(config: str) -> Loaded:
    """The daemon's configuration, by default that of the default place."""
    from mirage.config.loading import load_config

    return load_config(Path(config) if config else None)


def become_owner_of_files(loaded: Loaded) -> None:
    """Where root calls: continue as the owner of the configuration's files, if they are not root's."""
    for file in loaded.files:
        become_owner(file)


def become_owner(folder: Path) -> None:
    """Where root calls: continue as the owner of the directory, or of the nearest one above that is there."""
    about = _nearest(folder.absolute()).stat()
    if os.geteuid() != 0 or about.st_uid == 0:
        return
    try:
        os.initgroups(pwd.getpwuid(about.st_uid).pw_name, about.st_gid)
    except KeyError:  # an account of another machine's
        os.setgroups([])
    os.setgid(about.st_gid)
    os.setuid(about.st_uid)


def _nearest(folder: Path) -> Path:
    return next(each for each in (folder, *folder.parents) if each.exists())
