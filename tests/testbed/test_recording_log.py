"""The parts of slurmctld's log that a recording takes, in the words of two releases."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from slurm_testbed import PROGRAM

sys.path.insert(0, str(PROGRAM.parent))

from recording.harvest import read_log

if TYPE_CHECKING:
    from pathlib import Path

OLDER = """\
[2026-11-23T08:55:04.062] Time limit exhausted for JobId=215
[2026-11-23T08:55:04.939] debug:  sched/backfill: _attempt_backfill: beginning
[2026-11-23T08:55:04.951] debug:  sched/backfill: _attempt_backfill: 8 jobs to backfill
[2026-11-23T08:55:04.999] sched/backfill: _start_job: Started JobId=209 in v100 on v100-[006-008]
[2026-11-23T08:55:05.314] ROUTE: _slurm_rpc_epilog_complete: node_name = a100-002, JobId=215
[2026-11-23T08:55:05.322] debug:  sched: Running job scheduler for default depth.
[2026-11-23T08:55:05.404] sched: Allocate JobId=236 NodeList=a100-001 #CPUs=32 Partition=debug
[2026-11-23T08:55:06.100] ROUTE: _slurm_rpc_epilog_complete: node_name = a100-003, JobId=215
[2026-11-23T08:55:07.500] _job_complete: JobId=236 done
"""
NEWER = OLDER.replace("JobId=215\n", "JobId=215 SLUID=s6SHM83Q2CD700\n").replace(
    "_start_job: Started", "_start_job: HETJOB: Started"
)


@pytest.mark.parametrize("text", [OLDER, NEWER], ids=["24.11", "26.05"])
def test_ends_starts_and_free_nodes_are_found(tmp_path: Path, text: str) -> None:
    (tmp_path / "slurmctld.log").write_text(text)
    told = read_log(tmp_path / "slurmctld.log")
    assert told.started == {"209": "backfill", "236": "main"}
    assert [kind for _, kind in told.passes] == ["backfill", "main"]
    ended, freed = told.ended["215"], told.freed["215"]
    assert {node: round(time - ended, 3) for node, time in freed.items()} == {"a100-002": 1.252, "a100-003": 2.038}
    assert round(told.ended["236"] - ended, 3) == 3.438
