"""The port Files: results come from threads, and what hangs is bounded, named and no matter to others."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from mirage.backends.agent_queue import AgentActuator, AgentQueue
from mirage.backends.agent_requests import LONGEST_TEXT, AgentResponse, CheckFiles, Verdict
from mirage.backends.background_files import BackgroundFiles, CheckLimits, MountPoints, local_files
from mirage.backends.owner_turns import files_by_order
from mirage.domain.errors import ClusterUnavailable, MirageError, NotPermitted
from mirage.domain.files import NOT_CHECKED, FileState, Presence, WatchedFile
from mirage.domain.job import JobId

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from mirage.backends.agent_requests import Act

PRESENT, ABSENT = FileState(Presence.PRESENT), FileState(Presence.ABSENT)
QUICK = CheckLimits(threads=3, timeout=0.1, at_once=2.0)
"""Waits long for results: on a busy machine a thread may take its time to start."""


class FileSystems:
    """A check over directories; ``/hung`` answers once the test lets it, and so do ways that lead there."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.checks: list[tuple[str, tuple[str, ...]]] = []
        self.probes: list[str] = []
        self.mended = threading.Event()

    def check(self, owner: str, paths: tuple[str, ...]) -> tuple[FileState, ...]:
        self.checks.append((owner, paths))
        if any("/hung" in path for path in paths):
            assert self.mended.wait(60)
        return tuple(PRESENT if path in self.files else ABSENT for path in paths)

    def probe(self, place: str) -> None:
        self.probes.append(place)
        if place.startswith("/hung"):
            assert self.mended.wait(60)

    def background(self, limits: CheckLimits = QUICK) -> BackgroundFiles:
        return BackgroundFiles(self.check, self.mount, limits, probe=self.probe)

    @staticmethod
    def mount(path: str) -> str:
        return "/".join(path.split("/")[:2])


@pytest.fixture
def disks() -> Iterator[FileSystems]:
    disks = FileSystems()
    yield disks
    disks.mended.set()


def until(holds: Callable[[], object]) -> None:
    end = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def file(path: str, owner: str = "alice") -> WatchedFile:
    return WatchedFile(owner, path)


def test_each_refresh_sees_what_has_changed(disks: FileSystems) -> None:
    files, done = disks.background(), file("/home/done")
    assert files.state(done) == NOT_CHECKED
    files.refresh([done])
    assert files.state(done) == ABSENT
    disks.files.add("/home/done")
    files.refresh([done])
    assert files.state(done) == PRESENT
    files.refresh([])
    assert files.state(done) == NOT_CHECKED, "what is not watched any more is forgotten"


def test_no_check_runs_in_the_callers_thread() -> None:
    threads = []

    def check(owner: str, paths: tuple[str, ...]) -> tuple[FileState, ...]:
        threads.append(threading.current_thread())
        return (ABSENT,) * len(paths)

    files = BackgroundFiles(check, limits=QUICK)
    files.refresh([file("/a")])
    files.ask([file("/a")], 10)
    assert len(threads) == 2
    assert threading.current_thread() not in threads


def test_a_hung_file_system_holds_up_its_own_files_alone(disks: FileSystems) -> None:
    files = disks.background()
    hung, beside = file("/hung/a"), file("/hung/b", "bob")
    other, well = file("/home/a"), file("/home/c", "carol")
    files.refresh([hung, beside, other, well])
    until(files.hanging)
    files.refresh([hung, beside, other, well])
    assert files.state(well) == files.state(other) == ABSENT
    for waiting in (hung, beside):
        state = files.state(waiting)
        assert (state.presence, state.denied) == (Presence.UNKNOWN, False), waiting
        assert waiting.path in state.reason
    assert hung.path not in files.state(beside).reason, "no owner learns a path of another"
    disks.mended.set()
    until(lambda: not files.hanging())
    files.refresh([hung, beside, other, well])
    until(lambda: all(files.state(each) == ABSENT for each in (hung, beside, other, well)))


def test_a_hung_file_system_takes_one_thread_and_refreshes_return(disks: FileSystems) -> None:
    files = disks.background(CheckLimits(threads=3, timeout=0.05, at_once=0.01))
    before = threading.active_count()
    wanted = [file(f"/hung/{user}", f"user{user}") for user in range(50)]
    files.refresh(wanted)
    until(files.hanging)
    for _ in range(20):
        files.refresh(wanted)
    assert files.hanging() == 1
    assert threading.active_count() <= before + 1
    assert not disks.checks
    assert all(files.state(each).presence is Presence.UNKNOWN for each in wanted)


