"""The data that a simulation keeps of the jobs submitted to it."""

from __future__ import annotations

import tracemalloc

from small_clusters import ask, cluster, simulate

from mirage.domain.job import BatchScript


def test_scripts_of_jobs_are_not_kept() -> None:
    """A demonstration's daemon simulates for months, and nothing is run."""
    sim = simulate(cluster(nodes=2))
    tracemalloc.start()
    try:
        jobs = [sim.submit(ask(batch=BatchScript(f"#{n}" + "x" * (1 << 20))), 600) for n in range(10)]
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 1 << 20
    assert {sim.job(job).partition for job in jobs} == {"main"}
