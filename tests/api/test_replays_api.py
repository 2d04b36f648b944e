"""Replays over the API: a real one, played by the command."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import pytest
from serving import serving

from mirage.bootstrap.interface import replay_command
from mirage.replay.runs import ReplayRuns

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from api_world import World

PATH = "/api/v1/replays"
REQUEST: dict[str, Any] = {
    "trace": "generated:demo:1",
    "cluster": "demo",
    "start": "10",
    "end": "20",
    "limit": 7_200,
    "predictors": ["reactive"],
}


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[ReplayRuns]:
    made = ReplayRuns(
        tmp_path, None, lambda wish, folder: replay_command(wish, wish.cluster, tmp_path), lambda: 1_700_000_000, 2
    )
    yield made
    made.close()


def over(world: World, run_id: str) -> dict[str, Any]:
    for _ in range(3_000):
        document: dict[str, Any] = world.call("GET", f"{PATH}/{run_id}")[1]
        if document["state"] not in ("queued", "running"):
            return document
        time.sleep(0.1)
    raise AssertionError(document)


def test_a_replay_is_asked_for_played_shown_and_forgotten(world: World, runs: ReplayRuns) -> None:
    from mirage.cli.arguments import load_trace

    first = int(load_trace("generated:demo:1").submit[0]) + 8 * 86_400
    with serving(world, replays=runs) as served:
        status, run = served.call("POST", PATH, REQUEST | {"start": str(first), "end": str(first + 14_400)})
        assert status == 202, run
        assert run["state"] in ("queued", "running")
        found = over(served, run["id"])
        assert found["state"] == "done", found["problem"]
        assert found["done"] == found["total"] == 2
        assert found["result"]["policies"], list(found["result"])
        listed = served.call("GET", PATH)[1]
        assert [each["id"] for each in listed["replays"]] == [run["id"]]
        assert "result" not in listed["replays"][0]
        assert served.call("DELETE", f"{PATH}/{run['id']}") == (204, None)
        assert served.call("GET", f"{PATH}/{run['id']}")[0] == 404


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        ({"trace": "../../etc/passwd"}, 422, "no such trace"),
        ({"trace": "/etc/passwd"}, 422, "no such trace"),
        ({"trace": "generated:nothing:1"}, 422, "no such preset"),
        ({"cluster": "../x.toml"}, 422, "no such cluster"),
        ({"predictors": ["xgboost:/etc"]}, 422, "predictors"),
        ({"predictors": []}, 422, "predictors"),
        ({"predictors": ["a,b"]}, 422, "predictors"),
        ({"start": "yesterday"}, 422, "start"),
        ({"start": "2023-02-30"}, 422, "start"),
        ({"start": "0001-01-01"}, 422, "start"),
        ({"end": "9999-12-31"}, 422, "end"),
        ({"end": "5"}, 422, "end"),
        ({"end": "2100-01-01", "every": 600}, 422, "every"),
        ({"predictors": ["fixed:1e400"]}, 422, "predictors"),
        ({"predictors": ["average:0"]}, 422, "predictors"),
        ({"nodes": 0}, 422, "nodes"),
        ({"partition": "$(id)"}, 422, "partition"),
        ({"colour": "red"}, 422, "colour"),
    ],
)
def test_mistakes_and_attempts_are_problems(
    world: World, runs: ReplayRuns, change: dict[str, Any], status: int, words: str
) -> None:
    with serving(world, replays=runs) as served:
        found, problem = served.call("POST", PATH, REQUEST | change)
        assert (found, problem["status"]) == (status, status)
        assert words in problem["detail"]
        assert served.call("GET", PATH)[1]["replays"] == []
        assert served.call("GET", f"{PATH}/..%2Fx")[0] in (404, 422)


def test_others_replays_are_theirs_and_there_may_be_none(world: World, runs: ReplayRuns) -> None:
    assert world.call("GET", PATH)[0] == 403
    if os.getuid() != 0:
        pytest.skip("speaking as several users needs root")
    with serving(world, replays=runs) as served:
        _, run = served.call("POST", PATH, REQUEST, user="daemon")
        for user, ids in (("daemon", [run["id"]]), ("nobody", []), ("", [run["id"]])):
            assert [each["id"] for each in served.call("GET", PATH, user=user)[1]["replays"]] == ids
        assert served.call("GET", f"{PATH}/{run['id']}", user="nobody")[0] == 404
        assert served.call("DELETE", f"{PATH}/{run['id']}", user="nobody")[0] == 404
        assert served.call("GET", f"{PATH}/{run['id']}")[0] == 200
        assert served.call("DELETE", f"{PATH}/{run['id']}")[0] == 204
