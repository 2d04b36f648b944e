"""``/chains/ID/tasks``: a file that a chain's owner names and writes; the daemon reads it without trusting it."""

from __future__ import annotations

import json
import os
import pwd
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from api_world import World, definition, world
from hypothesis import given
from hypothesis import strategies as st
from tasks_seen import NOTHING, chain, looked, of_uid, read, refusal, status, time_of, viewer, write

from mirage.api.agentstatus import TaskStatus
from mirage.api.routes.tasks import tasks_document
from mirage.api.taskfiles import LARGEST, Reading, StateUnseen, read_state
from mirage.api.taskwatch import MOST_OWNERS, TaskWatch
from mirage.domain.chain import ChainRecord
from mirage.domain.job import JobId
from mirage.domain.link import Link, LinkState

if TYPE_CHECKING:
    from mirage.backends.file_check import Viewer

__all__ = ["world"]

# The file


def test_what_the_owner_wrote_is_read(tmp_path: Path) -> None:
    write(tmp_path, NOTHING | {"more": "than is known here"})
    assert time_of(tmp_path) == 1_700_000_000.5


def test_what_belongs_to_somebody_else_is_not_read(tmp_path: Path) -> None:
    write(tmp_path, NOTHING)
    assert "does not belong to alice" in refusal(tmp_path, os.getuid() + 1)


def test_tasks_links_of_the_owner_alone_are_followed(tmp_path: Path) -> None:
    (tmp_path / "real").write_text(json.dumps(NOTHING))
    (tmp_path / "status.json").symlink_to("real")
    assert time_of(tmp_path) == 1_700_000_000.5
    if os.getuid() == 0:
        os.lchown(tmp_path / "status.json", 12_345, 0)
        assert "UID 12345" in refusal(tmp_path)


@pytest.mark.skipif(os.getuid() != 0, reason="root alone sees what others do not")
def test_tasks_a_directory_closed_to_the_owner_discloses_nothing() -> None:
    with tempfile.TemporaryDirectory(prefix="mirage-tasks-") as name:
        top = Path(name)
        for made, mode in (("private", 0o700), ("private/empty", 0o755), ("private/full", 0o755)):
            (top / made).mkdir(mode)
        top.chmod(0o755)
        write(top / "private" / "full", NOTHING)
        (top / "private" / "file").touch()
        said = set()
        for place in ("full", "empty", "none", "file"):
            with pytest.raises(StateUnseen) as raised:
                read_state(f"{top}/private/{place}", viewer(12_345, own=False))
            said.add(str(raised.value))
        assert len(said) == 1, "existence and owner of the file are not disclosed"


def test_a_pipe_a_folder_and_a_device_are_not_read_and_hold_nothing_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "status.json")
    assert "not a regular file" in refusal(tmp_path)
    (tmp_path / "status.json").unlink()
    (tmp_path / "status.json").mkdir()
    assert "not a regular file" in refusal(tmp_path)


def test_what_the_kernel_makes_up_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mirage.api.taskfiles.FILE", "environ")
    assert "not a regular file" in refusal(tmp_path.joinpath("/proc/self"))


def test_too_large_a_file_is_not_read_even_where_it_has_holes(tmp_path: Path) -> None:
    os.truncate(write(tmp_path, NOTHING), LARGEST + 1)
    assert "larger than 2 MiB" in refusal(tmp_path)


@pytest.mark.parametrize("folder", ["/no/such", "/etc/passwd", "/\0", "/" + 300 * "x", "/" + 5_000 * "x/"])
def test_a_folder_that_leads_nowhere_is_said(folder: str) -> None:
    assert refusal(folder)


@pytest.mark.skipif(os.getuid() != 0, reason="root alone can become another user")
def test_what_the_daemons_account_may_not_read_is_said(tmp_path: Path) -> None:
    write(tmp_path, NOTHING)
    tmp_path.chmod(0o700)
    child = os.fork()
    if child == 0:
        os.setuid(pwd.getpwnam("nobody").pw_uid)
        try:
            read_state(str(tmp_path), viewer(0))
        except StateUnseen as unseen:
            os._exit(17 if "nobody has no search permission" in str(unseen) else 18)
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
    assert (
        f"status.json has an unknown format; it may be of another Mirage version: {next(iter(wrong))}"
        in refusal(tmp_path)
    )


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"null", b"\xff\xfe", b"[" * 100_000, b'{"time": NaN}', b"9" * 100_000, b'{"a": "\\ud800"}'],
)
def test_what_is_no_document_is_refused(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "status.json").write_bytes(text)
    assert len(refusal(tmp_path)) < 400 + len(str(tmp_path))


