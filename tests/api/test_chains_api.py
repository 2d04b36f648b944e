"""The API through a real Unix socket: chains, who may do what, problems."""

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
from serving import serving

from mirage import __version__
from mirage.api.port import Inquiries
from mirage.api.server import ApiServer
from mirage.domain.chain import ChainId
from mirage.domain.errors import ConfigError, SubmissionRejected
from mirage.domain.files import FileState, Presence, WatchedFile
from mirage.domain.tags import owned_id

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from api_world import World

    from mirage.api.port import ApiService
    from mirage.control.guard import Asker
    from mirage.domain.job import JobRequest

CHAINS = "/api/v1/chains"
ME = pwd.getpwuid(os.getuid()).pw_name
MINE = owned_id("train-k3q9", ME)
BOTH = {"policy": "overlap"}
ANOTHERS_SCRIPT = definition()["request"]["batch"] | {
    "reference": {"text": "0" * 64, "environment": "0" * 64, "size": 0, "plan_settings": ""}
}
"""Names the contents of the database for a user."""


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
    assert answer["sentence"] == f"chain {MINE} added by {ME}"
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


@pytest.mark.parametrize("name", ["", " ", "\u00a0", "\u3164 ", "a\u200bb", "a\u200c", "a\u2800"], ids=ascii)
def test_a_chain_whose_name_shows_nothing_or_hides_something_is_rejected(world: World, name: str) -> None:
    is_problem(*world.call("POST", CHAINS, definition() | {"name": name}), 422, "name")
    assert world.call("POST", CHAINS, definition() | {"name": "\u00fc \u0645\u06cc\u200c\u062e"})[0] == 201


@pytest.mark.parametrize("command", ["pause", "resume", "cancel"])
def test_a_chain_that_is_over_is_not_changed(world: World, command: str) -> None:
    world.call("POST", CHAINS, definition())
    world.call("POST", f"{CHAINS}/train-k3q9/cancel")
    is_problem(*world.call("POST", f"{CHAINS}/train-k3q9/{command}"), 409, "is over (stopped")


@pytest.mark.parametrize(
    ("done", "exit_code"),
    [({}, 0), ({"links": 3}, 0), ({"file": "/a"}, None), ({"file": "/a", "exit_code": 0}, 0)],
)
def test_a_done_file_says_it_alone_where_no_exit_code_is_named(
    world: World, done: dict[str, Any], exit_code: int | None
) -> None:
    assert world.call("POST", CHAINS, definition(done=done))[0] == 201
    (record,) = world.loop.records
    assert record.chain.done.exit_code == exit_code


def test_the_predictor_of_a_new_chain_is_built_before_the_loop_hears_of_it(world: World) -> None:
    asked: list[str] = []

    def named(name: str, asker: Asker) -> None:
        asked.append(name)
        if name == "xgboost":
            raise ConfigError("predictor 'xgboost'", "the model registry has none")

    inquiries = Inquiries(lambda question: Future(), named, lambda request: ())
    with serving(world, inquiries=inquiries) as shown:
        assert shown.call("POST", CHAINS, definition("bad", predictor="xgboost"))[0] == 409
        assert shown.call("POST", CHAINS, definition("path", predictor="xgboost:/tmp/x"))[0] == 422
        assert shown.call("POST", CHAINS, definition("good", predictor="fixed:1h"))[0] == 201
        assert shown.call("POST", CHAINS, definition("plain"))[0] == 201
    assert asked == ["xgboost", "fixed:1h"]
    assert {record.chain.chain_id for record in world.loop.records} == {
        owned_id(each, ME) for each in ("good", "plain")
    }


def test_chain_whose_links_cannot_be_submitted_is_rejected(world: World) -> None:
    asked: list[JobRequest] = []

    def check(request: JobRequest) -> None:
        asked.append(request)
        if request.batch and "--cpu-freq=low" in request.batch.options:
            raise SubmissionRejected("OptionUnknownToREST", "there is no field for --cpu-freq=low")

    batch = definition()["request"]["batch"]
    bad = definition("bad")["request"] | {"batch": batch | {"options": ["--cpu-freq=low"]}}
    with serving(world, check_request=check) as shown:
        status, answer = shown.call("POST", CHAINS, definition("bad", request=bad))
        is_problem(
            status, answer, 422, "request: Slurm would reject the links: OptionUnknownToREST: there is no field"
        )
        assert shown.call("POST", CHAINS, definition("good"))[0] == 201
    assert [request.user for request in asked] == [ME, ME]
    assert [record.chain.chain_id for record in world.loop.records] == [owned_id("good", ME)]


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
    is_problem(
        status,
        problem,
        404,
        f"2 of your chains have the name train; give an ID: {MINE}, {owned_id('train-p2m4', ME)}",
    )
    assert world.call("POST", f"{CHAINS}/train-p2m4/cancel")[0] == 200
    assert world.call("GET", f"{CHAINS}/train")[1]["id"] == MINE
    assert world.call("GET", f"{CHAINS}/train/explain")[1]["id"] == MINE
    assert world.call("POST", f"{CHAINS}/train/cancel")[1]["chain"]["id"] == MINE


