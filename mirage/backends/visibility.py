"""Whether Slurm shows one account the jobs of all users: ``PrivateData`` of slurm.conf(5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from mirage.backends.jobquery import QueryRejected
from mirage.backends.restclient import NoSuchPath
from mirage.domain.errors import ClusterUnavailable, NotPermitted
from mirage.slurm.configtext import read_settings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from mirage.backends.execution import Commands
    from mirage.backends.rest import Rest

_SUPERUSER = "root"
_ASKS_FOR_COORDINATORS = 40
"""From this version of the API on the user's record has them only where that is asked for."""
_LEVELS = frozenset({"operator", "administrator"})


@dataclass(frozen=True, slots=True)
class CliVisibility:
    """By ``scontrol show config`` and ``sacctmgr show user``."""

    commands: Commands
    account: str

    def __call__(self, seen: bool = False) -> bool:
        """Whether the account sees all jobs; false also where Slurm does not report it. Ignores ``seen``."""
        if self.account == _SUPERUSER:
            return True
        try:
            settings = read_settings(self._printed("scontrol", "show", "config"))
            hidden, controller = settings.get("privatedata", "jobs"), settings.get("slurmuser", "")
            if "jobs" not in hidden.lower() or controller.partition("(")[0] == self.account:
                return True
            users = self._printed("sacctmgr", "-nP", "show", "user", self.account, "format=user,adminlevel")
        except ClusterUnavailable:
            return False
        rows = (line.split("|") for line in users.splitlines())
        return any(row[0] == self.account and _is_operator(row[-1]) for row in rows)

    def _printed(self, *argv: str) -> str:
        answer = self.commands.run(argv)
        return "" if answer.status else answer.out


@dataclass(frozen=True, slots=True)
class RestVisibility:
    """By the user's level in accounting: slurmrestd does not show ``PrivateData``.

    Jobs of other users that are seen show that it is off, unless the account coordinates accounts of Slurm.
    """

    rest: Rest
    account: str

    def __call__(self, seen: bool = False) -> bool:
        """Whether the account sees all jobs; ``seen``: whether it sees any of other users.

        False also if slurmrestd does not report it.
        """
        if self.account == _SUPERUSER:
            return True
        try:
            path = f"user/{quote(self.account, safe='')}"
            if self.rest.number() >= _ASKS_FOR_COORDINATORS:
                path += "?with_coords=true"
            users = self.rest.records(path, "users", family="slurmdb")
        except NoSuchPath:  # no accounting, so no coordinators
            return seen
        except (ClusterUnavailable, NotPermitted, QueryRejected):
            return False
        own = [user for user in users if user.get("name") == self.account]
        if any(map(_level_of, own)):
            return True
        return seen and bool(own) and not any(user.get("coordinators") for user in own)


def _level_of(user: Mapping[str, Any]) -> bool:
    level = user.get("administrator_level")  # a list since v0.0.39
    levels: Sequence[object] = level if isinstance(level, list) else [level]
    return any(_is_operator(str(each)) for each in levels)


def _is_operator(level: str) -> bool:
    return level.lower() in _LEVELS
