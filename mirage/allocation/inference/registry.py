"""Policies for requests by the names that users write: ``edf``, ``relmas:models/relmas``."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from mirage.domain.errors import MirageError

if TYPE_CHECKING:
    from mirage.ports import RequestPolicy

# Where each is made: "module:maker", relative to this package, imported when it is asked for. The maker is called
# without arguments; where the name ends in a colon ("relmas:"), with what the user writes behind it.
POLICIES: dict[str, str] = {
    "dream": "policies.plain:dream",
    "dream:": "policies.plain:dream",
    "edf": "policies.plain:edf",
    "edf:": "policies.plain:edf",
    "fcfs": "policies.plain:fcfs",
    "fcfs:": "policies.plain:fcfs",
    "herald": "policies.plain:herald",
    "herald:": "policies.plain:herald",
    "lft": "policies.plain:lft",
    "lft:": "policies.plain:lft",
    "listed": "relmas.policies:listed",
    "llf": "policies.plain:llf",
    "llf:": "policies.plain:llf",
    "odra:": "relmas.policies:odra",
    "magma": "policies.planning:magma",
    "magma:": "policies.planning:magma",
    "planaria": "policies.plain:planaria",
    "planaria:": "policies.plain:planaria",
    "prema": "policies.plain:prema",
    "prema:": "policies.plain:prema",
    "random": "policies.plain:random",
    "random:": "policies.plain:random",
    "relmas:": "relmas.policies:relmas",
    "sjf": "policies.plain:sjf",
    "sjf:": "policies.plain:sjf",
    "triage": "policies.planning:triage",
}


class UnknownRequestPolicy(MirageError):
    """A name of a policy that does not exist. Says which there are."""


def request_policy(name: str) -> RequestPolicy:
    """The policy that a user calls ``name``. Raises ``UnknownRequestPolicy``."""
    kind, colon, argument = name.partition(":")
    where = POLICIES.get(kind + colon)
    if where is None:
        raise UnknownRequestPolicy(f"there is no policy {name!r}; there are: {', '.join(sorted(POLICIES))}")
    module, _, maker = where.partition(":")
    make = getattr(import_module(f"{__package__}.{module}"), maker)
    policy: RequestPolicy = make(argument) if colon else make()
    return policy
