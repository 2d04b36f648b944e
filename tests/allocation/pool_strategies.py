"""Small pools and tasks drawn at random, in numbers that floats hold exactly, so that results can be equal."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import strategies as st

from mirage.domain.jobtable import Names
from mirage.domain.pool import Pool, SpeedTable, TaskTable

if TYPE_CHECKING:
    from collections.abc import Sequence

NOTHING = float("nan")


def task_table(
    work: Sequence[float],
    submit: Sequence[float] | None = None,
    devices: Sequence[int] | None = None,
    **more: object,
) -> TaskTable:
    """Tasks of one device each, all submitted at 0, with known durations by default."""
    count = len(work)
    table = TaskTable(
        name=tuple(f"t{row}" for row in range(count)),
        submit=np.array(submit if submit is not None else [0.0] * count, dtype=np.float64),
        devices=np.array(devices if devices is not None else [1] * count, dtype=np.int32),
        share=np.ones(count),
        kinds=np.full(count, 2**64 - 1, dtype=np.uint64),
        max_nodes=np.ones(count, dtype=np.int32),
        cpus=np.zeros(count, dtype=np.int32),
        memory_mb=np.zeros(count, dtype=np.int64),
        work=np.array(work, dtype=np.float64),
        expected=np.array(work, dtype=np.float64),
        restart=np.full(count, np.nan),
        deadline=np.full(count, np.nan),
        model=Names.absent(count),
        tenant=Names.absent(count),
    )
    return replace(table, **more)  # type: ignore[arg-type]


def plain_pool(nodes: int, devices: int) -> Pool:
    """Nodes that are alike, of one kind of device at a dollar an hour."""
    return made_pool([[0] * devices] * nodes, [64] * nodes, [1 << 20] * nodes)


def made_pool(kinds: Sequence[Sequence[int]], cpus: Sequence[int], memory: Sequence[int]) -> Pool:
    """``kinds``: for each node those of its devices."""
    node = [n for n, those in enumerate(kinds) for _ in those]
    return Pool(
        node_names=tuple(f"n{n}" for n in range(len(kinds))),
        cpus=np.array(cpus, dtype=np.int32),
        memory_mb=np.array(memory, dtype=np.int64),
        switch=np.zeros(len(kinds), dtype=np.int32),
        device_node=np.array(node, dtype=np.int32),
        device_index=np.array([i for those in kinds for i in range(len(those))], dtype=np.int32),
        device_kind=np.array([kind for those in kinds for kind in those], dtype=np.int32),
        island=np.array(node, dtype=np.int32),
        kinds=("old", "new"),
        price=np.array([1.0, 2.5]),
    )


def one_speed(tasks: TaskTable, pool: Pool) -> SpeedTable:
    """All run at the reference speed wherever they are."""
    return SpeedTable(np.zeros((len(tasks), len(pool.kinds), 1), dtype=np.int32), np.ones(1), np.ones((1, 1)))


@st.composite
def pools(draw: st.DrawFn) -> Pool:
    nodes = draw(st.integers(1, 3))
    kinds = [draw(st.lists(st.integers(0, 1), min_size=0, max_size=4)) for _ in range(nodes)]
    if not any(kinds):
        kinds[0] = [0, 1]
    cpus = [draw(st.integers(2, 6)) for _ in range(nodes)]
    return made_pool(kinds, cpus, [draw(st.sampled_from((40, 100))) for _ in range(nodes)])


@st.composite
def tables(draw: st.DrawFn, pool: Pool) -> TaskTable:
    """Tasks that each fit into the empty pool."""
    rows = draw(st.lists(_rows(pool), min_size=3, max_size=9))
    count = len(rows)
    columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    after = tuple(
        tuple(sorted(draw(st.sets(st.integers(0, row - 1), max_size=1))))
        if row and draw(st.integers(0, 3)) == 0
        else ()
        for row in range(count)
    )
    return task_table(
        columns["work"],
        submit=columns["submit"],
        devices=columns["devices"],
        share=columns["share"],
        kinds=columns["kinds"].astype(np.uint64),
        max_nodes=columns["max_nodes"].astype(np.int32),
        cpus=columns["cpus"].astype(np.int32),
        memory_mb=columns["memory"].astype(np.int64),
        expected=columns["expected"],
        restart=columns["restart"],
        after=after,
    )


@st.composite
def _rows(draw: st.DrawFn, pool: Pool) -> dict[str, float]:
    max_nodes = draw(st.integers(1, 3))
    kinds = draw(st.sampled_from([mask for mask in (3, 3, 1, 2) if _most_devices(pool, mask, 1)]))
    devices = draw(st.integers(0, _most_devices(pool, kinds, max_nodes)))
    work = draw(st.integers(1, 20) | st.just(0))
    return {
        "submit": draw(st.integers(0, 9)),
        "work": work,
        "devices": devices,
        "share": draw(st.sampled_from((0.25, 0.5, 1.0))) if devices == 1 else 1.0,
        "kinds": kinds,
        "max_nodes": max_nodes,
        "cpus": draw(st.integers(0, 2)),
        "memory": draw(st.sampled_from((0, 10, 30))),
        "restart": draw(st.sampled_from((2.0, 0.0, NOTHING))),
        "expected": draw(st.sampled_from((work, 7.0, NOTHING))),
    }


def _most_devices(pool: Pool, kinds: int, nodes: int) -> int:
    """The most devices of these kinds that a task could have on this number of nodes."""
    allowed = [kinds >> int(kind) & 1 for kind in pool.device_kind]
    counts = np.bincount(pool.device_node, allowed, minlength=len(pool.node_names))
    return int(np.sort(counts)[-nodes:].sum())


@st.composite
def speed_tables(draw: st.DrawFn, tasks: TaskTable, pool: Pool) -> SpeedTable:
    rows = draw(st.integers(1, 3))
    spreads = draw(st.integers(1, 3))
    cells = len(tasks) * len(pool.kinds) * spreads
    row = draw(st.lists(st.integers(0, rows - 1), min_size=cells, max_size=cells))
    alone = draw(st.lists(st.sampled_from((0.5, 1.0, 2.0)), min_size=rows, max_size=rows))
    beside = draw(st.lists(st.sampled_from((1.0, 0.5, 1.0)), min_size=rows * rows, max_size=rows * rows))
    return SpeedTable(
        np.array(row, dtype=np.int32).reshape(len(tasks), len(pool.kinds), spreads),
        np.array(alone),
        np.array(beside).reshape(rows, rows),
    )
