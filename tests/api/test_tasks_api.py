"""``/chains/ID/tasks``: a file that a chain's owner names and writes; the daemon reads it without trusting it."""

from __future__ import annotations

import json
import os
import pwd
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from api_world import World, definition, world
from hypothesis import given
from hypothesis import strategies as st

from mirage.api.documents.tasks import tasks_document
from mirage.api.taskstate.content import TaskStatus
from mirage.api.taskstate.reading import LARGEST, StateUnseen, read_state
from mirage.api.taskstate.watch import MOST_OWNERS, TaskWatch
from mirage.domain.chain import Chain, ChainId, ChainRecord
from mirage.domain.job import JobRequest

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["world"]

ME = pwd.getpwuid(os.getuid()).pw_name
NOTHING = {"version": 1, "time": 1_700_000_000.5, "over": False, "links": [], "tasks": [], "lanes": {}}


def refusal(folder: Path, uid: int | None = None) -> str:
    with pytest.raises(StateUnseen) as raised:
        read_state(str(folder), "alice", os.getuid() if uid is None else uid)
    return str(raised.value)


def write(folder: Path, content: object) -> Path:
    file = folder / "status.json"
    file.write_text(json.dumps(content))
    return file


def chain(number: int, owner: str = "alice") -> Chain:
    request = JobRequest("x", owner, 60)
    return Chain(ChainId(f"c{number}"), "x", owner, request, tasks_state=f"/there/{number}")


# The file


def test_what_the_owner_wrote_is_read(tmp_path: Path) -> None:
    write(tmp_path, NOTHING | {"more": "than is known here"})
    assert read_state(str(tmp_path), "alice", os.getuid()).time == 1_700_000_000.5


def test_what_belongs_to_somebody_else_is_not_read(tmp_path: Path) -> None:
    write(tmp_path, NOTHING)
    assert "does not belong to alice" in refusal(tmp_path, os.getuid() + 1)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "real").write_text(json.dumps(NOTHING))
    (tmp_path / "status.json").symlink_to("real")
    assert "cannot be read" in refusal(tmp_path)


def test_a_pipe_a_folder_and_a_device_are_not_read_and_hold_nothing_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "status.json")
    assert "no regular file" in refusal(tmp_path)
    (tmp_path / "status.json").unlink()
    (tmp_path / "status.json").mkdir()
    assert "no regular file" in refusal(tmp_path)


def test_what_the_kernel_makes_up_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mirage.api.taskstate.reading.FILE", "environ")
    assert "no regular file" in refusal(tmp_path.joinpath("/proc/self"))


def test_too_large_a_file_is_not_read_even_where_it_has_holes(tmp_path: Path) -> None:
    os.truncate(write(tmp_path, NOTHING), LARGEST + 1)
    assert "larger than 4 MiB" in refusal(tmp_path)


@pytest.mark.parametrize("folder", ["/no/such", "/etc/passwd", "/\0", "/" + 300 * "x", "/" + 5_000 * "x/"])
def test_a_folder_that_leads_nowhere_is_said(folder: str) -> None:
    with pytest.raises(StateUnseen):
        read_state(folder, "alice", os.getuid())


@pytest.mark.skipif(os.getuid() != 0, reason="root alone can become another user")
def test_what_the_daemons_account_may_not_read_is_said(tmp_path: Path) -> None:
    write(tmp_path, NOTHING)
    tmp_path.chmod(0o700)
    child = os.fork()
    if child == 0:
        os.setuid(pwd.getpwnam("nobody").pw_uid)
        try:
            read_state(str(tmp_path), "alice", 0)
        except StateUnseen as unseen:
            os._exit(17 if "daemon's account may not read" in str(unseen) else 18)
        os._exit(19)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 17


@pytest.mark.parametrize(
    "wrong",
    [
        {"version": 2},
        {"time": "soon"},
        {"time": 1e300},
        {"links": [{"job": -1, "began": 0, "nodes": {}}]},
        {"tasks": [{"id": "a\u001b[2J", "state": "running", "why": "", "attempts": 1}]},
        {"tasks": [{"id": "a", "state": "flying", "why": "", "attempts": 1}]},
        {"lanes": {"n:0": [{"task": "a", "attempt": 1, "share": 7, "start": 0, "end": None}]}},
        {"lanes": {str(n): [] for n in range(10_001)}},
    ],
)
def test_what_is_out_of_bounds_is_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    write(tmp_path, NOTHING | wrong)
    assert f"status.json is not what an agent of this version writes: {next(iter(wrong))}" in refusal(tmp_path)


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"null", b"\xff\xfe", b"[" * 100_000, b'{"time": NaN}', b"9" * 100_000, b'{"a": "\\ud800"}'],
)
def test_what_is_no_document_is_refused(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "status.json").write_bytes(text)
    assert len(refusal(tmp_path)) < 400 + len(str(tmp_path))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
)


@given(st.fixed_dictionaries({name: JSON | st.just(NOTHING[name]) for name in NOTHING}))
def test_whatever_is_let_in_can_be_told(content: dict[str, Any]) -> None:
    try:
        seen = TaskStatus.model_validate_json(json.dumps(content))
    except ValueError:
        return
    assert tasks_document(ChainRecord(chain(1)), seen, 0).model_dump_json()


