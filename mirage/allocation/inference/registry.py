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
    "dream": "policies:dream",
    "dream:": "policies:dream",
    "edf": "policies:edf",
    "edf:": "policies:edf",
    "fcfs": "policies:fcfs",
    "fcfs:": "policies:fcfs",
    "herald": "policies:herald",
    "herald:": "policies:herald",
    "lft": "policies:lft",
    "lft:": "policies:lft",
    "listed": "relmas:listed",
    "llf": "policies:llf",
    "llf:": "policies:llf",
    "odra:": "relmas:odra",
    "magma": "policies:magma",
    "magma:": "policies:magma",
    "planaria": "policies:planaria",
    "planaria:": "policies:planaria",
    "prema": "policies:prema",
    "prema:": "policies:prema",
    "random": "policies:random",
    "random:": "policies:random",
    "relmas:": "relmas:relmas",
    "sjf": "policies:sjf",
    "sjf:": "policies:sjf",
    "triage": "policies:triage",
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