def test_explain_gives_the_sentence_and_the_journal(world: World) -> None:
    world.call("POST", CHAINS, definition())
    world.call("POST", f"{CHAINS}/train-k3q9/pause")
    status, document = world.call("GET", f"{CHAINS}/train-k3q9/explain?limit=1")
    assert status == 200
    assert document["sentence"] == "hold: it is early"
    assert [entry["text"] for entry in document["entries"]] == [f"chain {MINE} paused by {ME}"]


@pytest.mark.parametrize(
    ("method", "path", "body", "expected", "words"),
    [
        ("GET", f"{CHAINS}/nix", None, 404, "there is no chain nix"),
        ("POST", f"{CHAINS}/nix/pause", None, 404, "there is no chain nix"),
        ("POST", f"{CHAINS}/nix/burn", None, 404, "unknown command 'burn'"),
        ("GET", "/nothing", None, 404, "Not Found"),
        ("PUT", CHAINS, None, 405, "Method Not Allowed"),
        ("POST", CHAINS, "{", 422, "not JSON"),
        ("POST", CHAINS, "[" * 100_000, 422, "not JSON"),
        ("POST", CHAINS, [], 422, "expected an object"),
        ("POST", CHAINS, {}, 422, "chain_id"),
        (
            *("POST", CHAINS, definition(request=definition()["request"] | {"nice": -1})),
            *(422, "request.nice: expected 0 to 2147483645"),
        ),
        ("POST", CHAINS, definition(colour="red"), 422, "colour: there is no such field"),
        (
            *("POST", CHAINS, definition(request=definition()["request"] | {"batch": ANOTHERS_SCRIPT})),
            *(422, "request.batch.reference: there is no such field"),
        ),
        ("POST", CHAINS, definition(done={"file": "/a", "when": 1}), 422, "done.when: there is no such field"),
        ("POST", CHAINS, definition(done={"file": "a"}), 422, "done.file: expected an absolute path"),
        (
            *("POST", CHAINS, definition(request=definition()["request"] | {"limit": 360, "warn": {"lead": 300}})),
            *(422, "request.warn.lead: 300 s is too long for a time limit of 360 s"),
        ),
        ("POST", CHAINS, definition(steering="pin", lead=10**6, handover=BOTH), 422, "lead: 1000000 s"),
        ("POST", CHAINS, definition(predictor="fixed:9d", handover=BOTH), 422, "predictor: fixed:9d"),
        ("POST", CHAINS, definition(predictor="fixed:9x", handover=BOTH), 422, "predictor: "),
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
    is_problem(*world.call("POST", CHAINS, definition()), 409, f"chain {MINE} exists already")


def test_ids_of_two_users_never_meet(world: World, users: tuple[str, str, str]) -> None:
    """No reply shows a user's chain to another user, and no chain blocks an ID of others."""
    first, second, admin = users
    marked = owned_id("serve", first)
    for taken in ("serve", marked):
        document = definition(taken, name=taken)
        made = [world.call("POST", CHAINS, document, user=user) for user in users]
        made.append(world.call("POST", CHAINS, definition(f"{taken}-free", name="free"), user=second))
        statuses = [status for status, _ in made]
        assert statuses == [409 if taken == marked else 201, 201, 201, 201]
    ids = [record.chain.chain_id for record in world.loop.records]
    assert len(ids) == len(set(ids)) == 7
    for user in (first, second):
        status, shown = world.call("GET", f"{CHAINS}/serve", user=user)
        assert (status, shown["id"], shown["owner"]) == (200, owned_id("serve", user), user)
        assert world.call("POST", f"{CHAINS}/serve/cancel", user=user)[1]["id"] == owned_id("serve", user)
    assert world.call("GET", f"{CHAINS}/{marked}", user=second)[1]["owner"] == second
    assert world.call("GET", f"{CHAINS}/{marked}", user=admin)[1]["owner"] == first


def test_chains_of_earlier_versions_keep_their_ids(world: World) -> None:
    world.call("POST", CHAINS, definition())
    (record,) = world.loop.records
    world.loop.records = [replace(record, chain=replace(record.chain, chain_id=ChainId("old")))]
    world.loop.cycle()
    assert world.call("GET", f"{CHAINS}/old")[1]["id"] == "old"
    assert world.call("POST", f"{CHAINS}/old/pause")[0] == 200


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
    of_one, of_other = owned_id("of-one", one), owned_id("of-other", other)
    assert world.call("POST", CHAINS, definition("of-one"), user=one)[0] == 201
    assert world.call("POST", CHAINS, definition("of-other"), user=other)[0] == 201
    seen = world.call("GET", CHAINS, user=one)[1]["chains"]
    assert [(chain["id"], chain["owner"]) for chain in seen] == [(of_one, one)]
    for method, path in [("GET", ""), ("GET", "/explain"), ("POST", "/pause"), ("POST", "/cancel")]:
        status, document = world.call(method, f"{CHAINS}/{of_other}{path}", user=one)
        is_problem(status, document, 404, f"there is no chain {of_other}")
    is_problem(*world.call("GET", f"{CHAINS}?all=true", user=one), 403, "not an administrator")
    is_problem(*world.call("POST", CHAINS, definition("x", owner=other), user=one), 403, f"for {other}")
    for user in (admin, ""):
        everybody = world.call("GET", f"{CHAINS}?all=true", user=user)[1]["chains"]
        assert {chain["id"] for chain in everybody} == {of_one, of_other}
        assert world.call("POST", f"{CHAINS}/{of_other}/pause", user=user)[0] == 200
    assert world.call("GET", CHAINS, user=admin)[1]["chains"] == []
    assert [entry.text for entry in world.loop.journal][-2] == f"chain {of_other} paused by {admin}"


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
    with pytest.raises(ConfigError, match="is not a socket"):
        server.start()
    with pytest.raises(ConfigError, match="at most 107"):
        ApiServer(world.service, tmp_path / ("x" * 120)).start()
    with pytest.raises(ConfigError, match="cannot be created"):
        ApiServer(world.service, tmp_path / "no" / "folder.sock").start()


def test_a_loop_that_does_not_answer_is_said(world: World, tmp_path: Path) -> None:
    world.loop.ended.set()
    taken = Future[str]()
    taken.set_running_or_notify_cancel()
    impatient: ApiService = replace(world.service, patience=0.05, ask=lambda command: taken)
    server = ApiServer(impatient, tmp_path / "slow.sock")
    server.start()
    status, document = call(str(server._path), "POST", CHAINS, definition())
    server.stop()
    is_problem(status, document, 504, "may still run")


DENIED = FileState(Presence.UNKNOWN, "/home/carol: mirage has no search permission (mode 0700)", denied=True)


def checked(states: Mapping[str, FileState], watched: list[WatchedFile]) -> Callable[..., list[FileState]]:
    def check(files: Sequence[WatchedFile]) -> list[FileState]:
        watched.extend(files)
        return [states.get(file.path, FileState(Presence.ABSENT)) for file in files]

    return check


@pytest.mark.parametrize(
    ("changes", "path", "field"),
    [
        ({"done": {"file": "/home/carol/done"}}, "/home/carol/done", "done.file"),
        ({"handover": {"policy": "when-ready"}}, f"/home/.mirage/{MINE}.1.ready", "handover"),
    ],
)
def test_a_file_that_the_daemon_may_not_see_is_refused(
    world: World, changes: dict[str, Any], path: str, field: str
) -> None:
    watched: list[WatchedFile] = []
    with serving(world, check_files=checked({path: DENIED}, watched)) as here:
        status, document = here.call("POST", CHAINS, definition(**changes))
        is_problem(status, document, 422, f"{field}: ")
        assert DENIED.reason in document["detail"]
        assert path in document["detail"]
        assert here.call("GET", CHAINS)[1]["chains"] == []
        assert watched == [WatchedFile(ME, path)]
        assert here.call("POST", CHAINS, definition())[0] == 201, "without such a file nothing is in the way"


@pytest.mark.parametrize(
    "state", [FileState(Presence.ABSENT), FileState(Presence.PRESENT), FileState(Presence.UNKNOWN, "it hangs")]
)
def test_a_file_that_may_be_seen_later_is_taken(world: World, state: FileState) -> None:
    with serving(world, check_files=checked({"/home/done": state}, [])) as here:
        assert here.call("POST", CHAINS, definition(done={"file": "/home/done"}))[0] == 201


def test_why_files_are_unknown_is_shown(world: World) -> None:
    world.call("POST", CHAINS, definition())
    unknown = {MINE: DENIED.reason}
    with serving(world, status=lambda: replace(world.loop.status, files_unknown=unknown)) as here:
        assert here.call("GET", f"{CHAINS}/train")[1]["files_unknown"] == DENIED.reason
    assert world.call("GET", f"{CHAINS}/train")[1]["files_unknown"] == ""


@pytest.mark.parametrize("path", ["/a\nb", "/" + "x" * 256, "/x" * 2_100, "/\x1b[2J"])
@pytest.mark.parametrize("field", ["done.file", "tasks_state"])
def test_paths_are_bounded(world: World, field: str, path: str) -> None:
    changes: dict[str, Any] = {"done": {"file": path}} if field == "done.file" else {"tasks_state": path}
    is_problem(*world.call("POST", CHAINS, definition(**changes)), 422, field)
