"""Resources that running jobs take of their nodes, in the output of every recorded version of Slurm."""

from __future__ import annotations

from typing import TYPE_CHECKING

from test_recorded_text import recorded

from mirage.domain.job import ABSENT, JobId
from mirage.slurm.tres import memory_mb

if TYPE_CHECKING:
    from test_recorded_text import Recordings

__all__ = ["recorded"]


def test_cpus_and_memory_of_running_jobs_are_scontrols(recorded: Recordings) -> None:
    queue, shown = recorded.queue(), recorded.shown()
    found = set()
    for row, job_id in enumerate(queue.labels.job_id.tolist()):
        told = shown[JobId(job_id)]
        if told["JobState"] != "RUNNING":
            continue
        assert queue.labels.cpus[row] == int(told["NumCPUs"]), told
        tres = dict(item.split("=") for item in told.get("AllocTRES", told.get("TRES", "")).split(","))
        assert queue.labels.memory_mb[row] == (memory_mb(tres["mem"]) if "mem" in tres else ABSENT), told
        found.add(int(told["NumCPUs"]))
    assert len(found) > 1