def test_backgroundfiles_slow_check_of_one_owner_is_no_matter_to_others(disks: FileSystems) -> None:
    """These links lead to a slow path, on a file system that answers: no evidence that it hangs."""
    files = disks.background()
    slow, own, others = file("/home/to/hung"), file("/home/a"), [file(f"/home/{n}", f"user{n}") for n in range(9)]
    files.refresh([slow])
    until(files.hanging)
    files.refresh([slow, own, *others])
    until(lambda: all(files.state(each) == ABSENT for each in others))
    disks.files.add(others[0].path)
    files.refresh([slow, own, *others])
    until(lambda: files.state(others[0]) == PRESENT)
    for waiting in (slow, own):
        assert files.state(waiting).presence is Presence.UNKNOWN
        assert slow.path in files.state(waiting).reason
    assert files.hanging() == 1


def test_backgroundfiles_mounts_of_one_user_that_hang_leave_others_alone(disks: FileSystems) -> None:
    files = disks.background(CheckLimits(threads=3, timeout=0.05, at_once=0.01))
    before = threading.active_count()
    mounts = [file(f"/hung{number}/done") for number in range(50)]
    well = file("/home/done", "bob")
    files.refresh([*mounts, well])
    until(lambda: files.refresh([*mounts, well]) or (files.hanging() >= 8 and files.state(well) == ABSENT))
    disks.files.add(well.path)
    until(lambda: files.refresh([*mounts, well]) or files.state(well) == PRESENT)
    assert threading.active_count() <= before + 8 + 3


def test_links_into_a_hung_file_system_never_take_more_threads_than_there_are(disks: FileSystems) -> None:
    """Places that look alike in the mount table: each user hangs a thread, and then all wait."""
    limits = CheckLimits(threads=3, timeout=0.05, at_once=0.01)
    files = BackgroundFiles(disks.check, lambda path: "", limits)
    wanted = [file(f"/hung/{user}", f"user{user}") for user in range(10)]
    well = file("/home/a")
    until(lambda: files.refresh([*wanted, well]) or files.hanging() == 3)
    assert len(disks.checks) <= 4
    files.refresh([*wanted, well])
    assert files.state(wanted[9]).reason, "it says why"
    disks.mended.set()
    until(lambda: files.refresh([*wanted, well]) or all(files.state(each) == ABSENT for each in (*wanted, well)))


def test_a_file_is_not_checked_again_too_soon(disks: FileSystems) -> None:
    time_now = [0.0]
    limits = CheckLimits(threads=1, timeout=9, at_once=2, every=15)
    files = BackgroundFiles(disks.check, disks.mount, limits, lambda: time_now[0])
    for time_now[0] in (0.0, 5.0, 14.0, 15.0, 20.0):
        files.refresh([file("/home/a")])
    assert len(disks.checks) == 2


def test_many_files_of_one_owner_are_checked_in_parts(disks: FileSystems) -> None:
    files = disks.background()
    wanted = [file(f"/home/{number}") for number in range(200)]
    files.refresh(wanted)
    until(lambda: all(files.state(each) == ABSENT for each in wanted))
    assert max(len(paths) for _, paths in disks.checks) <= 64
    assert len(disks.checks) == 4


def test_a_question_from_beside_has_a_new_check_and_an_end(disks: FileSystems) -> None:
    files = disks.background()
    files.refresh([file("/home/a")])
    disks.files.add("/home/a")
    assert files.ask([file("/home/a"), file("/home/b")], 10) == (PRESENT, ABSENT)
    assert files.ask([], 10) == ()
    (state,) = files.ask([file("/hung/a", "bob")], 0.3)
    assert state.presence is Presence.UNKNOWN
    assert files.state(file("/home/b")) == NOT_CHECKED, "it is forgotten"


def test_a_bug_in_a_check_is_an_unknown_state() -> None:
    def check(owner: str, paths: tuple[str, ...]) -> tuple[FileState, ...]:
        raise ZeroDivisionError

    files = BackgroundFiles(check, limits=QUICK)
    for _ in range(2):
        files.refresh([file("/a")])
        assert files.state(file("/a")).presence is Presence.UNKNOWN
        assert files.state(file("/a")).reason


def test_real_files_are_seen(tmp_path: Path) -> None:
    owner = tmp_path.owner()
    files, done = local_files(QUICK), WatchedFile(owner, str(tmp_path / "done"))
    files.refresh([done])
    assert files.state(done) == ABSENT
    (tmp_path / "done").touch()
    files.refresh([done])
    assert files.state(done) == PRESENT
    files.refresh([WatchedFile("no such person", str(tmp_path / "done"))])
    assert files.state(WatchedFile("no such person", str(tmp_path / "done"))).presence is Presence.UNKNOWN


