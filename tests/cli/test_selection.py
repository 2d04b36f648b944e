"""``--json`` has the rows that the table of the same options has."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from api.serving import serving
from api.shown_queues import NOW, columns, snapshot
from api_world import START, definition, world
from test_chains import ME, mirage

from mirage.control.status import Status
from mirage.domain.chain import ChainStatus
from mirage.domain.job import JobId
from mirage.domain.link import Link, LinkState
from mirage.slurm.queuelabels import QueueLabels

if TYPE_CHECKING:
    from collections.abc import Iterator

    from api_world import World

__all__ = ["world"]


@pytest.fixture
def three(world: World) -> World:
    """A chain that is up in partition gpu, one that starts in cpu, and one that is done."""
    for name, partition in (("upp-aaaa", "gpu"), ("new-bbbb", "cpu"), ("old-cccc", "gpu")):
        request = definition()["request"] | {"partition": partition}
        assert world.call("POST", "/api/v1/chains", definition(name, request=request))[0] == 201
    up, new, old = world.loop.records
    link = Link(1, up.chain.tag(1), START - 9_000, LinkState.RUNNING, JobId(1), START - 9_000, START - 60, START)
    world.loop.records = [replace(up, links=(link,)), new, replace(old, status=ChainStatus.DONE)]
    world.loop.cycle()
    return world


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("", {"upp", "new"}),
        ("--all", {"upp", "new", "old"}),
        ("-t up", {"upp"}),
        ("-t all", {"upp", "new", "old"}),
        ("-p cpu", {"new"}),
        ("-p gpu --all", {"upp", "old"}),
        (f"-u {ME}", {"upp", "new"}),
        ("-u nobody", set()),
        ("--me -t done", {"old"}),
    ],
)
def test_chains_as_json_are_those_of_the_table(three: World, options: str, expected: set[str]) -> None:
    words = options.split()
    table = mirage(three, "chains", "-h", "-o", "chain", *words).stdout.split()
    document = json.loads(mirage(three, "chains", "--json", *words).stdout)
    assert {each[:3] for each in table} == expected
    assert [chain["id"] for chain in document["chains"]] == table


@pytest.fixture
def queued(world: World) -> Iterator[World]:
    """Pending and running jobs in both partitions, one of them suspended."""
    pending = columns({"job_id": 1}, {"job_id": 2, "partition": 1}, {"job_id": 3, "user": 1})
    running = columns({"job_id": 4, "start": NOW - 60}, {"job_id": 5, "start": NOW - 60, "partition": 1})
    seen = snapshot(pending, running, (ME, "bob"))
    ids = seen.labels.job_id
    status = Status(
        NOW, "", replace(seen, labels=QueueLabels.extending(seen.labels, ids == 0, ids == 5, ids * 0)), 1
    )
    with serving(world, status=lambda: status) as served:
        yield served


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("", [1, 2, 3, 4, 5]),
        ("-t PD", [1, 2, 3]),
        ("-t PD -p gpu", [2]),
        ("-t R", [4]),
        ("-t s,r -p batch,gpu", [4, 5]),
        ("-u bob", [3]),
        ("-u bob -t R", []),
        ("--me -t PD", [1, 2]),
    ],
)
def test_queue_as_json_is_that_of_the_table(queued: World, options: str, expected: list[int]) -> None:
    words = options.split()
    table = mirage(queued, "queue", "-h", "-o", "jobid", "-S", "jobid", *words).stdout.split()
    document = json.loads(mirage(queued, "queue", "--json", *words).stdout)
    assert list(map(int, table)) == expected
    assert [job["job_id"] for job in document["jobs"]] == expected
    assert document["total"] == len(expected)
