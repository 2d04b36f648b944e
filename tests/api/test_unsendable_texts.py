"""Texts of one user's chain that no encoder takes hide nothing from administrators."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from network_world import CHAINS, slurm_token

from mirage.api.app import create_app
from mirage.api.feed import Interest
from mirage.api.routes.events import cycle_event
from mirage.control.status import ChainFault
from mirage.domain.chain import Chain, ChainId, ChainRecord
from mirage.domain.errors import SubmissionRejected
from mirage.domain.job import JobRequest
from mirage.domain.link import Link

if TYPE_CHECKING:
    from network_world import Network

    from mirage.control.status import Status

HOSTILE = "Bad\ud800\udcff\0\x1b]0;x\x07\n\u202e"
CHIEF = "chief"
"""An administrator."""


def chain_of(owner: str, words: str) -> ChainRecord:
    chain = Chain(ChainId(f"of-{owner}"), "train", owner, JobRequest("train", owner, 3_600))
    link = Link(1, "mirage:x:1", 5, reason=words)
    return ChainRecord(chain, (link,), reason=words, rejection=words)


def told(network: Network) -> Status:
    """A status after a cycle in which ada's words went into every sentence."""
    network.loop.ended.set()
    assert network.loop.over.wait(10)
    records = chain_of("ada", HOSTILE), chain_of("bob", "waits")
    status = replace(
        network.loop.status,
        sentence=f"hold: {HOSTILE}; hold: it is early",
        chains=records,
        explained={records[0].chain.chain_id: HOSTILE, records[1].chain.chain_id: "hold: it is early"},
        files_unknown={records[0].chain.chain_id: HOSTILE},
        cycles=7,
    )
    network.loop.records, network.loop.status = list(records), status
    return status


def test_no_address_of_administrator_fails_for_one_chain(network: Network) -> None:
    told(network)
    operations = create_app(network.server.service).openapi()["paths"]
    paths = {path for path, methods in operations.items() if "get" in methods and "{" not in path}
    paths |= {f"{CHAINS}?all=true", f"{CHAINS}/of-ada", f"{CHAINS}/of-ada/explain", "/", "/over", "/chains/of-ada"}
    for path in paths - {"/api/v1/events"}:
        answer = network.with_token("GET", path, slurm_token(CHIEF))
        assert answer.status != 500, path
    for path in (CHAINS, "/api/v1/cluster", "/healthz"):
        assert network.with_token("GET", path, slurm_token(CHIEF)).status == 200
    shown = network.with_token("GET", f"{CHAINS}?all=true", slurm_token(CHIEF)).body
    assert [each["owner"] for each in shown["chains"]] == ["ada", "bob"]
    assert shown["chains"][0]["sentence"].startswith("Bad")
    assert shown["chains"][1]["sentence"] == "hold: it is early"


def test_cycle_event_with_hostile_words_can_be_sent(network: Network) -> None:
    text = cycle_event(told(network), Interest(CHIEF, every=True)).model_dump_json()
    assert "\n" not in text
    assert json.loads(text.encode())["cycle"] == 7


@pytest.mark.parametrize("error", [SubmissionRejected(HOSTILE, HOSTILE), OSError(HOSTILE)])
def test_text_of_fault_can_be_stored(error: Exception) -> None:
    text = ChainFault(None, error).text
    assert "\0" not in text.encode().decode()
