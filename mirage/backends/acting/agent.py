"""Acts through the users' own agents: no privilege at all, but a process of the user has to be there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.backends.acting.by_order import ByOrder

if TYPE_CHECKING:
    from mirage.backends.acting.orderdesk import OrderDesk
    from mirage.backends.acting.ownerturns import TurnLimits


class AgentActuator(ByOrder):
    """An ``Actuator`` that puts requests into the agent queue and waits for the answers.

    ``NotPermitted`` while no agent of the owner is connected: nothing has happened then, and the next cycle may
    try again. ``ClusterUnavailable``: an agent took the request and did not answer; the action may have happened.
    """

    def __init__(self, desk: OrderDesk, limits: TurnLimits | None = None) -> None:
        super().__init__(desk.ask, desk.withdraw, limits=limits)
