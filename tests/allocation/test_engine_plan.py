"""One path: with one policy the engine does what the simulated pool does, start by start, device by device."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from allocation.engine_world import EPOCH, Site, engine_of, task
from hypothesis import given, settings
from hypothesis import strategies as st

from mirage.allocation.ddl import registry
from mirage.allocation.ddl.dispatch import DispatchRules, dispatch
from mirage.allocation.ddl.simulation import SimulatedPool
from mirage.allocation.engine.agent import Agent, Progress
from mirage.allocation.engine.allocation_table import nothing_known

if TYPE_CHECKING:
    from mirage.allocation.engine.plan import TaskSpec


def play(site: Site, agent: Agent, durations: dict[str, float]) -> None:
    """Each step ends exactly when its time is over, the clock jumping from end to end."""
    engine = engine_of(agent)
    ends: dict[str, float] = {}
    while agent.cycle() is not Progress.OVER:
        for key in engine.living.keys() - ends.keys():
            ends[key] = site.now + durations[key.rpartition(".")[0]]
        first = min(at for key, at in ends.items() if key not in engine.ended)
        site.now = first
        for key, at in ends.items():
            if at == first and key not in engine.ended:
                engine.finish(key)


tasks_of_all_kinds = st.lists(
    st.builds(
        lambda devices, share, cpus, expected, spread: {
            "devices": devices, "share": share if devices == 1 else 1.0, "cpus": cpus, "expected": expected,
            "max_nodes": 2 if spread or devices > 4 else 1,
        },
        st.integers(0, 8), st.sampled_from([0.25, 0.5, 1.0]), st.integers(0, 8), st.integers(1, 50).map(float),
        st.booleans(),
    ),
    min_size=1,
    max_size=12,
)  # fmt: skip


@pytest.mark.parametrize("names", [("fifo", "first-fit"), ("sjf", "best-fit")])
@pytest.mark.parametrize("strict", [False, True])
@given(drawn=tasks_of_all_kinds, data=st.data())
@settings(max_examples=40)
def test_what_was_planned_is_what_happens(
    names: tuple[str, str], strict: bool, drawn: list[dict[str, float]], data: st.DataObject
) -> None:
    specs: list[TaskSpec] = []
    for number, more in enumerate(drawn):
        waits = data.draw(st.booleans()) and number > 0
        after = (f"t{data.draw(st.integers(0, number - 1))}",) if waits else ()
        specs.append(task(f"t{number}", after=after, **more))
    durations = {spec.name: data.draw(st.integers(1, 60)) + number / 64 for number, spec in enumerate(specs)}
    ordering, placer, rules = registry.ordering(names[0]), registry.placer(names[1]), DispatchRules(strict)
    with tempfile.TemporaryDirectory() as folder:
        site = Site.of(Path(folder), *specs)
        agent = site.link(nodes=2, decide=lambda view: dispatch(view, ordering, placer, rules))
        play(site, agent, durations)
        pool, ledger = agent.book.pool, site.ledger()
        agent.world.journal.close()
    work = np.array([durations[spec.name] for spec in specs])
    planned = SimulatedPool(replace(agent.situation.table, work=work), pool, nothing_known(len(specs), 1), rules)
    outcome = planned.play(registry.ordering(names[0]), registry.placer(names[1]))
    segments = outcome.segments
    for row, spec in enumerate(specs):
        (attempt,) = ledger.of(spec.name)
        assert attempt.start is not None
        assert attempt.start - EPOCH == pytest.approx(outcome.start[row], abs=1e-6), spec.name
        devices = sorted(int(device) for device in segments.device[segments.task == row])
        assert devices == [
            device
            for device in range(len(pool.device_node))
            if int(pool.device_index[device])
            in (attempt.parts or {}).get(pool.node_names[pool.device_node[device]], [])
        ]
