"""The cluster and its queue over the API."""

from __future__ import annotations

import os
import pwd
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from serving import serving
from shown_queues import NOW, columns, snapshot

from mirage.api.access.policy import AccessPolicy
from mirage.api.routes.cluster import Sought, queue_page
from mirage.control.status import Status
from mirage.domain.job import ABSENT, NEVER
from mirage.domain.jobtable import JobLabels
from mirage.slurm.queuelabels import QueueLabels

if TYPE_CHECKING:
    from api_world import World

    from mirage.api.access.authentication import Authenticator

ME = pwd.getpwuid(os.getuid()).pw_name
QUEUE = "/api/v1/queue"


def shown(world: World, status: Status) -> World:
    return replace(world, service=replace(world.service, status=lambda: status))


def telling_names(world: World) -> Authenticator:
    return replace(world.service.gate, policy=lambda: AccessPolicy(queue_names=True))


PENDING = columns(
    {"job_id": 12, "nodes": 4, "start": NOW + 60},
    {"job_id": 7, "user": 1, "partition": 2, "eligible": NEVER},
    {"job_id": 11, "user": 1, "nodes": 2},
)
RUNNING = columns(
    {"job_id": 3, "user": 1, "start": NOW - 300},
    {"job_id": 9, "partition": 1, "start": NOW - 100},
)
STATUS = Status(NOW, "held all", snapshot(PENDING, RUNNING), cycles=5)


def test_the_cluster_is_counted_by_partition(world: World) -> None:
    with serving(
        world,
        status=lambda: STATUS,
        now=lambda: NOW + 30,
        about_cluster=lambda: ("cli", "22.05.8"),
        cycle_seconds=lambda: 0.25,
    ) as served:
        status, found = served.call("GET", "/api/v1/cluster")
    assert status == 200
    assert (found["pending"], found["running"], found["stale_since"]) == (3, 2, None)
    assert (found["now"], found["snapshot"]) == ("2023-11-14T22:13:50Z", "2023-11-14T22:13:20Z")
    assert (found["backend"], found["slurm_version"]) == ("cli", "22.05.8")
    assert found["loop"] == {
        "cycle": 5,
        "time": "2023-11-14T22:13:20Z",
        "duration": 0.25,
        "sentence": "held all",
    }
    batch, gpu = found["partitions"]
    assert batch == {
        "name": "batch",
        "nodes": 10,
        "idle": 2,
        "allocated": 7,
        "down": 1,
        "pending": 3,
        "running": 1,
        "pending_nodes": 7,
    }
    assert (gpu["pending"], gpu["running"]) == (1, 1), "a job for either partition counts in both"


def test_a_cluster_that_does_not_answer_is_shown_as_it_was(world: World) -> None:
    stale = replace(STATUS, snapshot=replace(STATUS.snapshot, stale_since=NOW))
    with serving(world, status=lambda: stale) as served:
        _, found = served.call("GET", "/api/v1/cluster")
        _, queue = served.call("GET", QUEUE)
    assert found["stale_since"] == queue["stale_since"] == "2023-11-14T22:13:20Z"
    assert found["pending"] == queue["total"] - found["running"] == 3


def test_the_queue_as_squeue_shows_it(world: World) -> None:
    with serving(world, status=lambda: STATUS, gate=telling_names(world)) as served:
        status, found = served.call("GET", QUEUE)
        assert status == 200
        assert [job["job_id"] for job in found["jobs"]] == [3, 7, 9, 11, 12]
        assert found["jobs"][0] == {
            "job_id": 3,
            "name": "job-3",
            "user": "bob",
            "account": "account-1",
            "partition": "batch",
            "qos": "normal",
            "state": "RUNNING",
            "nodes": 1,
            "limit": 3_600,
            "submit": "2023-11-14T22:03:20Z",
            "eligible": "2023-11-14T22:03:20Z",
            "start": "2023-11-14T22:08:20Z",
            "end": "2023-11-14T23:08:20Z",
            "planned_start": None,
            "priority": 10,
            "waited": 300,
        }
        assert found["jobs"][1]["eligible"] is None
        assert found["jobs"][4]["planned_start"] == "2023-11-14T22:14:20Z"
        assert found["jobs"][4]["waited"] == 600
        for query, ids in [
            ("user=bob", [3, 7, 11]),
            ("partition=gpu", [7, 9]),
            ("state=pending", [7, 11, 12]),
            ("state=running&user=alice", [9]),
            ("user=carol", []),
            ("partition=nix", []),
        ]:
            found = served.call("GET", f"{QUEUE}?{query}")[1]
            assert [job["job_id"] for job in found["jobs"]] == ids, query
            assert found["total"] == len(ids)


@pytest.mark.skipif(os.getuid() != 0, reason="speaking as another user needs root")
def test_whose_names_are_told(world: World) -> None:
    status = replace(STATUS, snapshot=snapshot(PENDING, RUNNING, ("nobody", "bob")))
    own = {9: "job-9", 11: None, 12: "job-12", 3: None, 7: None}
    every = {number: f"job-{number}" for number in own}
    for gate, user, expected in (
        (world.service.gate, "nobody", own),
        (world.service.gate, "", every),
        (telling_names(world), "nobody", every),
    ):
        with serving(world, status=lambda: status, gate=gate) as served:
            _, found = served.call("GET", QUEUE, user=user)
            assert {job["job_id"]: job["name"] for job in found["jobs"]} == expected
            assert all((job["name"] is None) == (job["account"] is None) for job in found["jobs"])


