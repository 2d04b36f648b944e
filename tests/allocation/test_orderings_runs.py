"""Each ordering policy in whole runs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from pool_strategies import one_speed, plain_pool, task_table

from mirage.allocation.ddl import registry
from mirage.allocation.ddl.simulation import DispatchRules, SimulatedPool


@pytest.mark.parametrize("name", [name for name in sorted(registry.ORDERINGS) if not name.endswith(":")])
@pytest.mark.parametrize("known", [True, False])
def test_every_ordering_brings_all_tasks_to_their_end(name: str, known: bool) -> None:
    rng = np.random.default_rng(1)
    work = rng.lognormal(3, 1, 25).tolist()
    tasks = task_table(work, submit=np.sort(rng.uniform(0, 60, 25)).tolist(), restart=np.ones(25))
    tasks = tasks if known else replace(tasks, expected=np.full(25, np.nan))
    pool = plain_pool(2, 2)
    for rules in (DispatchRules(), DispatchRules(preempt=True, quantum=20.0), DispatchRules(strict=True)):
        world = SimulatedPool(tasks, pool, one_speed(tasks, pool), rules)
        assert world.play(registry.ordering(name), registry.placer("best-fit")).figures.ended == 25
