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


ALL = (
    "random",
    "fcfs",
    "lft",
    "edf",
    "edf:late-last",
    "edf:late-last+spare",
    "edf:wait+late-last",
    "edf:wait+late-last+spare",
    "llf:late-last",
    "sjf:late-last",
    "sjf:late-last+spare",
    "sjf:wait+late-last",
    "prema",
    "prema:late-last",
    "prema:late-last+spare",
    "herald",
    "herald:late-last",
    "planaria",
    "planaria:late-last",
    "dream",
    "dream:late-last",
    "magma",
    "triage",
    "listed",
)
"""What ``all`` stands for in a comparison: what needs no training, as published and at its best."""


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


def named_policies(names: str) -> tuple[str, ...]:
    """The names in ``edf,all,relmas:models/relmas``, each once; ``all`` stands for ``ALL``."""
    written = [name.strip() for name in names.split(",")]
    return tuple(dict.fromkeys(name for each in written for name in (ALL if each == "all" else (each,))))