STEERING = "\x9b2J\u202e\u2066\u2028"
STEERED = frozenset("\x9b\u202e\u2066\u2028")


def test_tasks_are_told_with_a_mark_for_what_steers_a_terminal(tmp_path: Path) -> None:
    name, why = f"n{STEERING}1", f"\x1b]0;x\x07\r\n{STEERING}ü"
    life = {"job": 7, "began": 0, "nodes": {name: [[0, name]]}}
    attempt = {"task": name, "attempt": 1, "share": 1, "start": 0, "end": None}
    task = {"id": name, "state": "failed", "why": why, "attempts": 1}
    write(tmp_path, NOTHING | {"links": [life], "tasks": [task], "lanes": {f"{name}:0": [attempt]}})
    seen = read(tmp_path)
    assert isinstance(seen, TaskStatus)
    assert (seen.tasks[0].id, seen.tasks[0].why) == ("n?2J???1", "?]0;x????2J???ü")
    assert seen.lanes["n?2J???1:0"][0].task == "n?2J???1"
    assert seen.links[0].nodes == {"n?2J???1": [(0, "n?2J???1")]}
    told = tasks_document(ChainRecord(chain(1)), seen, 0).model_dump_json()
    assert not STEERED.intersection(told)


def test_tasks_file_that_is_refused_is_quoted_with_marks(tmp_path: Path) -> None:
    write(tmp_path, NOTHING | {"lanes": {f"n{STEERING}": 7}})
    assert not STEERED.intersection(refusal(tmp_path))


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

    def read(folder: str, owner: Viewer, known: object) -> Reading:
        begun.append(folder)
        if owner.name == "mallory":
            go.wait()
        return Reading((), status(), 0)

    watch = TaskWatch(of_uid, read, patience=0.05)
    hanging = [chain(number, "mallory") for number in range(9)]
    seen = looked(watch, *hanging, chain(10))
    assert seen["c10"]["problem"] == ""
    assert all("file system may hang" in seen[each.chain_id]["problem"] for each in hanging)
    for _ in range(20):
        looked(watch, *hanging)
    assert [folder for folder in begun if folder != "/there/10"] == ["/there/0"], "one thread waits, not a hundred"
    go.set()
    patient = TaskWatch(of_uid, read)
    assert all(each["problem"] == "" for each in looked(patient, *hanging).values())


def test_there_is_a_bound_on_owners_whose_files_hang() -> None:
    go = threading.Event()

    def read(folder: str, owner: Viewer, known: object) -> Reading:
        go.wait()
        return Reading((), status(), 0)

    watch = TaskWatch(of_uid, read, patience=0.0)
    before = threading.active_count()
    seen = looked(watch, *(chain(number, f"u{number}") for number in range(MOST_OWNERS + 1)))
    assert threading.active_count() - before <= MOST_OWNERS
    assert "too many" in seen[f"c{MOST_OWNERS}"]["problem"]
    go.set()


def test_look_at_more_owners_than_threads_reads_them_all() -> None:
    """Like an administrator; a user who reads meanwhile has to be served, too."""
    go = threading.Event()

    def read(folder: str, owner: Viewer, known: object) -> Reading:
        go.wait()
        return Reading((), status(), 0)

    watch = TaskWatch(of_uid, read, patience=30)
    threading.Timer(0.2, go.set).start()
    found = looked(watch, *(chain(number, f"u{number}") for number in range(3 * MOST_OWNERS)))
    assert {each["problem"] for each in found.values()} == {""}


def test_an_owner_whom_the_machine_does_not_know_and_a_fault_are_said() -> None:
    def fail(folder: str, owner: Viewer, known: object) -> Reading:
        raise RuntimeError("bug")

    nobody = TaskWatch(read=fail)
    assert "no user of the daemon's machine" in looked(nobody, chain(1, "no-such-user"))["c1"]["problem"]
    broken = TaskWatch(of_uid, fail)
    for _ in range(2):
        assert "see the daemon's log" in looked(broken, chain(1))["c1"]["problem"]


# The API


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
