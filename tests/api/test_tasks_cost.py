"""Showing a file that a user writes costs little, however large it is and however often it changes."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from api_world import World, call, world
from tasks_seen import ME, NOTHING, Files, chain, looked, of_uid, read, refusal, viewer, write

from mirage.api.access.authentication import BYTES_OF_ONE
from mirage.api.access.rates import RateLimiter, TooOften
from mirage.api.agentstatus import TaskStatus
from mirage.api.routes.allocation import MOST_BYTES
from mirage.api.server import ApiServer
from mirage.api.taskfiles import LARGEST, MOST_VALUES, Reading, read_state
from mirage.api.taskwatch import BURST, Shown, TaskWatch
from mirage.domain.chain import Chain, ChainId, ChainRecord
from mirage.domain.job import JobId, JobRequest
from mirage.domain.link import Link, LinkState

if TYPE_CHECKING:
    from pathlib import Path

    from mirage.backends.file_check import Viewer

__all__ = ["world"]


def test_tasks_file_is_read_once_until_it_changes(tmp_path: Path) -> None:
    first = read_state(str(write(tmp_path, NOTHING).parent), viewer())
    assert first is not None
    assert read_state(str(tmp_path), viewer(), first.mark) is None
    write(tmp_path, NOTHING | {"over": True})
    again = read_state(str(tmp_path), viewer(), first.mark)
    assert again is not None
    assert isinstance(again.seen, TaskStatus)
    assert again.seen.over
    files = Files()
    files.changing = False
    watch = TaskWatch(of_uid, files.read)
    assert [looked(watch, chain(1))["c1"]["written"] for _ in range(3)] == 3 * ["1970-01-01T00:00:01Z"]
    assert (files.looks, files.made) == (3, 1)


def test_tasks_answer_follows_the_links_and_the_clock() -> None:
    files = Files()
    files.changing = False
    watch = TaskWatch(of_uid, files.read)
    running = Link(1, chain(1).tag(1), 0, LinkState.RUNNING, JobId(7), 0, 0, 10**10)

    def stale(now: int, *links: Link) -> bool:
        (found,) = asyncio.run(watch.look([ChainRecord(chain(1), links)], now)).values()
        assert isinstance(found, Shown)
        return bool(json.loads(found.body)["stale"])

    assert [stale(10, running), stale(999, running), stale(999), stale(999, running)] == [False, True, False, True]
    assert files.made == 4


@pytest.mark.parametrize(
    "text",
    [
        b'{"version":1,"time":1.0,"over":false,"tasks":[],"lanes":{},"links":[{"job":null,"began":null,"nodes":{"a":['
        + b",".join([b'[0,""]'] * 250_000)
        + b"]}}]}",
        b'{"x":[' + b"0," * 900_000 + b"0]}",
        b'{"x":["' + b'\\\\","' * 300_000 + b'"]}',
    ],
    ids=["devices", "numbers", "backslashes"],
)
def test_tasks_file_of_many_values_is_rejected_before_they_are_made(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "status.json").write_bytes(text)
    tracemalloc.start()
    said = refusal(tmp_path)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert f"more than {MOST_VALUES} values" in said
    assert most < 12 * LARGEST


def test_tasks_file_of_as_many_as_are_shown_is_shown(tmp_path: Path) -> None:
    bar = {"attempt": 1, "share": 1.0, "start": 1.0, "end": 2.0}
    row = {
        "state": "failed",
        "why": "exit code 1",
        "attempts": 1,
        "devices": 1,
        "link": "a",
        "start": 1.0,
        "end": 2.0,
    }
    tasks = [{"id": f"t{number}"} | row for number in range(2_000)]
    lanes = {f"n:{at}": [{"task": f"t{at}"} | bar, {"task": f"t{at + 1_000}"} | bar] for at in range(1_000)}
    write(tmp_path, NOTHING | {"tasks": tasks, "lanes": lanes})
    assert isinstance(read(tmp_path), TaskStatus)


def test_tasks_files_of_one_owner_have_a_share_of_the_processor() -> None:
    """A file that changes at each read: the cached response is served, and so are other users."""
    files, clock = Files(), [0.0]
    watch = TaskWatch(of_uid, files.read, shares=RateLimiter(1e-9, 1, lambda: clock[0]))
    assert looked(watch, chain(1))["c1"]["written"] == "1970-01-01T00:00:01Z"
    for _ in range(50):
        assert looked(watch, chain(1))["c1"]["written"] == "1970-01-01T00:00:01Z"
    assert files.looks == 1
    assert isinstance(looked(watch, chain(2))["c2"], TooOften), "nothing is kept of this one"
    assert looked(watch, chain(3, "bob"))["c3"]["problem"] == ""
    clock[0] = 1e12
    assert looked(watch, chain(1))["c1"]["written"] == "1970-01-01T00:00:03Z"


def test_tasks_flood_of_a_large_file_takes_no_more_than_the_share(tmp_path: Path) -> None:
    """Reads continue until half a second of the owner's share is used; then nothing is read."""
    nodes = {f"n{number}": [[0, "gpu"]] for number in range(10_000)}
    write(tmp_path, NOTHING | {"links": [{"job": None, "began": None, "nodes": nodes}]})
    own, looks = replace(chain(1), tasks_state=str(tmp_path)), 0

    def read(folder: str, owner: Viewer, known: tuple[int, ...] | None) -> Reading | None:
        nonlocal looks
        looks += 1
        return read_state(folder, viewer())

    watch = TaskWatch(of_uid, read, patience=60, shares=RateLimiter(1e-9, BURST))
    for _ in range(300):
        looked(watch, own)
    assert 0 < looks < 150


