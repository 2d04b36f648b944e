"""Whether Slurm shows one account the jobs of all users: ``PrivateData`` of slurm.conf(5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from mirage.backends.jobquery import QueryRejected
from mirage.domain.errors import ClusterUnavailable, NotPermitted
from mirage.slurm.configtext import read_settings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from mirage.backends.execution import Commands
    from mirage.backends.rest import Rest

_SUPERUSER = "root"
_LEVELS = frozenset({"operator", "administrator"})


@dataclass(frozen=True, slots=True)
class CliVisibility:
    """By ``scontrol show config`` and ``sacctmgr show user``."""

    commands: Commands
    account: str

    def __call__(self) -> bool:
        """Whether the account sees all jobs; false also where Slurm does not tell."""
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
    """By the user's level in accounting: slurmrestd does not tell ``PrivateData``."""

    rest: Rest
    account: str

    def __call__(self) -> bool:
        """Whether the account sees all jobs; false also where slurmrestd does not tell."""
        if self.account == _SUPERUSER:
            return True
        try:
            users = self.rest.records(f"user/{quote(self.account, safe='')}", "users", family="slurmdb")
        except (ClusterUnavailable, NotPermitted, QueryRejected):
            return False
        return any(user.get("name") == self.account and _level_of(user) for user in users)


def _level_of(user: Mapping[str, Any]) -> bool:
    level = user.get("administrator_level")  # a list since v0.0.39
    levels: Sequence[object] = level if isinstance(level, list) else [level]
    return any(_is_operator(str(each)) for each in levels)


def _is_operator(level: str) -> bool:
    return level.lower() in _LEVELS
