"""Protected mode over the socket: all users see it, administrators end it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from api_world import START

from mirage.provisioner.rejections import Protection

if TYPE_CHECKING:
    from api_world import World


def test_all_see_it_and_administrators_end_it(world: World) -> None:
    assert world.call("GET", "/api/v1/protected-mode") == (
        200,
        {"on": False, "reason": "", "since": None, "next_try": None},
    )
    world.loop.status = replace(world.loop.status, protection=Protection(START, 5, START + 600))
    status, document = world.call("GET", "/api/v1/protected-mode", user="daemon")
    assert (status, document["on"], document["next_try"]) == (200, True, "2023-11-14T22:23:20Z")
    assert world.call("POST", "/api/v1/protected-mode", {"on": False}, user="daemon")[0] == 403
    assert world.call("POST", "/api/v1/protected-mode", {"on": True})[0] == 422
    assert world.loop.status.protection is not None
    status, document = world.call("POST", "/api/v1/protected-mode", {"on": False}, user="bin")
    assert (status, document["sentence"]) == (200, "protected mode lifted by bin: all chains may try again")
    assert world.call("GET", "/api/v1/protected-mode")[1]["on"] is False
