"""A log through AccaSim: run by the interpreter that has it, ``accasim_easy.py DISPATCHER LOG PROCESSORS OUT``.

Each CPU is a node with one core. ``own`` is AccaSim's EASY with its first-fit allocator; ``textbook`` plans
again at each time and protects the reservation, by the rules of ``mirage.simulator.kernel.pool``.
"""

from __future__ import annotations

import collections
import collections.abc
import json
import sys
from pathlib import Path
from typing import Any

# ruff: noqa: E402 - AccaSim imports this name from where Python kept it until 3.9.
collections.Mapping = collections.abc.Mapping  # type: ignore[attr-defined]

from accasim.base.allocator_class import FirstFit
from accasim.base.scheduler_class import EASYBackfilling, SchedulerBase
from accasim.base.simulator_class import Simulator

Decision = tuple[int | None, str, list[str]]
_LINE = {"format": "{job},{start}", "attributes": {"job": ("id", "str"), "start": ("start_time", "int")}}


class TextbookEasy(SchedulerBase):  # type: ignore[misc]
    """Lifka, "The ANL/IBM SP scheduling system", JSSPP 1995; Mu'alem & Feitelson, TPDS 2001."""

    name = "textbook"

    def get_id(self) -> str:
        """The name that AccaSim prints for this scheduler."""
        return self.name

    def scheduling_method(
        self, cur_time: int, jobs: list[Any], es_dict: dict[str, Any]
    ) -> tuple[list[Decision], list[str]]:
        """Start from the head while jobs fit; then what ends by the head's start, or takes only what it leaves."""
        free = [node for node, has in self.resource_manager.current_availability.items() if has["core"]]
        ends = [
            (es_dict[job].start_time + es_dict[job].expected_duration, len(nodes))
            for job, nodes in self.resource_manager.current_allocations.items()
        ]
        decisions: list[Decision] = []
        shadow, extra, blocked = 0, 0, False
        for job in jobs:
            width, end = job.requested_nodes, cur_time + job.expected_duration
            if not blocked and width > len(free):
                (shadow, extra), blocked = _reservation(ends, len(free), width), True
            beyond = blocked and end > shadow
            if width > len(free) or (beyond and width > extra):
                decisions.append((None, job.id, []))
                continue
            extra -= width if beyond else 0
            decisions.append((cur_time, job.id, free[:width]))
            del free[:width]
            ends.append((end, width))
        return decisions, []


def _reservation(ends: list[tuple[int, int]], free: int, width: int) -> tuple[int, int]:
    """When ``width`` nodes are free by the requests, and how many of those free then are left over."""
    for shadow in sorted({end for end, _ in ends}):
        available = free + sum(nodes for end, nodes in ends if end <= shadow)
        if available >= width:
            return shadow, available - width
    raise AssertionError("the workload has no job wider than the pool")


def main(dispatcher: str, log: str, processors: str, out: str) -> None:
    """Run, and write a CSV of job and start."""
    folder, system = Path(out).parent, Path(out).with_suffix(".json")
    groups = {"groups": {"node": {"core": 1}}, "resources": {"node": int(processors)}}
    system.write_text(json.dumps({**groups, "equivalence": {"processor": {"core": 1}}, "start_time": 0}))
    chosen = TextbookEasy(0) if dispatcher == "textbook" else EASYBackfilling(FirstFit())
    written = Simulator(
        log, str(system), chosen, statistics_output=False, RESULTS_FOLDER_PATH=str(folder), SCHEDULE_OUTPUT=_LINE
    ).start_simulation()
    Path(out).write_text("job_id,start\n" + Path(written["sched-"]).read_text())


if __name__ == "__main__":
    main(*sys.argv[1:])
