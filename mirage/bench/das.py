"""Decision time of DAS's agents: CPU milliseconds of one decision by both, untrained or trained."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from mirage.allocation.ddl.das.policies import das_ordering, das_placer
from mirage.allocation.ddl.formats.pools import parse_pool
from mirage.allocation.ddl.generator import Mix, ModelClass, draw_tasks
from mirage.allocation.ddl.simulation import Rules, SimulatedPool
from mirage.allocation.ddl.speeds import even_speeds
from mirage.bench.section import Section

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mirage.domain.pool import PoolView

PENDING, POOL, REPEATS = 200, "64x4", 20


def measure_das(folder: Path, say: Callable[[str], None]) -> tuple[Section, ...]:
    """One decision for 200 pending tasks on 64 nodes of 4 devices: empty, and with tasks that run."""
    say(f"{PENDING} tasks on {POOL}")
    empty = _pool()
    rows = [("empty pool", _decide(empty.view(), folder))]
    placer, order = das_placer(str(folder)), np.argsort(-empty.tasks.work).astype(np.int32)
    for placement in placer.place(empty.view(), order, strict=False)[:60]:
        empty.start(placement)
    rows.append(("60 tasks run", _decide(empty.view(), folder)))
    return (Section(f"DAS: one decision, {PENDING} pending tasks, {POOL}", tuple(rows)),)


def _pool() -> SimulatedPool:
    mix = Mix((ModelClass("", 1.0, (1, 2, 4), (1.0, 1.0, 1.0)),), count=PENDING + 60)
    pool = parse_pool(POOL)
    tasks = draw_tasks(mix, np.random.default_rng(1), len(pool.device_node))
    simulated = SimulatedPool(tasks, pool, even_speeds(tasks, pool), Rules())
    simulated.advance()
    return simulated


def _decide(view: PoolView, folder: Path) -> str:
    ordering, placer = das_ordering(str(folder)), das_placer(str(folder))
    taken = []
    for _ in range(REPEATS):
        seen = replace(view, pending=view.pending[:PENDING])
        begun = time.process_time()
        order = seen.pending[np.argsort(ordering.score(seen), kind="stable")]
        placer.place(seen, order, strict=False)
        taken.append(time.process_time() - begun)
    return f"{min(taken) * 1e3:.1f} ms (median {np.median(taken) * 1e3:.1f})"
