"""Whether the names of users are still the machine's: a container that mounts ``/etc/passwd`` keeps an old one.

``useradd`` and ``userdel`` write a new file and rename it. A mount of the single file shows the old one from then
on: who was added has no name, and who got the number of an account that was removed would be taken for that one.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mirage.domain.errors import MirageError

if TYPE_CHECKING:
    from collections.abc import Iterable

FILES = (Path("/etc/passwd"), Path("/etc/group"))


class UsersOutdated(MirageError):
    """The process has to start again, with the file mounted again, to know the users of the machine."""


def check_user_files(files: Iterable[Path] = FILES) -> None:
    """Raise ``UsersOutdated`` where a file is shown that no directory has any more; a missing one is fine."""
    for file in files:
        try:
            links = file.stat().st_nlink
        except OSError:
            continue
        if not links:
            raise UsersOutdated(f"{file} was replaced on the host after the container mounted it")