def test_tasks_kept_answers_are_bounded_and_the_most_give_way(monkeypatch: pytest.MonkeyPatch) -> None:
    files = Files()
    files.changing = False
    watch = TaskWatch(of_uid, files.read, shares=RateLimiter(0, 1))
    monkeypatch.setattr("mirage.api.taskwatch.MOST_KEPT", 100_000)
    looked(watch, chain(0, "bob"))
    for number in range(1, 200):
        looked(watch, chain(number, "mallory"))
    made = files.made
    looked(watch, chain(0, "bob"), chain(199, "mallory"))
    assert files.made == made, "kept"
    looked(watch, chain(1, "mallory"))
    assert files.made == made + 1


def test_allocation_of_many_large_files_is_bounded(world: World, tmp_path: Path) -> None:
    nodes = {"n" * 240 + f"{number:04}": [[0, "gpu" * 80]] for number in range(900)}
    write(tmp_path, NOTHING | {"links": [{"job": None, "began": None, "nodes": nodes}]})
    request = JobRequest("x", ME, 60)
    for number in range(9):
        own = Chain(ChainId(f"big-{number}"), "x", ME, request, tasks_state=str(tmp_path))
        running = Link(1, own.tag(1), 0, LinkState.RUNNING, JobId(7 + number), 0, 0, 10**10)
        world.loop.records.append(ChainRecord(own, (running,)))
    world.loop.cycle()
    code, found = world.call("GET", "/api/v1/allocation")
    assert (code, len(found["tasks"])) == (200, 9)
    assert len(json.dumps(found)) < 2 * MOST_BYTES
    shown = [len(each["lanes"]) for each in found["tasks"]]
    assert shown[0] == 900
    assert shown[-1] == 0
    assert "too many tasks to show" in found["tasks"][-1]["problem"]
    assert len(world.call("GET", "/api/v1/chains/big-8/tasks")[1]["lanes"]) == 900


def test_tasks_bytes_that_are_read_count_against_the_rate(world: World, tmp_path: Path) -> None:
    write(tmp_path, NOTHING | {"more": "x" * 7 * BYTES_OF_ONE})
    own = Chain(ChainId("c"), "c", ME, JobRequest("c", ME, 60), tasks_state=str(tmp_path))
    world.loop.records.append(ChainRecord(own))
    world.loop.cycle()
    gate = replace(world.service.gate, rates=RateLimiter(0.001, 10))
    server = ApiServer(replace(world.service, gate=gate), tmp_path / "r.sock")
    server.start()
    path = "/api/v1/chains/c/tasks"
    assert [call(str(tmp_path / "r.sock"), "GET", path, None)[0] for _ in range(3)] == [200, 200, 429]
    server.stop()
