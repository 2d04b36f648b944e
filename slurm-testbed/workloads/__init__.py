"""Workloads that are recorded on a real Slurm and replayed in the simulator, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workloads.day import day
from workloads.scenarios import scenarios
from workloads.slice import slice_of_ls6

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from recording.plan import Workload

WORKLOADS: Mapping[str, Callable[[int], Sequence[Workload]]] = {
    "day": lambda seed: (day(seed),),
    "ls6": lambda _: (slice_of_ls6(),),
    "scenarios": lambda _: scenarios(),
} | {each.name: lambda _, only=each: (only,) for each in scenarios()}
"""Workloads drawn from a seed where they are random; several run on one testbed."""
