"""A slice of a real log on the testbed: thirty hours of LS6 on half its nodes, four times as fast.

Submissions, run times, limits and who submits are the log's, all times divided by four; a job of N nodes asks for
N / 2, rounded up. What ran or waited when the slice begins is submitted at its first time, in order, with the
run time that was left.
"""

from __future__ import annotations

import gzip
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from recording.plan import PlannedJob, Workload

if TYPE_CHECKING:
    from collections.abc import Iterator

LOG = Path(__file__).resolve().parents[3] / "shared" / "traces" / "ls6-a100-to-2023-02.log.gz"
HOUR = 3_600
FIRST_H = 3_336
"""Hours after the log's first submission at which the slice begins: a contended weekday."""
SPAN_S = 30 * HOUR
NODES = 38
HALF = 2
FASTER = 4
COLUMNS = 10
LONGEST_MIN = 48 * 60
SHORTEST_S = 20
SHORTEST_MIN = 2
PEOPLE = ("alice", "bob", "carol", "dave", "erin", "frank", "grace", "heidi")
CONF = (
    "SchedulerParameters=bf_interval=30,sched_interval=60,batch_sched_delay=3,bf_window=2880,bf_resolution=60,"
    "bf_continue,bf_max_job_test=500,default_queue_depth=100,bf_max_time=3600,bf_yield_interval=10000000,"
    "max_sched_time=60,build_queue_timeout=120000000",
    "PriorityWeightFairshare=20000",
    "PriorityWeightAge=20000",
    "PriorityWeightJobSize=2000",
    "PriorityMaxAge=2-00:00:00",
    "PriorityDecayHalfLife=7-00:00:00",
    "PriorityCalcPeriod=00:05:00",
    "SlurmctldDebug=debug",
    "DebugFlags=Route,Hetjob",  # when the nodes of a job are free again; since 26.05, what backfill starts
)
ACCOUNTS = (
    "add account ls6 Fairshare=100 Description=ls6 Organization=testbed",
    *(f"add user {person} account=ls6 Fairshare=10" for person in PEOPLE),
)


@dataclass(frozen=True, slots=True)
class Line:
    """One job of the log; epoch seconds, minutes, nodes."""

    user: str
    start: int
    submit: int
    end: int
    limit: int
    nodes: int


def slice_of_ls6() -> Workload:
    """The workload. Raises ``FileNotFoundError`` where the published log is not next to the checkout."""
    lines = sorted(_lines(), key=lambda line: line.submit)
    begin = lines[0].submit + FIRST_H * HOUR
    owners: dict[str, str] = {}
    jobs = []
    for line in lines:
        alive = line.end > begin and line.submit < begin + SPAN_S
        if not alive or line.end <= line.start:
            continue
        owner = owners.setdefault(line.user, PEOPLE[len(owners) % len(PEOPLE)])
        jobs.append(_job(len(jobs), line, begin, owner))
    return Workload("ls6", f"a100={NODES}", tuple(jobs), (), CONF, ACCOUNTS)


def _job(number: int, line: Line, begin: int, owner: str) -> PlannedJob:
    ran = max(0, begin - line.start)
    return PlannedJob(
        f"l{number:04d}",
        max(0, line.submit - begin) // FASTER,
        owner,
        "a100",
        max(SHORTEST_MIN, min(line.limit - ran // 60, LONGEST_MIN) // FASTER),
        max(SHORTEST_S, (line.end - line.start - ran) // FASTER),
        "ls6",
        min(NODES, math.ceil(line.nodes / HALF)),
        64,
        exclusive=True,
    )


def _lines() -> Iterator[Line]:
    """The jobs of the log; its columns, between tabs: see the traces' README."""
    with gzip.open(LOG, "rt") as text:
        for row in text:
            cells = row.rstrip("\n").split("\t")
            if len(cells) == COLUMNS and cells[0].isdigit():
                start, submit, end = (_instant(cell) for cell in cells[3:6])
                yield Line(cells[2], start, submit, end, int(cells[7]), int(cells[9]))


def _instant(stamp: str) -> int:
    return int(time.mktime(time.strptime(stamp, "%Y-%m-%dT%H:%M:%S")))
