"""Stand-ins for Slurm's commands that answer immediately with a queue of any size, in our query format."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from mirage.domain.job import ABSENT, Job, JobId, JobState
from mirage.slurm.queuetext import FIELDS
from mirage.slurm.rows import CELL

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from mirage.domain.chain import Chain, ChainRecord
    from mirage.domain.job import JobChange, JobRequest, SignalReach
    from mirage.domain.link import Link

_FIRST_JOB = 10_000_000
_SHOWN = 300
"""Seconds for which slurmctld shows a job after its end (``MinJobAge``)."""
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
_OWN_SQUEUE = """#!/bin/sh
mark=${{SQUEUE_FORMAT2##*Comment:}}
case "$*" in
*--user=*) echo own >>{log}; exec sed "s/@MARK@/$mark/" {folder}/links ;;
esac
echo squeue >>{log}
exec sed "s/@MARK@/$mark/" {folder}/links {folder}/queue
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


def install_hours(folder: Path, size: Size, hours: int, now: int, seed: int) -> None:
    """As ``install``, with a queue for each hour, ``queue.HOUR``; ``squeue`` prints ``links`` and ``queue``.

    With ``--user`` it prints ``links`` alone, as Slurm does.
    """
    install(folder, size, (), now, seed)
    for hour in range(hours):
        rows = _queue(size, (), now + 3_600 * hour, size.started * hour, np.random.default_rng(seed))
        (folder / f"queue.{hour}").write_text("".join(rows[1:]), encoding="utf-8")
    (folder / "squeue").write_text(_OWN_SQUEUE.format(log=folder / "calls", folder=folder), encoding="utf-8")


def write_links(folder: Path, jobs: Iterable[Job]) -> None:
    """What ``squeue`` prints of the links, ended ones too."""
    rows = [_row(*FIELDS), *map(_job_row, jobs)]
    (folder / "links").write_text("".join(rows), encoding="utf-8")


def calls(folder: Path) -> int:
    """Number of calls of any of the commands."""
    return len(calls_by_name(folder))


def calls_by_name(folder: Path) -> list[str]:
    """Each call in order: the command, or ``own`` for a ``squeue`` of one user."""
    return (folder / "calls").read_text(encoding="utf-8").splitlines()


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


def _job_row(job: Job) -> str:
    pending = job.state is JobState.PENDING
    start, end = ("N/A", "N/A") if pending else (job.start, job.end)
    times = (job.submit, job.submit, start, end, "2-00:00:00")
    on = (job.node_list, "") if pending else ("", job.node_list)
    where = (1, "part0", "normal", 1_000, 0, 0, *on, _tres(1), "Resources" if pending else "None")
    return _row(job.job_id, job.job_id, job.state.name, job.user, "group0", *times, *where, job.name, job.tag)


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


class OwnJobs:
    """The links of one user, on nodes of their own: actuator, clock, and what is known of the nodes, in one."""

    rate = 1.0

    def __init__(self, folder: Path, chains: tuple[ChainRecord, ...], now: int) -> None:
        self._folder, self._begin, self._time, self._hour = folder, now, now, ABSENT
        self.acts = 0
        links = [(record.chain, record.links[-1]) for record in chains]
        self._jobs = {link.job_id: _running_job(chain, link, f"c{k + 1}") for k, (chain, link) in enumerate(links)}

    def now(self) -> int:
        """Slurm's time."""
        return self._time

    def move_on(self, until: int) -> None:
        """Let links end and start until then, and have ``squeue`` show that."""
        self._time = until
        for job in sorted(self._jobs.values(), key=lambda job: job.submit):
            self._jobs[job.job_id] = self._brought_up(job)
        self._jobs = {
            number: job for number, job in self._jobs.items() if not job.state.finished or until - job.end < _SHOWN
        }
        write_links(self._folder, self._jobs.values())
        if (hour := (until - self._begin) // 3_600) != self._hour:
            self._hour = hour
            queue = self._folder / "queue"
            queue.unlink(missing_ok=True)
            queue.symlink_to(self._folder / f"queue.{hour}")

    def _brought_up(self, job: Job) -> Job:
        if job.state is JobState.RUNNING and job.end <= self._time:
            return replace(job, state=JobState.TIMEOUT)
        before = [other for other in self._jobs.values() if other.node_list == job.node_list and other != job]
        if job.state is JobState.PENDING and all(other.state.finished for other in before):
            start = max((other.end for other in before), default=self._time)
            return replace(job, state=JobState.RUNNING, start=start, end=start + job.limit)
        return job

    def submit(self, request: JobRequest) -> JobId:
        """Take the link; it starts once its nodes are free."""
        self.acts += 1
        job_id = JobId(_FIRST_JOB + self.acts)
        user, now, nodes = request.user, self._time, request.node_list
        self._jobs[job_id] = Job(
            job_id,
            request.name,
            user,
            "part0",
            1,
            request.limit,
            JobState.PENDING,
            now,
            tag=request.tag,
            node_list=nodes,
        )
        return job_id

    def cancel(self, job_id: JobId, owner: str) -> None:
        """No link is cancelled in that day."""
        raise AssertionError(f"cancel {job_id} of {owner}")

    def update(self, job_id: JobId, owner: str, change: JobChange) -> None:
        """No link is changed in that day."""
        raise AssertionError(f"update {job_id} of {owner}: {change}")

    def signal(self, job_id: JobId, owner: str, signal: str, *, reach: SignalReach) -> None:
        """No link is signalled in that day."""
        raise AssertionError(f"signal {job_id} of {owner}: {signal} {reach}")

    def estimate_start(self, request: JobRequest) -> int:
        """Slurm plans no start."""
        del request
        self.acts += 1
        return ABSENT

    def why_shared(self, job: Job, *, spreads: bool = False) -> str:
        """No node is shared."""
        del job, spreads
        self.acts += 1
        return ""


def _running_job(chain: Chain, link: Link, nodes: str) -> Job:
    return Job(
        link.job_id,
        chain.name,
        chain.owner,
        "part0",
        1,
        chain.request.limit,
        JobState.RUNNING,
        link.submit,
        link.start,
        link.end,
        tag=link.tag,
        node_list=nodes,
    )
