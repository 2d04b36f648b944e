"""A hanging user database: known users continue, and do not wait for unknown ones."""

from __future__ import annotations

import http.client
import os
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from api.test_shares_of_users import ask, open_to_all
from api_world import world
from serving import serving

from mirage.api.access import protocol
from mirage.userdb import Known, UserLookupTimeout, group_ids

if TYPE_CHECKING:
    from pathlib import Path

    from api_world import World

__all__ = ["world"]

as_root = pytest.mark.skipif(os.getuid() != 0, reason="becomes other users")
KNOWN, NEW = 4_000_000_101, 4_000_000_102


class Directory:
    """Answers immediately, or only once released."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.answers.set()
        self.asked: list[int] = []

    def look(self, uid: int) -> str:
        self.asked.append(uid)
        assert self.answers.wait(60)
        return f"user{uid}"


@as_root
def test_who_is_known_is_answered_while_the_user_database_hangs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = Directory()
    monkeypatch.setattr(protocol, "NAMES", Known(directory.look))
    with serving(world) as served, ThreadPoolExecutor(20) as pool:
        open_to_all(served.socket)
        assert ask(served.socket, KNOWN, "GET", "/api/v1/me")[1]["name"] == f"user{KNOWN}"
        directory.answers.clear()
        waiting = [pool.submit(ask, served.socket, NEW + k, "GET", "/api/v1/me") for k in range(8)]
        end = time.monotonic() + 60
        while len(directory.asked) < 5:  # as many as there are threads, and the first
            assert time.monotonic() < end
            time.sleep(0.01)
        began = time.monotonic()
        assert healthz(served.socket) == 200, "root"
        assert ask(served.socket, KNOWN, "GET", "/api/v1/me")[0] == 200
        assert time.monotonic() - began < 10
        assert not any(each.done() for each in waiting)
        directory.answers.set()
        assert [each.result(60)[1]["name"] for each in waiting] == [f"user{NEW + k}" for k in range(8)]


def healthz(path: Path) -> int:
    line = http.client.HTTPConnection("mirage", timeout=60)
    line.sock = socket.socket(socket.AF_UNIX)
    line.sock.connect(str(path))
    line.request("GET", "/healthz")
    status = line.getresponse().status
    line.close()
    return status


def test_last_answer_counts_while_there_is_no_new_one() -> None:
    now, directory = [0.0], Directory()
    names = Known(directory.look, lambda: now[0])
    assert names.last(1) is None
    assert names.wait(1, 60) == "user1"
    now[0] = 3_600.0
    directory.answers.clear()
    assert names.last(1) == "user1"
    assert names.wait(1, 0.05) == "user1"
    with pytest.raises(UserLookupTimeout, match=r"0\.05 s"):
        names.wait(2, 0.05)
    directory.answers.set()
    assert names.wait(2, 60) == "user2"


def test_many_who_ask_for_one_user_are_one_lookup() -> None:
    directory = Directory()
    directory.answers.clear()
    names = Known(directory.look)
    with ThreadPoolExecutor(10) as pool:
        found = [pool.submit(names.wait, 7, 60) for _ in range(10)]
        while not (directory.asked and all(each.running() for each in found)):
            time.sleep(0.01)
        time.sleep(0.5)  # they run, and are about to wait for the lookup that is in progress
        directory.answers.set()
        assert {each.result(60) for each in found} == {"user7"}
    assert directory.asked.count(7) <= 2


def test_groups_are_those_of_the_c_library() -> None:
    assert group_ids("root") == frozenset(os.getgrouplist("root", 0))
    with pytest.raises(KeyError):
        group_ids("no-such-user")
    for name in ("-u", "0", "+0", ""):
        with pytest.raises(KeyError):
            group_ids(name)


def test_thread_outlives_who_takes_its_answer_no_more() -> None:
    names = Known(lambda uid: f"user{uid}")

    def gone(name: str) -> None:
        raise RuntimeError("Event loop is closed")

    for uid in range(20):
        names.ask(uid, gone)
    assert names.wait(99, 60) == "user99"
