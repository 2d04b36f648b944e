"""The content of a recorded squeue, read by its heading: whatever fields the product requests now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.domain.job import ABSENT
from mirage.slurm.duration import parse_limit

if TYPE_CHECKING:
    from pathlib import Path

    from mirage.slurm.queuetext import Queue

CELL, MARK = "\x1f", "\x1e0123456789ab"
PENDING, RUNNING = ("PENDING",), ("RUNNING", "SUSPENDED", "COMPLETING")

Row = tuple[int, int, int, int]
"""Id, nodes, limit, submission."""


def recorded_squeue(file: Path) -> list[dict[str, str]]:
    heading, *rows = (row.lstrip("\n").split(CELL) for row in file.read_text().split(MARK) if row.strip())
    names = [f"{name}{heading[:k].count(name) or ''}" for k, name in enumerate(heading)]
    return [dict(zip(names, row, strict=True)) for row in rows]


def told(table: list[dict[str, str]], states: tuple[str, ...]) -> set[Row]:
    return {
        (int(row["JOBID"]), int(row["NODES"]), parse_limit(row["TIME_LIMIT"]), int(row["SUBMIT_TIME"]))
        for row in table
        if row["STATE"] in states
    }


def seen(queue: Queue, which: str) -> set[Row]:
    jobs = getattr(queue, which)
    columns = (column.tolist() for column in (jobs.job_id, jobs.nodes, jobs.limit, jobs.submit))
    return set(zip(*columns, strict=True))


def links_told(table: list[dict[str, str]]) -> dict[str, tuple[object, ...]]:
    """Those that have not ended."""

    def instant(text: str) -> int:
        return int(text) if text.isdecimal() and text != "0" else ABSENT

    return {
        row["COMMENT"]: (
            int(row["JOBID"]),
            row["NAME"],
            row["PARTITION"],
            row["STATE"],
            instant(row["START_TIME"]),
        )
        for row in table
        if row["COMMENT"].startswith("mirage:")
        and "\n" not in row["COMMENT"]
        and row["STATE"] in (*PENDING, *RUNNING)
    }


def links_seen(queue: Queue) -> dict[str, tuple[object, ...]]:
    """Those that have not ended."""
    return {
        job.tag: (job.job_id, job.name, job.partition, job.state.name, max(job.start, job.expected_start))
        for job in (found.job for found in queue.ours)
        if not job.state.finished
    }
