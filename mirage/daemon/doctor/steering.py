"""Which ways of steering let a successor grow older in the queue of this site (as measured, see DESIGN.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.daemon.doctor.finding import ok, warn
from mirage.domain.chain import Steering

if TYPE_CHECKING:
    from mirage.daemon.doctor.finding import Finding
    from mirage.daemon.doctor.reading import Row

_OTHERS = "pin ages (links need whole nodes); nice ages, but a link starts immediately on an idle node"


def look_at_turns(found: str, chosen: Steering) -> Finding:
    """Modes that gain a place where jobs run in turn (priority/basic)."""
    follows = (
        "jobs run in order of submission: pin keeps a link's place; a job that is released, or whose nice value "
        "changes, goes to the end of the queue, so hold and nice gain nothing"
    )
    if chosen in (Steering.HOLD, Steering.NICE):
        todo = 'set chains.steering = "pin" where links have whole nodes, else "off"'
        return warn("priority", f'{found}, chains.steering = "{chosen}"', follows, todo)
    return ok("priority", found, follows)


def look_at_steering(settings: Row, chosen: Steering) -> Finding:
    """Modes that age under ``PriorityFlags`` and ``AccountingStorageEnforce``; ``chosen``: that of new chains."""
    flags, enforced = settings.get("PriorityFlags", ""), settings.get("AccountingStorageEnforce", "")
    found = f"PriorityFlags={flags or 'none'}, AccountingStorageEnforce={enforced or 'none'}"
    if "ACCRUE_ALWAYS" in flags.upper():
        return ok("steering", found, f"hold ages: every job ages from its submission; {_OTHERS}")
    limits = {"limits", "safe", "all"} & set(enforced.lower().split(","))
    forgotten = "whenever a job is held" if limits else "if a job is submitted held, as links are"
    follows = f"hold does not age: age counts from the release, {forgotten}; {_OTHERS}"
    if chosen is Steering.HOLD:
        todo = 'set chains.steering = "pin" where links have whole nodes, else "off"'
        return warn("steering", f'{found}, chains.steering = "hold"', follows, todo)
    return ok("steering", found, follows)