def test_the_longest_mount_point_counts(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    rows = ("/", "/home", "/home/my\\040disk")
    table.write_text("".join(f"1 2 0:1 / {point} rw - ext4 disk rw\n" for point in rows))
    points = MountPoints(table)
    assert [points(path) for path in ("/tmp/a", "/home/a", "/home/my disk/a", "/homes/a")] == [
        "/", "/home", "/home/my disk", "/",
    ]  # fmt: skip
    assert MountPoints(tmp_path / "none")("/a") == ""


# By the user's side.


def by_order(ask: Callable[[str, Act], AgentResponse]) -> FileState:
    files = files_by_order(ask, QUICK)
    files.refresh([file("/home/done")])
    return files.state(file("/home/done"))


def test_an_agent_checks_the_files_of_its_user() -> None:
    desk, over = AgentQueue(lambda user, order_id, answer: None), threading.Event()

    def agent() -> None:
        while not over.is_set():
            order = desk.next_order("alice", 0.05)
            if order is not None:
                assert isinstance(order.act, CheckFiles)
                states = tuple(PRESENT if path == "/home/done" else ABSENT for path in order.act.paths)
                desk.answer("alice", order.order_id, AgentResponse(Verdict.DONE, files=states))

    desk.attach("alice")
    thread = threading.Thread(target=agent)
    thread.start()
    try:
        files = files_by_order(desk.ask, QUICK)
        files.refresh([file("/home/done"), file("/home/other"), file("/home/x", "bob")])
        until(lambda: files.state(file("/home/other")) == ABSENT)
        assert files.state(file("/home/done")) == PRESENT
        state = files.state(file("/home/x", "bob"))
        assert (state.presence, state.denied) == (Presence.UNKNOWN, False)
        assert "bob" in state.reason
        with pytest.raises(NotPermitted):
            AgentActuator(desk).cancel(JobId(1), "bob")
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize(
    "error",
    [NotPermitted("nobody is there"), ClusterUnavailable("no answer")],
    ids=lambda error: type(error).__name__,
)
def test_an_owners_side_that_cannot_be_asked_makes_files_unknown(error: MirageError) -> None:
    def ask(owner: str, act: Act) -> AgentResponse:
        raise error

    assert by_order(ask) == FileState(Presence.UNKNOWN, str(error))


@pytest.mark.parametrize("states", [(), (PRESENT, PRESENT)])
def test_an_answer_about_other_files_is_none(states: tuple[FileState, ...]) -> None:
    assert by_order(lambda owner, act: AgentResponse(Verdict.DONE, files=states)).presence is Presence.UNKNOWN


def test_an_agents_words_steer_no_terminal_and_fill_no_journal() -> None:
    said = FileState(Presence.UNKNOWN, "\x1b[2J\nreason" + "x" * 10_000)
    answer = AgentResponse.from_text(AgentResponse(Verdict.DONE, files=(said,)).to_text(), files=1)
    state = by_order(lambda owner, act: answer)
    assert state.reason.isprintable()
    assert "reason" in state.reason
    assert len(state.reason) <= LONGEST_TEXT


def test_check_that_began_before_counts_for_no_file_that_is_wanted_anew(disks: FileSystems) -> None:
    """A link may write its done file last: a check that began before its end says nothing about that."""
    file = WatchedFile("ada", "/home/done")
    files = disks.background(CheckLimits(threads=3, timeout=60.0, at_once=2.0, every=3_600.0))
    files.refresh([file])
    assert files.state(file) == ABSENT
    disks.files.add(file.path)
    files.refresh([file])
    assert files.state(file) == ABSENT, "not checked again so soon"
    files.refresh([file], anew=[file])
    until(lambda: files.state(file) == PRESENT)


def test_result_of_a_check_under_way_is_not_that_of_one_wanted_anew(disks: FileSystems) -> None:
    began, goes_on = threading.Event(), threading.Event()

    def slowly(owner: str, paths: tuple[str, ...]) -> tuple[FileState, ...]:
        found = disks.check(owner, paths)
        began.set()
        assert goes_on.wait(60)
        return found

    file = WatchedFile("ada", "/home/done")
    files = BackgroundFiles(slowly, disks.mount, CheckLimits(at_once=0.0, timeout=60.0), probe=disks.probe)
    files.refresh([file])
    assert began.wait(60)
    disks.files.add(file.path)
    files.refresh([file], anew=[file])
    goes_on.set()
    seen = []
    until(lambda: seen.append(files.state(file)) or seen[-1] == PRESENT)
    assert ABSENT not in seen
