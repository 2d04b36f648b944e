"""The numbers of one snapshot against a reference that walks over the jobs one by one."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirage.domain.snapshot import JobColumns, PartitionState, Snapshot
from mirage.features.summary import COLUMNS, FREED_WITHIN, summarise

NOW = 2_000_000
PARTITIONS = ("batch", "gpu")


def columns(rows: list[dict[str, int]]) -> JobColumns:
    names = JobColumns.__dataclass_fields__
    return JobColumns(*(np.array([row[name] for row in rows], dtype=np.int64) for name in names))


@st.composite
def job_rows(draw: st.DrawFn, *, running: bool) -> list[dict[str, int]]:
    rows = []
    for number in range(draw(st.integers(0, 12))):
        submit = NOW - draw(st.integers(0, 300_000))
        rows.append(
            {
                "job_id": number,
                "user": draw(st.integers(-1, 4)),
                "partition": draw(st.integers(0, 1)),
                "qos": 0,
                "nodes": draw(st.integers(1, 64)),
                "limit": draw(st.sampled_from([60, 3_600, 7_200, 86_400, 172_800])),
                "submit": submit,
                "eligible": draw(st.sampled_from([submit, NOW, NOW + 1, 1 << 61])),
                "start": draw(st.integers(submit, NOW)) if running else -1,
                "priority": draw(st.integers(0, 2**32 - 1)),
                "series": 0,
            }
        )
    return rows


def percentile(values: list[int], level: int) -> float:
    """Linear between order statistics: the definition, with a sorted list."""
    ordered = sorted(values)
    place = level / 100 * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def users(rows: list[dict[str, int]]) -> dict[int, int]:
    nodes: dict[int, int] = {}
    for row in rows:
        nodes[row["user"]] = nodes.get(row["user"], 0) + row["nodes"]
    return nodes


def reference(
    pending: list[dict[str, int]], running: list[dict[str, int]], counts: tuple[int, int, int, int]
) -> dict[str, float]:
    found: dict[str, float] = {}

    def spread(what: str, values: list[int]) -> None:
        for level in (0, 25, 50, 75, 100):
            found[f"{what}_p{level}"] = percentile(values, level) if values else 0

    for name, rows in (("pending", pending), ("running", running)):
        found[f"{name}_jobs"] = len(rows)
        found[f"{name}_nodes"] = sum(row["nodes"] for row in rows)
        found[f"{name}_users"] = len(users(rows))
        found[f"{name}_largest_share"] = max(users(rows).values()) / found[f"{name}_nodes"] if rows else 0
        spread(f"{name}_limit", [row["limit"] for row in rows])
        spread(f"{name}_size", [row["nodes"] for row in rows])
    spread("pending_age", [NOW - row["submit"] for row in pending])
    spread("pending_priority", [row["priority"] for row in pending])
    spread("running_wait", [row["start"] - row["submit"] for row in running])
    spread("running_elapsed", [NOW - row["start"] for row in running])
    ready = [row for row in pending if row["eligible"] <= NOW]
    found["eligible_jobs"] = len(ready)
    found["eligible_nodes"] = sum(row["nodes"] for row in ready)
    found["eligible_node_seconds"] = sum(row["nodes"] * row["limit"] for row in ready)
    for hours in FREED_WITHIN:
        soon = [row for row in running if row["start"] + row["limit"] <= NOW + hours * 3_600]
        found[f"freed_{hours}h"] = sum(row["nodes"] for row in soon)
    found |= dict(zip(("total_nodes", "idle_nodes", "allocated_nodes", "down_nodes"), counts, strict=True))
    return found


STATES = (PartitionState("batch", 70, 20, 40, 10), PartitionState("gpu", 9, 1, 5, 3))


def snapshot(pending: list[dict[str, int]], running: list[dict[str, int]]) -> Snapshot:
    return Snapshot(NOW, columns(pending), columns(running), STATES, (), PARTITIONS, ("normal",))


@given(job_rows(running=False), job_rows(running=True), st.sampled_from(["", "batch", "gpu"]))
def test_every_column_is_what_walking_over_the_jobs_gives(
    pending: list[dict[str, int]], running: list[dict[str, int]], partition: str
) -> None:
    counts = {"": (79, 21, 45, 13), "batch": (70, 20, 40, 10), "gpu": (9, 1, 5, 3)}[partition]
    chosen = [
        [row for row in rows if not partition or PARTITIONS[row["partition"]] == partition]
        for rows in (pending, running)
    ]
    expected = reference(chosen[0], chosen[1], counts)
    assert set(expected) == set(COLUMNS)
    found = dict(zip(COLUMNS, summarise(snapshot(pending, running), partition).tolist(), strict=True))
    assert found == pytest.approx({name: float(np.float32(value)) for name, value in expected.items()}, rel=1e-6)


def test_an_empty_queue_is_zeros_and_its_nodes() -> None:
    found = dict(zip(COLUMNS, summarise(snapshot([], []), "gpu").tolist(), strict=True))
    assert {name: value for name, value in found.items() if value} == {
        "total_nodes": 9,
        "idle_nodes": 1,
        "allocated_nodes": 5,
        "down_nodes": 3,
    }


def test_a_partition_that_is_not_there_has_nothing() -> None:
    assert not summarise(snapshot([], []), "elsewhere").any()
