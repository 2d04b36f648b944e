"""The interface through a real Unix socket: chains, who may do what, problems."""

from __future__ import annotations

import os
import pwd
import socket
import stat
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from api_world import START, call, definition

from mirage import __version__
from mirage.api.server import ApiServer
from mirage.domain.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from api_world import World

    from mirage.api.port import ApiService

CHAINS = "/api/v1/chains"
ME = pwd.getpwuid(os.getuid()).pw_name


@pytest.fixture
def users() -> tuple[str, str, str]:
    """Two ordinary users, and one whom the daemon takes for an administrator."""
    if os.getuid() != 0:
        pytest.skip("speaking as several users needs root")
    try:
        return pwd.getpwnam("nobody").pw_name, pwd.getpwnam("daemon").pw_name, pwd.getpwnam("bin").pw_name
    except KeyError:
        pytest.skip("this machine has no users nobody, daemon and bin")


def is_problem(status: int, document: Any, expected: int, words: str) -> None:
    assert status == expected, document
    assert document["status"] == expected
    assert document["type"] == "about:blank"
    assert words in document["detail"]


def test_a_chain_is_made_shown_paused_resumed_and_cancelled(world: World) -> None:
    status, answer = world.call("POST", CHAINS, definition())
    assert status == 201, answer
    assert answer["sentence"] == f"chain train-k3q9 added by {ME}"
    assert answer["chain"]["status"] == "active"
    assert answer["chain"]["steering"] == "nice", "what the owner leaves open is the daemon's to say"
    for command, state in (("pause", "paused"), ("resume", "active"), ("cancel", "stopped")):
        status, answer = world.call("POST", f"{CHAINS}/train-k3q9/{command}")
        assert (status, answer["chain"]["status"]) == (200, state)
        assert world.call("GET", f"{CHAINS}/train-k3q9")[1]["status"] == state
    (record,) = world.loop.records
    assert record.chain.request.user == record.chain.owner == ME
    assert record.chain.request.batch is not None
    assert record.chain.request.batch.environment == (("HOME", "/home"),)


def test_what_is_shown_holds_neither_script_nor_environment(world: World) -> None:
    world.call("POST", CHAINS, definition())
    status, document = world.call("GET", CHAINS)
    assert status == 200
    assert "sleep" not in str(document)
    assert "HOME" not in str(document)
    assert document["chains"][0]["request"]["limit"] == 3_600
    assert document["time"] == "2023-11-14T22:13:20Z"
    assert document["stale_since"] == document["time"]
    assert world.loop.status.time == START


def test_a_chain_is_found_by_its_name_too(world: World) -> None:
    for chain_id in ("train-k3q9", "train-p2m4"):
        assert world.call("POST", CHAINS, definition(chain_id))[0] == 201
    status, problem = world.call("GET", f"{CHAINS}/train")
    is_problem(status, problem, 404, "2 of your chains are called train: say which of train-k3q9, train-p2m4")
    assert world.call("POST", f"{CHAINS}/train-p2m4/cancel")[0] == 200
    assert world.call("GET", f"{CHAINS}/train")[1]["id"] == "train-k3q9"
    assert world.call("GET", f"{CHAINS}/train/explain")[1]["id"] == "train-k3q9"
    assert world.call("POST", f"{CHAINS}/train/cancel")[1]["chain"]["id"] == "train-k3q9"


def test_explain_gives_the_sentence_and_the_journal(world: World) -> None:
    world.call("POST", CHAINS, definition())
    world.call("POST", f"{CHAINS}/train-k3q9/pause")
    status, document = world.call("GET", f"{CHAINS}/train-k3q9/explain?limit=1")
    assert status == 200
    assert document["sentence"] == "hold: it is early"
    assert [entry["text"] for entry in document["entries"]] == [f"chain train-k3q9 paused by {ME}"]


@pytest.mark.parametrize(
    ("method", "path", "body", "expected", "words"),
    [
        ("GET", f"{CHAINS}/nix", None, 404, "there is no chain nix"),
        ("POST", f"{CHAINS}/nix/pause", None, 404, "there is no chain nix"),
        ("POST", f"{CHAINS}/nix/burn", None, 404, "not to burn"),
        ("GET", "/nothing", None, 404, "Not Found"),
        ("PUT", CHAINS, None, 405, "Method Not Allowed"),
        ("POST", CHAINS, "{", 422, "not JSON"),
        ("POST", CHAINS, "[" * 100_000, 422, "not JSON"),
        ("POST", CHAINS, [], 422, "expected an object"),
        ("POST", CHAINS, {}, 422, "chain_id"),
        ("POST", CHAINS, definition(colour="red"), 422, "colour: there is no such field"),
        ("POST", CHAINS, definition(done={"file": "/a", "when": 1}), 422, "done.when: there is no such field"),
        ("POST", CHAINS, definition(done={"file": "a"}), 422, "done.file: expected an absolute path"),
        ("POST", CHAINS, definition(chain_id="a b"), 422, "chain_id"),
        ("POST", CHAINS, definition(chain_id="a:b"), 422, "chain_id"),
        ("POST", CHAINS, definition(steering="left"), 422, "steering"),
        ("POST", CHAINS, definition(request={"name": "n", "limit": 60}), 422, "batch script"),
        ("GET", f"{CHAINS}/x/explain?limit=0", None, 422, "limit"),
    ],
)
def test_mistakes_are_problems_that_name_the_field(
    world: World, method: str, path: str, body: Any, expected: int, words: str
) -> None:
    is_problem(*world.call(method, path, body), expected, words)


