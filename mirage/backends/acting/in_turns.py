"""An ``Actuator`` that acts for many users, each of whom it may keep waiting alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.backends.acting.by_order import ByOrder
from mirage.backends.acting.executor import carry_out

if TYPE_CHECKING:
    from mirage.ports import Actuator


class InTurns(ByOrder):
    """``actuator``, each act in a thread that is waited for as ``OwnerTurns`` says; raises what it raises.

    ``actuator`` must be safe to use from several threads; ``behind`` says whom it asks, for people.
    """

    def __init__(self, actuator: Actuator, behind: str) -> None:
        super().__init__(lambda owner, act: carry_out(act, owner, actuator), behind=behind)
