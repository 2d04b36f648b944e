"""A daemon that ends by itself: it stays for what falls due, and for those who use it."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from daemons import DaemonFolder, wait_until
from hypothesis import given
from hypothesis import strategies as st

from mirage.config.places import CALLS
from mirage.control.leader_election import LeaderCandidate, LeaderElection, LeaseTerms
from mirage.control.status import Cycle
from mirage.daemon.brief import BriefRun, Calls, Term, read_calls
from mirage.daemon.supervision import LeaseRenewer
from mirage.domain.errors import StoreUnavailable
from mirage.domain.job import NEVER
from mirage.domain.lease import VACANT, Lease
from mirage.store.leases import FileLeases, open_leases

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path) -> DaemonFolder:
    return DaemonFolder(tmp_path)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@given(
    every=st.sampled_from([0, 10, 60]),
    linger=st.sampled_from([0, 7, 30]),
    rate=st.sampled_from([1, 60]),
    wakes=st.lists(st.one_of(st.just(NEVER), st.integers(0, 6_000)), min_size=1, max_size=4),
    uses=st.lists(st.integers(0, 80), max_size=4),
)
def test_it_ends_when_nothing_is_due_and_nobody_uses_it(
    every: int, linger: int, rate: int, wakes: list[int], uses: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A cycle each twenty seconds, a request at each second of ``uses``: looked at each second."""
    clock, requests = Clock(), 0
    run = BriefRun(Term(every, linger), tmp_path_factory.getbasetemp(), rate, clock)
    assert not run.over(0, 0), "no cycle yet"
    due = float(NEVER)
    for second in range(100):
        clock.now = second
        if second % 20 == 0 and second // 20 < len(wakes):
            wake = wakes[second // 20]
            run.cycled(Cycle("hold", wake, deciding=False), 0)
            due = second + wake / rate
        requests += uses.count(second)
        last = max((use for use in uses if use <= second), default=None)
        unused = second >= linger if last is None else second - last >= max(linger, 5)
        assert run.over(requests, 0) is (unused and due >= every), second
    assert not run.over(requests, 1), "one is connected"


def answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as tried:
        return tried.connect_ex(str(path)) == 0


def test_a_chain_runs_by_calls_alone(folder: DaemonFolder) -> None:
    folder.add_chain(links=4)
    state, calls = folder.folder / "state", 0
    while not folder.record().over:
        with folder.start("--brief=600,0") as daemon:
            assert daemon.ended() == 0, daemon.text
        calls += 1
        assert calls < 100
        found = read_calls(state)
        assert found is not None
        assert (found.every, found.ended(time.time())) == (600, False)
    record = folder.record()
    record.check()
    assert folder.submissions() == [link.tag for link in record.links]
    assert len(record.links) == 4


def test_a_call_fails_where_its_cycle_does(folder: DaemonFolder) -> None:
    folder.ask("bug")
    with folder.start("--brief=600,0") as daemon:
        assert daemon.ended() == 1


def test_a_call_fails_where_slurm_does_not_answer(folder: DaemonFolder) -> None:
    folder.ask("down")
    with folder.start("--brief=600,0") as daemon:
        assert daemon.ended() == 1


def test_it_stays_while_it_is_used_and_no_longer(folder: DaemonFolder) -> None:
    path = folder.folder / "run" / "api.sock"
    with folder.start("--brief=0,3") as daemon:
        wait_until(lambda: answers(path), "the socket")
        with socket.socket(socket.AF_UNIX) as used:
            used.connect(str(path))
            time.sleep(5)
            assert daemon.process.poll() is None
            connection = http.client.HTTPConnection("localhost")
            connection.sock = used
            connection.request("GET", "/healthz")
            assert connection.getresponse().status == 200
        assert daemon.ended() == 0
    assert not path.exists()
    assert not (folder.folder / "state" / CALLS).exists(), "a command is no call"


def test_a_second_one_waits_for_no_daemon(folder: DaemonFolder) -> None:
    with folder.start() as daemon:
        daemon.wait_for("daemon_started")
        with folder.start("--brief=600,0") as second:
            assert second.ended() == 1
            assert second.said("a daemon runs already")
        daemon.signal(signal.SIGTERM)
        assert daemon.ended() == 0


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"at": "x", "every": 1, "daily": 0}', '{"at": 1e999}', "\x00"])
def test_a_damaged_note_counts_as_none(tmp_path: Path, text: str) -> None:
    (tmp_path / CALLS).write_text(text)
    assert read_calls(tmp_path) is None
    run = BriefRun(Term(600), tmp_path, 1)
    assert run.is_first_of_day
    run.note(daily=True)
    assert read_calls(tmp_path) is not None
    assert not run.is_first_of_day


def test_calls_that_do_not_come_have_ended(tmp_path: Path) -> None:
    for every, ended in ((600, 3_601), (7_200, 21_601)):
        calls = Calls(1_000, every)
        assert not calls.ended(1_000 + ended - 2)
        assert calls.ended(1_000 + ended)
    (tmp_path / CALLS).write_text(json.dumps({"at": 5, "every": 600, "daily": 0}))
    assert read_calls(tmp_path) == Calls(5, 600)


def leases_of(folder: DaemonFolder) -> FileLeases:
    """A database that several machines share, whose lease another one has."""
    url = f"directory://{folder.folder}/shared"
    folder.configure(f'[store]\nurl = "{url}"\nlease = 3\n')
    leases = open_leases(url)
    assert leases.swap(VACANT, Lease("other:1:x", "other", 1))
    return leases


def test_a_call_takes_over_from_one_that_was_killed_on_another_machine(folder: DaemonFolder) -> None:
    leases = leases_of(folder)
    with folder.start("--brief=600,0") as daemon:
        assert daemon.ended() == 0
        assert not daemon.said("cycles=0"), daemon.text
    assert (leases.read().term, leases.read().vacant) == (2, True)


def test_a_call_leaves_the_lead_to_one_that_is_alive(folder: DaemonFolder) -> None:
    leases, ended = leases_of(folder), threading.Event()

    def renew() -> None:
        while not ended.wait(0.5):
            found = leases.read()
            assert leases.swap(found, replace(found, beat=found.beat + 1))

    with ThreadPoolExecutor(1) as pool, folder.start("--brief=600,0") as daemon:
        renewing = pool.submit(renew)
        try:
            assert daemon.ended() == 0
        finally:
            ended.set()
        renewing.result()
        assert daemon.said("daemon_stopped cycles=0"), daemon.text
    assert (leases.read().holder, leases.read().term) == ("other:1:x", 1)


def test_nothing_waits_for_a_database_that_does_not_answer() -> None:
    class Silent:
        def read(self) -> Lease:
            raise StoreUnavailable("the disk is full")

        def swap(self, old: Lease, new: Lease) -> bool:
            raise StoreUnavailable("the disk is full")

    candidate = LeaderCandidate("me:1", "me", LeaseTerms(45))
    office = LeaseRenewer(LeaderElection(Silent(), candidate, time.monotonic))
    office.start()
    began = time.monotonic()
    assert not office.await_term(insisting=True)
    assert time.monotonic() - began < 5
    office.close()