@pytest.mark.parametrize("option", ["--array=1", "--comment=x", "job.sh", "--no-such", "-a1", "--depend=1"])
def test_options_that_cannot_work_are_refused_at_the_border_too(world: World, option: str) -> None:
    body = definition()
    body["request"]["batch"]["options"] = [option]
    status, document = world.call("POST", CHAINS, body)
    is_problem(status, document, 422, "request.batch.options")


def test_an_id_is_used_once(world: World) -> None:
    world.call("POST", CHAINS, definition())
    is_problem(*world.call("POST", CHAINS, definition()), 409, "there is a chain train-k3q9 already")


def test_a_document_without_bounds_is_not_read(world: World) -> None:
    is_problem(*world.call("POST", CHAINS, b" " * (9 << 20)), 413, "longer than")


def test_scripts_that_are_not_utf8_survive(world: World) -> None:
    body = definition()
    body["request"]["batch"]["text"] = "#!/bin/sh\n# caf\udce9\n"
    assert world.call("POST", CHAINS, body)[0] == 201
    batch = world.loop.records[0].chain.request.batch
    assert batch is not None
    assert batch.text == "#!/bin/sh\n# caf\udce9\n"


def test_users_see_and_touch_only_their_own(world: World, users: tuple[str, str, str]) -> None:
    one, other, admin = users
    assert world.call("POST", CHAINS, definition("of-one"), user=one)[0] == 201
    assert world.call("POST", CHAINS, definition("of-other"), user=other)[0] == 201
    seen = world.call("GET", CHAINS, user=one)[1]["chains"]
    assert [(chain["id"], chain["owner"]) for chain in seen] == [("of-one", one)]
    for method, path in [("GET", ""), ("GET", "/explain"), ("POST", "/pause"), ("POST", "/cancel")]:
        status, document = world.call(method, f"{CHAINS}/of-other{path}", user=one)
        is_problem(status, document, 404, "there is no chain of-other")
    is_problem(*world.call("GET", f"{CHAINS}?all=true", user=one), 403, "no administrator")
    is_problem(*world.call("POST", CHAINS, definition("x", owner=other), user=one), 403, f"for {other}")
    for user in (admin, ""):
        everybody = world.call("GET", f"{CHAINS}?all=true", user=user)[1]["chains"]
        assert {chain["id"] for chain in everybody} == {"of-one", "of-other"}
        assert world.call("POST", f"{CHAINS}/of-other/pause", user=user)[0] == 200
    assert world.call("GET", CHAINS, user=admin)[1]["chains"] == []
    assert [entry.text for entry in world.loop.journal][-2] == f"chain of-other paused by {admin}"


def test_the_process_says_that_it_is_there(world: World) -> None:
    status, document = world.call("GET", "/healthz")
    assert (status, document["status"]) == (200, "ok")
    assert world.call("GET", "/version") == (200, {"version": __version__})


def test_everybody_may_open_the_socket_and_it_goes_with_the_server(world: World, tmp_path: Path) -> None:
    assert stat.S_IMODE(world.socket.stat().st_mode) == 0o666
    with pytest.raises(ConfigError, match="another server listens"):
        ApiServer(world.service, world.socket).start()
    second = ApiServer(world.service, tmp_path / "second.sock")
    second.start()
    assert second.running
    second.stop()
    second.stop()
    assert not (tmp_path / "second.sock").exists()


def test_a_socket_left_behind_is_replaced_and_a_file_is_not(world: World, tmp_path: Path) -> None:
    left = tmp_path / "left.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(left))
    server = ApiServer(world.service, left)
    server.start()
    assert call(str(left), "GET", "/healthz", None)[0] == 200
    server.stop()
    left.write_text("precious")
    with pytest.raises(ConfigError, match="is no socket"):
        server.start()
    with pytest.raises(ConfigError, match="at most 107"):
        ApiServer(world.service, tmp_path / ("x" * 120)).start()
    with pytest.raises(ConfigError, match="cannot be made"):
        ApiServer(world.service, tmp_path / "no" / "folder.sock").start()


def test_a_loop_that_does_not_answer_is_said(world: World, tmp_path: Path) -> None:
    world.loop.ended.set()
    impatient: ApiService = replace(world.service, patience=0.05, ask=lambda command: Future())
    server = ApiServer(impatient, tmp_path / "slow.sock")
    server.start()
    status, document = call(str(server._path), "POST", CHAINS, definition())
    server.stop()
    is_problem(status, document, 504, "may still obey")