@pytest.mark.skipif(os.getuid() != 0, reason="speaking as another user needs root")
def test_where_slurm_hides_the_jobs_of_others_so_does_the_queue(world: World) -> None:
    status = replace(STATUS, snapshot=snapshot(PENDING, RUNNING, ("nobody", "bob")))
    every = [3, 7, 9, 11, 12]
    open_to_all = replace(world.service.gate, policy=lambda: AccessPolicy(queue_jobs=True))
    for gate, user, expected in (
        (world.service.gate, "nobody", [9, 12]),
        (world.service.gate, "daemon", []),
        (world.service.gate, "", every),
        (open_to_all, "nobody", every),
    ):
        with serving(world, status=lambda: status, gate=gate, hides_jobs=lambda: True) as served:
            for query in ("", "?user=bob", "?state=running", "?limit=1"):
                _, found = served.call("GET", f"{QUEUE}{query}", user=user)
                assert {job["job_id"] for job in found["jobs"]} <= set(expected), query
                assert found["own_only"] is (expected != every)
            assert served.call("GET", QUEUE, user=user)[1]["total"] == len(expected)


def test_suspended_job_has_no_end_and_a_resumed_one_a_later_end(world: World) -> None:
    seen = snapshot(columns(), columns(*({"job_id": each, "start": NOW - 600} for each in (5, 6, 7))))
    ids = seen.labels.job_id
    ends = np.array([ABSENT, NOW + 5_000, ABSENT])
    labels = QueueLabels.extending(seen.labels, ids == 0, ids == 5, ends)
    status = replace(STATUS, snapshot=replace(seen, labels=labels))
    with serving(world, status=lambda: status) as served:
        jobs = served.call("GET", "/api/v1/queue")[1]["jobs"]
    assert [(job["state"], job["end"]) for job in jobs] == [
        ("SUSPENDED", None),
        ("RUNNING", "2023-11-14T23:36:40Z"),
        ("RUNNING", "2023-11-14T23:03:20Z"),
    ]


def test_bytes_of_no_text_are_told_as_question_marks(world: World) -> None:
    labels = JobLabels.of_texts(np.array([3]), ["caf\udce9 \x1b[2J"], [""])
    status = replace(STATUS, snapshot=replace(STATUS.snapshot, labels=labels))
    with serving(world, status=lambda: status, gate=telling_names(world)) as served:
        code, found = served.call("GET", f"{QUEUE}?limit=1")
    assert code == 200
    assert (found["jobs"][0]["name"], found["jobs"][0]["account"]) == ("caf? \x1b[2J", None)


def test_pages_of_the_queue(world: World) -> None:
    seen, cursor = [], ""
    with serving(world, status=lambda: STATUS) as served:
        while True:
            _, found = served.call("GET", f"{QUEUE}?limit=2{cursor}")
            assert found["total"] == 5
            seen += [job["job_id"] for job in found["jobs"]]
            if found["next"] is None:
                break
            cursor = f"&cursor={found['next']}"
        assert served.call("GET", f"{QUEUE}?cursor=nonsense")[0] == 422
        assert served.call("GET", f"{QUEUE}?limit=0")[0] == 422
        assert served.call("GET", f"{QUEUE}?state=done")[0] == 422
    assert seen == [3, 7, 9, 11, 12]


def test_one_is_me(world: World) -> None:
    mine = replace(STATUS, snapshot=snapshot(PENDING, RUNNING, ("x", ME)))
    with serving(world, status=lambda: mine) as served:
        assert [job["job_id"] for job in served.call("GET", f"{QUEUE}?user=me")[1]["jobs"]] == [3, 7, 11]


@settings(max_examples=60)
@given(
    pending=st.lists(st.tuples(st.integers(1, 40), st.integers(0, 1)), max_size=20),
    running=st.lists(st.tuples(st.integers(1, 40), st.integers(0, 1)), max_size=20),
    most=st.integers(1, 7),
    user=st.sampled_from(["", "alice", "bob"]),
)
def test_pages_hold_every_job_once(
    pending: list[tuple[int, int]], running: list[tuple[int, int]], most: int, user: str
) -> None:
    """Also where a number is both pending and running, as with arrays."""
    pending, running = (list({row[0]: row for row in rows}.values()) for rows in (pending, running))
    seen = snapshot(*(columns(*({"job_id": i, "user": u} for i, u in rows)) for rows in (pending, running)))
    found: list[tuple[int, str]] = []
    after = 0
    while True:
        page = queue_page(seen, Sought(user=user), after, most, lambda owner: owner == "bob")
        assert all((job.name == f"job-{job.job_id}") == (job.user == "bob") for job in page.jobs)
        assert len(page.jobs) <= most
        found += [(job.job_id, job.state) for job in page.jobs]
        if not page.more:
            break
        after = page.last
    wanted = [
        (i, state)
        for rows, state in ((pending, "PENDING"), (running, "RUNNING"))
        for i, u in rows
        if user in ("", ("alice", "bob")[u])
    ]
    assert Counter(found) == Counter(wanted)
    assert [i for i, _ in found] == sorted(i for i, _ in wanted)
    assert page.total == len(wanted)


def test_a_long_queue_is_not_copied(world: World) -> None:
    """Only the page's rows become objects."""
    count = 100_000
    many = columns({"job_id": 1})
    many = many.take(np.zeros(count, dtype=np.int64))
    many = replace(many, job_id=np.arange(1, count + 1))
    page = queue_page(snapshot(many, columns()), Sought(), 0, 50, lambda owner: True)
    assert (page.total, len(page.jobs), page.more) == (count, 50, True)
