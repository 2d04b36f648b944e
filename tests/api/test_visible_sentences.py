"""Results of the loop for a chain are visible to its owner and to administrators."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from api_world import definition
from network_world import CHAINS, slurm_token

from mirage.api.access.visibility import Visible
from mirage.api.app import create_app
from mirage.control.status import Status
from mirage.domain.snapshot import Snapshot

if TYPE_CHECKING:
    from network_world import Network

ALL = "did what was asked"
"""The loop's sentence about the chains of all users."""
STREAM = "/api/v1/events"


def sentence(network: Network, path: str, user: str) -> str:
    answer = network.with_token("GET", path, slurm_token(user))
    assert answer.status == 200
    return str(answer.body["sentence"])


def test_sentence_of_own_chains_is_told_and_no_other(network: Network) -> None:
    assert network.with_token("POST", CHAINS, slurm_token("ada"), definition()).status == 201
    for path in ("/healthz", CHAINS):
        assert sentence(network, path, "bob") == ""
        assert sentence(network, path, "ada") == "hold: it is early"
    assert sentence(network, "/healthz", "chief") == ALL
    assert sentence(network, f"{CHAINS}?all=true", "chief") == ALL
    assert sentence(network, CHAINS, "chief") == ""


def test_no_address_tells_a_user_what_is_about_all(network: Network) -> None:
    assert network.with_token("POST", CHAINS, slurm_token("ada"), definition()).status == 201
    operations = create_app(network.server.service).openapi()["paths"]
    paths = [path for path, methods in operations.items() if "get" in methods and "{" not in path]
    assert len(paths) > 10
    for path in set(paths) - {STREAM} | {"/", "/predictors", "/metrics"}:
        answer = network.with_token("GET", path, slurm_token("bob"))
        assert ALL not in json.dumps(answer.body), path


def test_every_user_is_told_that_the_daemon_is_on_standby() -> None:
    standby = Status(0, "stands by: another daemon leads", Snapshot.unseen(0), asked=False)
    assert Visible(standby, "bob", every=False).sentence == standby.sentence
    assert Visible(replace(standby, asked=True), "bob", every=False).sentence == ""
