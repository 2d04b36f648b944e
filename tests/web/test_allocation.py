"""``/api/v1/allocation`` and ``/api/v1/me``: what the page draws and whom it greets."""

from __future__ import annotations

import json
import urllib.request
from typing import TYPE_CHECKING, Any

from chains_seen import everything, hostile
from seeded import SeededLoop
from server import seeded

from mirage.api.access.protocol import Peer

if TYPE_CHECKING:
    from pathlib import Path


def _get(address: str, path: str) -> Any:
    with urllib.request.urlopen(f"{address}/api/v1{path}") as answer:
        return json.load(answer)


def test_each_node_of_a_link_is_a_lane(tmp_path: Path) -> None:
    with seeded(SeededLoop.of(tmp_path, everything())) as address:
        lanes = {lane["name"]: lane["pieces"] for lane in _get(address, "/allocation")["lanes"]}
    trained = [
        name for name, pieces in lanes.items() if any(each["chain"] == "llm-pretrain-k3q9" for each in pieces)
    ]
    assert len(trained) == 4, "its links have four nodes"
    assert [each["link"] for each in lanes[trained[0]]] == [1, 2, 3, 4, 5, 6]
    assert {each["state"] for each in lanes[trained[0]]} == {"ended", "running"}
    waiting = {each["chain"] for pieces in lanes.values() for each in pieces}
    assert "protein-fold-a1b2" not in waiting, "what has not started occupies nothing"


def test_a_host_list_that_is_none_stays_as_it_is(tmp_path: Path) -> None:
    with seeded(SeededLoop.of(tmp_path, (hostile(),))) as address:
        names = [lane["name"] for lane in _get(address, "/allocation")["lanes"]]
    assert names == [hostile().chain.name]


def test_everybody_sees_what_their_own_links_occupy(tmp_path: Path) -> None:
    with seeded(SeededLoop.of(tmp_path, everything()), Peer(4_321, "bob")) as address:
        lanes = _get(address, "/allocation")["lanes"]
        assert {each["chain"] for lane in lanes for each in lane["pieces"]} == {"nightly-eval-x7w1"}
        assert _get(address, "/me") == {"name": "bob", "scope": "operate", "how": "socket"}
