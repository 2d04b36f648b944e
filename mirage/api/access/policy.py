"""Access policy: a TOML file with users, groups and a default (`everybody`), in this order of precedence."""

from __future__ import annotations

import grp
import logging
import pwd
import re
import time
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Literal, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from mirage.api.access.caller import Scope, lesser
from mirage.documentreading import Fault, faults_of, parse_toml
from mirage.simulator.configuration.toml_errors import line_of
from mirage.userdb import group_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mirage.api.access.caller import Caller

_LOG = logging.getLogger(__name__)

_GROUPS_HOLD, _UNKNOWN_HOLD = 120.0, 5.0
_MOST_USERS = 10_000

Grade = Literal["none", "read", "operate", "admin"]
_rank = get_args(Grade).index
_MISSING = (
    "missing; add it as the last line (users and groups above it as users.NAME = ..., groups.NAME = ...), "
    "or restore the file if it was cut short"
)


class _PolicyFile(BaseModel):
    """The document of the policy file.

    A truncated file must not give a user more than the whole one. So ``everybody`` is required, and has to be the
    last line wherever the loss of a line would give more.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    everybody: Grade
    anonymous: Literal["none", "read"] = "none"
    queue_jobs: Literal["slurm", "all"] = "slurm"
    queue_names: Literal["own", "all"] = "own"
    users: dict[str, Grade] = {}
    groups: dict[str, Grade] = {}


@dataclass(frozen=True, slots=True)
class AccessPolicy:
    """Scopes of users; ``None``: no access."""

    everybody: Scope | None = Scope.OPERATE
    """Scope of all users without an entry."""
    anonymous: bool = False
    """Whether callers without credentials may view the cluster and its queue."""
    users: Mapping[str, Scope | None] = field(default_factory=dict)
    groups: Mapping[str, Scope | None] = field(default_factory=dict)
    """The greatest scope among a user's groups applies."""
    queue_names: bool = False
    """Whether users see names and accounts of other users' jobs in the queue."""
    queue_jobs: bool = False
    """Whether users see jobs of other users that Slurm hides from them."""

    @classmethod
    def read(cls, content: bytes) -> AccessPolicy:
        """Parse a policy file. Raises ``ValueError`` that names line and key."""
        text = _decoded(content)
        try:
            document = parse_toml(text)
            found = _PolicyFile.model_validate(document)
        except ValidationError as error:
            first = min(faults_of(error), key=lambda fault: fault.kind == "missing")
            raise ValueError(f"line {line_of(text, first.path) or 1}: {first.key}: {_words(first)}") from None
        except ValueError as error:
            raise ValueError(f"not TOML: {error}") from None
        _check_order(text, found)
        _warn_of_strangers(found)
        return cls(
            _scope(found.everybody),
            found.anonymous == "read",
            {name: _scope(grade) for name, grade in found.users.items()},
            {name: _scope(grade) for name, grade in found.groups.items()},
            found.queue_names == "all",
            found.queue_jobs == "all",
        )

    def shows_jobs_to(self, caller: Caller, *, hidden: bool) -> bool:
        """Return whether a caller sees jobs of others; ``hidden``: Slurm hides them from users."""
        return caller.is_admin or self.queue_jobs or not hidden

    def names_shown_to(self, caller: Caller) -> Callable[[str], bool]:
        """Return a test of owners whose job names a caller sees: itself, or all by policy or scope."""
        every = caller.is_admin or (self.queue_names and caller.is_known)
        return lambda owner: every or owner == caller.name

    def scope_of(self, name: str, groups_of: Callable[[str], frozenset[str] | None]) -> Scope | None:
        """Return the scope of the user's entry, else the greatest of the user's groups, else that of `everybody`.

        If the groups are unknown (``None``): the least scope of any group and of `everybody`.
        """
        if name in self.users:
            return self.users[name]
        if not self.groups:
            return self.everybody
        found = groups_of(name)
        if found is None:
            return min((self.everybody, *self.groups.values()), key=_scope_rank)
        mine = [self.groups[group] for group in found if group in self.groups]
        return max(mine, key=_scope_rank) if mine else self.everybody


class UnixGroups:
    """Groups of users by the machine's user database; queried again after 120 s, after a failure after 5 s."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, frozenset[str] | None]] = {}
        """Until when, on the monotonic clock, which groups."""

    def __call__(self, name: str) -> frozenset[str] | None:
        """Return the names of the user's groups; ``None`` where the database does not know the user, or fails.

        The C library reports a database that cannot be reached like a user who does not exist.
        """
        now = time.monotonic()
        held = self._known.get(name)
        if held is None or now >= held[0]:
            if len(self._known) >= _MOST_USERS:
                self._known.clear()
            groups = _groups(name)
            held = self._known[name] = (now + (_UNKNOWN_HOLD if groups is None else _GROUPS_HOLD), groups)
        return held[1]


def granted(wanted: Scope, allowed: Scope | None) -> Scope | None:
    """Return the scope of a token as limited by the policy; ``None``: no access."""
    return None if allowed is None else lesser(wanted, allowed)


def _scope_rank(scope: Scope | None) -> int:
    return -1 if scope is None else list(Scope).index(scope)


def _groups(name: str) -> frozenset[str] | None:
    try:
        ids = group_ids(name)
    except (KeyError, OSError, ValueError):
        return None
    return frozenset(filter(None, map(_group_name, ids)))


def _group_name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return ""


def _scope(grade: str) -> Scope | None:
    return None if grade == "none" else Scope(grade)


def _decoded(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise ValueError("not UTF-8") from None


def _words(fault: Fault) -> str:
    if fault.kind == "missing":
        return _MISSING
    return "there is no such key" if fault.kind == "extra_forbidden" else re.sub("^Input", "it", fault.said)


def _check_order(text: str, found: _PolicyFile) -> None:
    """Raise ``ValueError`` if the truncated file would still be valid and could give a user more."""
    least = _rank(found.everybody)
    most = max(map(_rank, found.groups.values()), default=least)
    users = (f"users.{name}" for name, grade in found.users.items() if _rank(grade) < max(least, most))
    groups = (f"groups.{name}" for name, grade in found.groups.items() if _rank(grade) < least)
    line = line_of(text, ("everybody",))
    below = map(str.strip, text.split("\n")[line:])
    if (lost := next(chain(users, groups), None)) and any(each and each[0] != "#" for each in below):
        raise ValueError(
            f"line {line or 1}: everybody: put it last, below users.NAME = ... and groups.NAME = ...; "
            f"a truncated file would lose {lost} and give more access"
        )


def _warn_of_strangers(found: _PolicyFile) -> None:
    """Log unknown names: a misspelt one would silently have no effect."""
    for name in found.users:
        try:
            pwd.getpwnam(name)
        except (KeyError, ValueError):
            _LOG.warning("event=policy_user_unknown user=%r", name)
    for name in found.groups:
        try:
            grp.getgrnam(name)
        except (KeyError, ValueError):
            _LOG.warning("event=policy_group_unknown group=%r", name)
