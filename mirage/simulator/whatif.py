"""What if: many simulations from one instant, run beside each other in threads (the kernel holds no GIL)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirage.domain.job import JobRequest
    from mirage.simulator.simulation import Simulation

Int64 = NDArray[np.int64]


def run_all(simulations: Sequence[Simulation], until: int, threads: int = 1) -> None:
    """Run every simulation up to ``until``; each must be its own copy."""
    if threads <= 1:
        for simulation in simulations:
            simulation.run_until(until)
        return
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda simulation: simulation.run_until(until), simulations))


def start_times(
    simulation: Simulation, request: JobRequest, runtime: int, submit_times: Int64, threads: int = 1
) -> Int64:
    """``Simulation.start_times`` with the submit times (ascending) shared out over threads.

    Each thread first runs its copy up to the earliest of its times.
    """
    parts = [
        part for part in np.array_split(np.asarray(submit_times, dtype=np.int64), max(threads, 1)) if len(part)
    ]
    with ThreadPoolExecutor(max(threads, 1)) as pool:
        found = pool.map(lambda part: simulation.copy().start_times(request, runtime, part), parts)
        return np.concatenate([np.empty(0, dtype=np.int64), *found])
