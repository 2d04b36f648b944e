"""Switch from root to the daemon's account before a command changes its files: it could not use files of root.

The command then has no more rights than that account, for example through a symbolic link that it has created. A
configuration names programs to run, so root also switches to the owner of the configuration file.
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
    """Load the configuration; root switches to the owner of its files, else of the state directory."""
    loaded = load(config)
    become_owner_of_files(loaded)
    become_owner(Path(loaded.config.service.state))
    return loaded.config


def load(config: str) -> Loaded:
    """Load a configuration file, by default the default one."""
    from mirage.config.loading import load_config

    return load_config(Path(config) if config else None)


def become_owner_of_files(loaded: Loaded) -> None:
    """Switch from root to the owner of the configuration files, unless that is root."""
    for file in loaded.files:
        become_owner(file)


def become_owner(folder: Path) -> None:
    """Switch from root to the owner of the directory, or of its nearest existing parent."""
    about = _nearest(folder.absolute()).stat()
    if os.geteuid() != 0 or about.st_uid == 0:
        return
    try:
        os.initgroups(pwd.getpwuid(about.st_uid).pw_name, about.st_gid)
    except KeyError:  # an account of another machine
        os.setgroups([])
    os.setgid(about.st_gid)
    os.setuid(about.st_uid)


def _nearest(folder: Path) -> Path:
    return next(each for each in (folder, *folder.parents) if each.exists())
