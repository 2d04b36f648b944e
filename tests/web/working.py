"""A chain whose links run tasks: its state directory is made by the real agent, on an engine that runs nothing."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

from allocation.engine_world import Site, engine_of, task
from chains_seen import chain_of, link
from instants import HOUR, NOW

from mirage.allocation.engine.agent import Progress
from mirage.allocation.engine.discovery import Device, NodeFound
from mirage.allocation.engine.plan import Checkpoint
from mirage.allocation.engine.status import document, publish
from mirage.domain.chain import ChainRecord

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from mirage.allocation.engine.plan import TaskSpec

NODES = ("gpu001", "gpu002")
STEP = 300


def sweeping(folder: Path, owner: str = "alice") -> ChainRecord:
    """Two links, of which the second runs: 96 tasks, of which two fail."""
    chain = replace(chain_of("lr-sweep-q8d3", "lr-sweep", owner, 8, 2), tasks_state=str(folder))
    began = NOW - 11 * HOUR
    links = (
        link(chain, 1, began - HOUR, began, began + 8 * HOUR),
        link(chain, 2, began + 7 * HOUR, began + 8 * HOUR, began + 16 * HOUR, ended=False),
    )
    play(folder, {int(each.job_id): (each.start, min(each.end, NOW)) for each in links})
    return ChainRecord(chain, links)


def play(folder: Path, links: dict[int, tuple[int, int]], nodes: Collection[str] = NODES) -> None:
    """Run the tasks in jobs, each from its start to its end, on nodes with four GPUs."""
    chance = random.Random(5)
    specs = [_spec(number, chance) for number in range(96)]
    minutes = {spec.name: chance.randint(15, 130) for spec in specs}
    site = Site.of(folder, *specs)
    found = tuple(NodeFound(name, 32, 512_000, tuple(Device(n, "gpu:a100") for n in range(4))) for name in nodes)
    for job, (start, end) in links.items():
        site.now = float(start)
        agent = site.link(job=job, found=found, length=8.0 * HOUR)
        while site.now < end and agent.cycle() is Progress.GOING:
            site.pass_time(min(STEP, end - site.now))
            for key in _due(site, engine_of(agent).living, minutes):
                engine_of(agent).finish(key, 1 if key.startswith(("lr-07", "lr-46")) else 0)
        site.jobs.running.discard(job)
    publish(site.folder.status, document({each.name: each for each in specs}, site.ledger(), site.now))


def _spec(number: int, chance: random.Random) -> TaskSpec:
    devices = chance.choice((1, 1, 1, 1, 2))
    half = devices == 1 and chance.random() < 0.4
    checkpoint = Checkpoint("USR1", 60.0, 30.0)
    return task(f"lr-{number:02}", devices=devices, share=0.5 if half else 1.0, checkpoint=checkpoint)


def _due(site: Site, living: Collection[str], minutes: dict[str, int]) -> list[str]:
    """What has run for as long as it takes."""
    known = [(attempt, f"{attempt.task}.{attempt.number}") for attempt in site.ledger().open_attempts()]
    return [
        key
        for attempt, key in known
        if key in living and site.now - (attempt.start or site.now) >= 60 * minutes[attempt.task]
    ]
