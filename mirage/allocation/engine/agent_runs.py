"""Agent runs: the identity of each, and whether an earlier one is still alive."""

from __future__ import annotations

import fcntl
import os
import re
import socket
import time
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from mirage.allocation.engine.entries import LifeBegan
from mirage.allocation.engine.step_supervisor import boot_id, start_ticks
from mirage.domain.errors import ClusterUnavailable, ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from mirage.allocation.engine.discovery import Allocation
    from mirage.allocation.engine.journal import StateFolder


class OpenRunState(StrEnum):
    """The state of an agent run without a last entry in its journal."""

    RUNS = "runs"
    """It, or a step of it, runs elsewhere and keeps its devices."""
    AGENT_DIED = "agent-died"
    """It ran in this job or on this machine: its steps may still run here."""
    GONE = "gone"
    """It has ended with all of its steps."""
    UNKNOWN = "unknown"


class Jobs(Protocol):
    """Knows whether jobs run."""

    def job_runs(self, job: int) -> bool:
        """Whether any part of it may still run. Raises ``ClusterUnavailable`` where that is not known."""


def begin(
    engine: str, source: Path, allocation: Allocation, environment: Mapping[str, str], now: float
) -> LifeBegan:
    """This process, as the journal records it. Names sort in the order of agent runs."""
    pid, link = os.getpid(), environment.get("MIRAGE_LINK", "")
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(now))
    host, job = socket.gethostname(), allocation.job
    name = f"{stamp}-{job or re.sub(r'[^A-Za-z0-9-]+', '-', host)}-{pid}"
    return LifeBegan(
        at=now,
        life=name,
        job=job,
        restarts=allocation.restarts,
        link=int(link) if link.isdecimal() else 0,
        host=host,
        pid=pid,
        ticks=start_ticks(pid),
        boot=boot_id(),
        engine=engine,
        source=str(source.absolute()),
    )


def standing_of(life: LifeBegan, own: LifeBegan, jobs: Jobs) -> OpenRunState:
    """State of an earlier agent run, as seen from this one."""
    if life.job and life.job != own.job:
        return _of_other_job(life.job, jobs)
    if life.job and life.restarts < own.restarts:
        return OpenRunState.GONE
    if life.host != own.host:
        return OpenRunState.RUNS if life.job else OpenRunState.UNKNOWN
    if life.boot != own.boot:
        return OpenRunState.GONE
    alive = start_ticks(life.pid) == life.ticks and life.ticks != 0
    return OpenRunState.RUNS if alive else OpenRunState.AGENT_DIED


def _of_other_job(job: int, jobs: Jobs) -> OpenRunState:
    try:
        return OpenRunState.RUNS if jobs.job_runs(job) else OpenRunState.GONE
    except ClusterUnavailable:
        return OpenRunState.UNKNOWN


class NoJobs:
    """The job states of a machine without Slurm."""

    def job_runs(self, job: int) -> bool:
        """Raises ``ClusterUnavailable``."""
        raise ClusterUnavailable(f"job {job}: state unknown, because this machine has no Slurm")


def lock(folder: StateFolder, life: LifeBegan) -> int:
    """Lock this directory for the only agent of this job, or of this machine, until the process ends.

    Raises ``ConfigError`` where another agent runs. Returns the descriptor that holds the lock.
    """
    path = folder.path / f"agent-{life.job or life.host}.lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        problem = "another `mirage allocation run` already runs these tasks here; see `mirage allocation status`"
        raise ConfigError(str(folder.path), problem) from None
    return descriptor
