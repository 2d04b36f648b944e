"""Policies for requests by name, as in options: ``edf``, ``relmas:models/relmas``."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from mirage.domain.errors import MirageError

if TYPE_CHECKING:
    from mirage.ports import RequestPolicy

# Where each is built: "module:maker", relative to this package, imported on request. The maker is called without
# arguments or, if the name ends in a colon ("relmas:"), with the text behind it.
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
"""The policies of ``all`` in a comparison: those without training, as published and with their best options."""


class UnknownRequestPolicy(MirageError):
    """An unknown name of a policy; the text lists the known names."""


def request_policy(name: str) -> RequestPolicy:
    """The policy with this name. Raises ``UnknownRequestPolicy``."""
    kind, colon, argument = name.partition(":")
    where = POLICIES.get(kind + colon)
    if where is None:
        raise UnknownRequestPolicy(f"unknown policy {name!r} (choose from {', '.join(sorted(POLICIES))})")
    module, _, maker = where.partition(":")
    make = getattr(import_module(f"{__package__}.{module}"), maker)
    policy: RequestPolicy = make(argument) if colon else make()
    return policy


def named_policies(names: str) -> tuple[str, ...]:
    """The names in ``edf,all,relmas:models/relmas``, each once; ``all`` is replaced by ``ALL``."""
    written = [name.strip() for name in names.split(",")]
    return tuple(dict.fromkeys(name for each in written for name in (ALL if each == "all" else (each,))))
