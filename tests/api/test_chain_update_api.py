"""``PATCH /chains/ID``: changeable fields, and the errors for others."""

from __future__ import annotations

import os
import pwd
from typing import TYPE_CHECKING, Any

import pytest
from api_world import definition
from serving import serving

from mirage.domain.failurepolicy import FailureKind
from mirage.domain.tags import owned_id

if TYPE_CHECKING:
    from api_world import World

ME = pwd.getpwuid(os.getuid()).pw_name
CHAIN = f"/api/v1/chains/{owned_id('train-k3q9', ME)}"


@pytest.fixture
def made(world: World) -> World:
    status, answer = world.call("POST", "/api/v1/chains", definition())
    assert status == 201, answer
    return world


def test_each_setting_is_changed_and_the_rest_stays(made: World) -> None:
    before = made.loop.records[0].chain
    changes = {
        "name": "again",
        "done": {"links": 9, "total_time": 7_200},
        "failures": {"exit": {"recovery": "retry", "retries": 5}},
        "handover": {"max_overlap": 30, "signal": {"lead": 90}},
        "lead": 120,
        "predictor": "quantile",
        "aim": {"kind": "overlap", "value": 3_600},
        "request": {"limit": 1_800},
    }
    status, answer = made.call("PATCH", CHAIN, changes)
    assert status == 200, answer
    after = made.loop.records[0].chain
    assert (after.name, after.done.links, after.done.total_time, after.lead) == ("again", 9, 7_200, 120)
    assert after.failures.of(FailureKind.EXIT).retries == 5
    assert (after.handover.max_overlap, after.handover.signal.lead) == (30, 90)
    assert (after.predictor, after.aim.value, after.request.limit) == ("quantile", 3_600, 1_800)
    assert after.handover.policy is before.handover.policy
    assert after.handover.signal.name == before.handover.signal.name
    assert after.done.exit_code == before.done.exit_code
    assert after.request.batch == before.request.batch
    assert after.owner == before.owner
    assert answer["chain"]["id"] == before.chain_id


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"owner": "root"}, "owner"),
        ({"chain_id": "x"}, "chain_id"),
        ({"request": {"batch": {"text": "#!/bin/sh\n"}}}, "request.batch"),
        ({"request": {"user": "root"}}, "request.user"),
        ({"request": {"limit": 0}}, "request.limit"),
        ({"request": {"limit": "1h"}}, "request.limit"),
        ({"request": 5}, "request"),
        ({"handover": {"policy": "none"}}, "handover.policy"),
        ({"handover": {"signal": {"name": "KILL"}}}, "handover.signal.name"),
        ({"done": {"links": -1}}, "done.links"),
        ({"done": {"nosuch": 1}}, "done.nosuch"),
        ({"done": {"file": "relative"}}, "done.file"),
        ({"predictor": "/tmp/x.py"}, "/tmp/x.py"),
        ({"lead": 1e99}, "lead"),
        ({"aim": {"kind": "gap", "value": -1}}, "aim"),
        ({"name": "a\x1b[2J"}, "name"),
        ({}, "expected an object"),
        ([], "expected an object"),
    ],
)
def test_what_cannot_be_changed_or_read_is_named(made: World, changes: Any, place: str) -> None:
    before = made.loop.records[0]
    status, problem = made.call("PATCH", CHAIN, changes)
    assert status == 422, problem
    assert place in problem["detail"]
    assert made.loop.records[0] == before


def test_a_done_file_alone_means_no_exit_code_as_in_a_new_chain(made: World) -> None:
    assert made.loop.records[0].chain.done.exit_code == 0
    status, _ = made.call("PATCH", CHAIN, {"done": {"file": "/home/done"}})
    assert status == 200
    assert made.loop.records[0].chain.done.exit_code is None
    made.call("PATCH", CHAIN, {"done": {"file": ""}})
    assert made.loop.records[0].chain.done.exit_code == 0, "else work that is done would run again"
    made.call("PATCH", CHAIN, {"done": {"file": "/home/done", "exit_code": 3}})
    made.call("PATCH", CHAIN, {"done": {"file": "/home/other"}})
    assert made.loop.records[0].chain.done.exit_code == 3


def test_links_to_be_released_keep_their_limit(made: World) -> None:
    with serving(made, releases_links=True) as released:
        status, problem = released.call("PATCH", CHAIN, {"request": {"limit": 1_800}})
    assert status == 422
    assert "request.limit" in problem["detail"]


def test_a_chain_of_others_is_none(made: World) -> None:
    if os.getuid() != 0:
        pytest.skip("speaking as several users needs root")
    before = made.loop.records[0]
    status, problem = made.call("PATCH", CHAIN, {"name": "mine"}, "nobody")
    assert status == 404, problem
    assert made.loop.records[0] == before


def test_what_is_so_already_conflicts(made: World) -> None:
    status, _ = made.call("PATCH", CHAIN, {"name": made.loop.records[0].chain.name})
    assert status == 409
