"""Snapshots with a queue, for tests of what is shown of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from mirage.domain.job import ABSENT
from mirage.domain.jobtable import JobLabels
from mirage.domain.snapshot import JobColumns, PartitionState, Snapshot

NOW = 1_700_000_000
USERS = ("alice", "bob")


def columns(*rows: dict[str, Any]) -> JobColumns:
    """Each row names what differs from a plain job of alice's."""
    plain = {
        "user": 0,
        "partition": 0,
        "qos": 0,
        "nodes": 1,
        "limit": 3_600,
        "submit": NOW - 600,
        "eligible": NOW - 600,
        "start": ABSENT,
        "priority": 10,
        "series": 0,
    }
    return JobColumns(
        **{
            name: np.array([(plain | row)[name] for row in rows], dtype=np.int64)
            for name in JobColumns.__dataclass_fields__
        }
    )


def snapshot(pending: JobColumns, running: JobColumns, users: tuple[str, ...] = USERS) -> Snapshot:
    """Two partitions of 10 and 4 nodes; a third name is of jobs that go to either. Job 7 is called ``job-7``."""
    ids = np.concatenate([pending.job_id, running.job_id])
    labels = JobLabels.of_texts(ids, (f"job-{each}" for each in ids), (f"account-{each % 2}" for each in ids))
    parts = (PartitionState("batch", 10, 2, 7, 1), PartitionState("gpu", 4, 4, 0, 0))
    return Snapshot(NOW, pending, running, parts, users, ("batch", "gpu", "batch,gpu"), ("normal",), labels=labels)