# Who looks


def test_a_file_system_that_hangs_holds_up_nobody_else() -> None:
    go, begun = threading.Event(), list[str]()

    def read(folder: str, owner: str, uid: int) -> TaskStatus:
        begun.append(folder)
        if owner == "mallory":
            go.wait()
        return TaskStatus.model_validate(NOTHING)

    watch = TaskWatch(lambda owner: 1, read, patience=0.05)
    hanging = [chain(number, "mallory") for number in range(9)]
    seen = watch.look([*hanging, chain(10)])
    assert isinstance(seen[ChainId("c10")], TaskStatus)
    assert all("file system may hang" in str(seen[each.chain_id]) for each in hanging)
    for _ in range(20):
        watch.look(hanging)
    assert [folder for folder in begun if folder != "/there/10"] == ["/there/0"], "one thread waits, not a hundred"
    go.set()
    patient = TaskWatch(lambda owner: 1, read)
    assert all(isinstance(each, TaskStatus) for each in patient.look(hanging).values())


def test_there_is_a_bound_on_owners_whose_files_hang() -> None:
    go = threading.Event()

    def read(folder: str, owner: str, uid: int) -> TaskStatus:
        go.wait()
        return TaskStatus.model_validate(NOTHING)

    watch = TaskWatch(lambda owner: 1, read, patience=0.0)
    before = threading.active_count()
    seen = watch.look([chain(number, f"u{number}") for number in range(MOST_OWNERS + 1)])
    assert threading.active_count() - before <= MOST_OWNERS
    assert "too many" in str(seen[ChainId(f"c{MOST_OWNERS}")])
    go.set()


def test_an_owner_whom_the_machine_does_not_know_and_a_fault_are_said() -> None:
    def fail(folder: str, owner: str, uid: int) -> TaskStatus:
        raise RuntimeError("bug")

    nobody = TaskWatch(read=fail)
    assert "no user of the daemon's machine" in str(nobody.look([chain(1, "no-such-user")])[ChainId("c1")])
    broken = TaskWatch(lambda owner: 1, fail)
    for _ in range(2):
        assert "the daemon's log says why" in str(broken.look([chain(1)])[ChainId("c1")])


# The interface


def test_a_chain_says_where_its_tasks_state_is(world: World, tmp_path: Path) -> None:
    write(tmp_path, NOTHING | {"time": time.time()})
    status, answer = world.call("POST", "/api/v1/chains", definition(tasks_state=str(tmp_path)))
    assert (status, answer["chain"]["tasks_state"]) == (201, str(tmp_path))
    status, tasks = world.call("GET", "/api/v1/chains/train-k3q9/tasks")
    assert (status, tasks["problem"], tasks["counts"]["total"]) == (200, "", 0)
    assert world.call("GET", "/api/v1/allocation")[1]["tasks"] == [], "nothing of it runs"


def test_without_it_that_is_said(world: World) -> None:
    world.call("POST", "/api/v1/chains", definition())
    assert "--tasks-state" in world.call("GET", "/api/v1/chains/train-k3q9/tasks")[1]["problem"]


@pytest.mark.parametrize("folder", ["relative", "/with\nline", "/with\u001b[2J"])
def test_a_folder_that_cannot_be_one_is_refused(world: World, folder: str) -> None:
    status, answer = world.call("POST", "/api/v1/chains", definition(tasks_state=folder))
    assert status == 422
    assert "tasks_state" in answer["detail"]


@pytest.mark.skipif(os.getuid() != 0, reason="root alone can act as two users")
def test_nobody_else_sees_it(world: World, tmp_path: Path) -> None:
    write(tmp_path, NOTHING)
    world.call("POST", "/api/v1/chains", definition(tasks_state=str(tmp_path)))
    assert world.call("GET", "/api/v1/chains/train-k3q9/tasks", user="nobody")[0] == 404


def test_an_agent_that_is_silent_while_a_link_runs_is_stale() -> None:
    from mirage.domain.chain import Link, LinkState
    from mirage.domain.job import JobId

    silent = TaskStatus.model_validate(NOTHING)
    record = ChainRecord(chain(1), (Link(1, chain(1).tag(1), 0, LinkState.RUNNING, JobId(7), 0, 0, 10**10),))
    now = int(silent.time)
    assert not tasks_document(record, silent, now + 60).stale
    assert tasks_document(record, silent, now + 600).stale
    assert not tasks_document(replace(record, links=()), silent, now + 600).stale


def test_accelerators_that_are_left_out_are_counted() -> None:
    nodes = {f"n{number:03}": [[index, "gpu"] for index in range(8)] for number in range(130)}
    life = {"job": None, "began": 5.0, "nodes": nodes}
    late = {"task": "a", "attempt": 1, "share": 1.0, "start": 6.0, "end": None}
    lanes = {"n000:0": [late], "n129:7": [late]}
    document = tasks_document(
        ChainRecord(chain(1)), TaskStatus.model_validate(NOTHING | {"links": [life], "lanes": lanes}), 10
    )
    assert (len(document.lanes), document.hidden_lanes, document.hidden) == (1024, 16, 0)
    assert document.lanes[-1].node == "n127"
