"""Stand-ins for Slurm's commands that answer immediately with a queue of any size, in our query format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mirage.slurm.queuetext import FIELDS
from mirage.slurm.rows import CELL

if TYPE_CHECKING:
    from pathlib import Path

    from mirage.domain.chain import ChainRecord

_MARK = "@MARK@"
_PARTITIONS = 20
_USERS = 400
_LIMITS = ("30:00", "4:00:00", "12:00:00", "1-00:00:00", "2-00:00:00")
_REASONS = ("Priority", "Resources", "Dependency", "QOSMaxJobsPerUserLimit", "BeginTime")
_SQUEUE = """#!/bin/sh
echo squeue >>{log}
mark=${{SQUEUE_FORMAT2##*Comment:}}
turn=$(($(grep -c squeue {log}) % 2))
exec sed "s/@MARK@/$mark/" {folder}/queue.$turn
"""
_SINFO = """#!/bin/sh
echo sinfo >>{log}
mark=${{SINFO_FORMAT##*%D}}
exec sed "s/@MARK@/$mark/" {folder}/nodes
"""
_SCONTROL = """#!/bin/sh
echo scontrol >>{log}
echo "ClusterName             = bench"
"""


@dataclass(frozen=True, slots=True)
class Size:
    """Numbers of jobs, nodes and chains of the cluster."""

    pending: int = 50_000
    running: int = 5_000
    nodes: int = 5_000
    chains: int = 500
    started: int = 200
    """Pending jobs that run in every other answer."""


def sized(pending: int, nodes: int, chains: int) -> Size:
    """A size as given, with a running job for each node."""
    return Size(pending, nodes, nodes, chains, max(1, pending // 250))


def install(folder: Path, size: Size, records: tuple[ChainRecord, ...], now: int, seed: int) -> None:
    """Write Slurm's commands into ``folder``, and what they answer; each call is noted in ``calls``."""
    for turn in range(2):
        rows = _queue(size, records, now, size.started * turn, np.random.default_rng(seed))
        (folder / f"queue.{turn}").write_text("".join(rows), encoding="utf-8")
    (folder / "nodes").write_text("".join(_nodes(size)), encoding="utf-8")
    for name, text in (("squeue", _SQUEUE), ("sinfo", _SINFO), ("scontrol", _SCONTROL)):
        program = folder / name
        program.write_text(text.format(log=folder / "calls", folder=folder), encoding="utf-8")
        program.chmod(0o755)


def calls(folder: Path) -> int:
    """Number of calls of any of the commands."""
    return len((folder / "calls").read_text(encoding="utf-8").splitlines())


def _row(*cells: object) -> str:
    return CELL.join(map(str, cells)) + _MARK + "\n"


def _queue(
    size: Size, records: tuple[ChainRecord, ...], now: int, started: int, rng: np.random.Generator
) -> list[str]:
    count = size.pending + size.running
    choices = zip(
        rng.integers(0, _USERS, count).tolist(),
        rng.integers(0, _PARTITIONS, count).tolist(),
        rng.integers(0, len(_LIMITS), count).tolist(),
        rng.integers(1, 65, count).tolist(),
        rng.integers(0, 3 * 86_400, count).tolist(),
        rng.integers(0, 2**31, count).tolist(),
        strict=True,
    )
    rows = [_row(*FIELDS)]
    for k, (user, partition, limit, nodes, age, priority) in enumerate(choices):
        runs = k < size.running + started
        begun = now if k >= size.running else now - min(age, 1_500)
        submit, start = now - age, begun if runs else "N/A"
        end = start + 43_200 if isinstance(start, int) else "N/A"
        state, reason = ("RUNNING", "None") if runs else ("PENDING", _REASONS[priority % len(_REASONS)])
        times = (submit, submit, start, end, _LIMITS[limit])
        on = f"c[{k + 1}-{k + nodes}]" if runs else ""
        where = (nodes, f"part{partition}", "normal", priority, 0, 0, "", on, _tres(nodes))
        who = (f"user{user}", f"group{user % 20}")
        rows.append(_row(1_000 + k, 1_000 + k, state, *who, *times, *where, reason, f"run-{k}", "(null)"))
    return rows + [_link_row(record) for record in records]


def _link_row(record: ChainRecord) -> str:
    link, chain = record.links[-1], record.chain
    times = (link.submit, link.submit, link.start, link.end, "2-00:00:00")
    where = (1, "part0", "normal", 1_000, 0, 0, "", "c1", _tres(1), "None", chain.name, link.tag)
    return _row(link.job_id, link.job_id, "RUNNING", chain.owner, "group0", *times, *where)


def _tres(nodes: int) -> str:
    return f"cpu={56 * nodes},mem={180 * nodes}G,node={nodes},billing={56 * nodes},gres/gpu={4 * nodes}"


def _nodes(size: Size) -> list[str]:
    each = size.nodes // _PARTITIONS
    parts = {"allocated": each // 2, "mixed": each // 4, "drained": 3, "down*": 2}
    rows = [_row("PARTITION", "STATE", "NODES")]
    for partition in range(_PARTITIONS):
        counts = parts | {"idle": each - sum(parts.values())}
        rows += [_row(f"part{partition}", state, nodes) for state, nodes in counts.items()]
    return rows
