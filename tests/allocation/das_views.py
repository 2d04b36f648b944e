"""Times for the agents' tests: pools of several shapes, tasks that run on some of the devices."""

from __future__ import annotations

import numpy as np

from mirage.allocation.ddl.formats.table import task_table
from mirage.domain.pool import Pool, PoolView, SpeedTable


def pool_of(nodes: int, devices: int, *, switches: int = 1, islands: int = 1) -> Pool:
    device_node = np.repeat(np.arange(nodes, dtype=np.int32), devices)
    index = np.tile(np.arange(devices, dtype=np.int32), nodes)
    return Pool(
        node_names=tuple(f"n{number}" for number in range(nodes)),
        cpus=np.full(nodes, 64, dtype=np.int32),
        memory_mb=np.full(nodes, 1 << 20, dtype=np.int64),
        switch=(np.arange(nodes) * switches // nodes).astype(np.int32),
        device_node=device_node,
        device_index=index,
        device_kind=np.zeros(nodes * devices, dtype=np.int32),
        island=(device_node * islands + index * islands // devices).astype(np.int32),
        kinds=("gpu",),
        price=np.ones(1),
    )


def instant(seed: int, pool: Pool, pending: int, running: int = 0, *, widest: int = 8) -> PoolView:
    """Random tasks; as many of ``running`` run as fit, each on the first devices that are free."""
    rng = np.random.default_rng(seed)
    count = pending + running
    devices = rng.choice([size for size in (1, 2, 4, 8) if size <= widest], count).astype(np.int32)
    share = np.where((devices == 1) & (rng.random(count) < 0.5), 0.5, 1.0)
    tasks = task_table(
        tuple(f"t{number}" for number in range(count)),
        submit=np.sort(rng.uniform(0, 1000, count)),
        devices=devices,
        share=share,
        max_nodes=rng.choice([1, 2, 8], count).astype(np.int32),
        cpus=rng.integers(0, 8, count).astype(np.int32),
        work=rng.lognormal(8, 1, count),
        expected=rng.lognormal(8, 1, count),
    )
    rows, spreads = 6, 4
    speeds = SpeedTable(
        rng.integers(0, rows, (count, 1, spreads)).astype(np.int32),
        rng.uniform(0.4, 1.0, rows),
        rng.uniform(0.4, 1.0, (rows, rows)),
    )
    free = np.ones(len(pool.device_node))
    held: list[list[int]] = [[] for _ in range(count)]
    for task in range(pending, count):
        fitting = np.flatnonzero(free >= share[task] - 1e-9)[: devices[task]]
        if len(fitting) == devices[task]:
            held[task] = fitting.tolist()
            free[fitting] -= share[task]
    order = rng.permutation(pending).astype(np.int32)
    return PoolView(
        now=2000.0,
        pool=pool,
        tasks=tasks,
        speeds=speeds,
        pending=np.sort(order).astype(np.int32),
        running=np.array([task for task in range(count) if held[task]], dtype=np.int32),
        held_from=np.concatenate([[0], np.cumsum([len(those) for those in held])]).astype(np.int32),
        held=np.array([device for those in held for device in those], dtype=np.int32),
        task_node=np.array([pool.device_node[those[0]] if those else -1 for those in held], dtype=np.int32),
        free=free,
        free_cpus=pool.cpus.copy(),
        free_memory_mb=pool.memory_mb.copy(),
        served=np.where([bool(those) for those in held], rng.uniform(1, 2000, count), 0.0),
        remaining=tasks.expected * rng.uniform(0.1, 1.0, count),
    )
