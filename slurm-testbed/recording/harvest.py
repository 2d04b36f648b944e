"""Slurm's data about a workload that was run: accounting, configuration, and its log."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onehost.waiting import wait_until

if TYPE_CHECKING:
    from keepalive.surroundings import Surroundings

FIELDS = ("JobID", "JobIDRaw", "Submit", "Eligible", "Start", "End", "State", "NodeList", "ElapsedRaw", "Priority")
ASSOCIATIONS = "Cluster,Account,User,ParentName,Share,Priority,GrpJobs,GrpTRES,GrpSubmit,MaxJobs,MaxSubmit,MaxWall"
NEVER = ("DependencyNeverSatisfied",)
OVER_TIMEOUT_S = 7_200.0
"""Real seconds until the last job of a workload must have ended."""
_LINE = re.compile(r"^\[(\S+)\] (.*)$")
_PERIODS = "MULTIFACTOR plugin loaded"
_SUBMITTED = re.compile(r"_slurm_rpc_submit_batch_job: JobId=(\d+) ")
_ENDED = re.compile(r"_job_complete: JobId=(\d+) done|Time limit exhausted for JobId=(\d+)")
_FREED = re.compile(r"_slurm_rpc_epilog_complete: node_name = (\S+), JobId=(\d+)")
_STARTS = (
    (re.compile(r"sched: Allocate JobId=(?:\d+_\d+\()?(\d+)"), "main"),
    (re.compile(r"Started JobId=(?:\d+_\d+\()?(\d+)"), "backfill"),
)
_PASSES = (
    (re.compile(r"Running job scheduler for full queue"), "full"),
    (re.compile(r"Running job scheduler for default depth"), "main"),
    (re.compile(r"\d+ jobs to backfill"), "backfill"),
)


def wait_for_last(around: Surroundings) -> None:
    """Return when no job is left in the queue; jobs that can never start are cancelled."""
    wait_until(lambda: not _may_start(around), OVER_TIMEOUT_S, "the workload's last job")
    for owner in _owners(around):
        around.run("root", ["scancel", f"--user={owner}"])
    wait_until(lambda: not _owners(around), OVER_TIMEOUT_S, "the end of what is cancelled")


def _may_start(around: Surroundings) -> list[str]:
    reasons = around.run("root", ["squeue", "-h", "-r", "-o", "%r"]).splitlines()
    return [reason for reason in reasons if reason not in NEVER]


def _owners(around: Surroundings) -> list[str]:
    return sorted(set(around.run("root", ["squeue", "-h", "-o", "%u"]).split()))


def accounting(around: Surroundings) -> list[dict[str, str]]:
    """One row per job, all times as epoch seconds."""
    argv = ["sacct", "-a", "-X", "-n", "-P", "-D", "-S", "2020-01-01", "-o", ",".join(FIELDS)]
    text = around.run("root", argv, fast=True, more={"SLURM_TIME_FORMAT": "%s"})
    return [dict(zip(FIELDS, line.split("|"), strict=True)) for line in text.splitlines()]


def configuration(around: Surroundings) -> dict[str, str]:
    """The files that the simulator reads, by name."""
    etc = Path(around.conf).parent
    files = {name: (etc / name).read_text() for name in ("slurm.conf", "gres.conf")}
    shown = ["sacctmgr", "-P", "show"]
    files["assoc.txt"] = around.run("root", [*shown, "assoc", f"format={ASSOCIATIONS}"])
    files["qos.txt"] = around.run("root", [*shown, "qos"])
    return files


@dataclass(slots=True)
class Log:
    """Parsed content of slurmctld's log."""

    boot: int = 0
    """Start of its priority periods: priority/multifactor starts a thread about a real second after BOOT_TIME."""
    passes: list[list[Any]] = field(default_factory=list)
    """Time and kind of each scheduling pass."""
    started: dict[str, str] = field(default_factory=dict)
    """The scheduler that started a job, by job id."""
    submitted: dict[str, float] = field(default_factory=dict)
    """When a job entered the queue, by job id; an array's time is that of all its tasks."""
    ended: dict[str, float] = field(default_factory=dict)
    freed: dict[str, dict[str, float]] = field(default_factory=dict)
    """When each of a job's nodes was free again, with ``DebugFlags=Route``."""


def log_of(around: Surroundings) -> Log:
    """The current log of the testbed's slurmctld."""
    return read_log(Path(around.conf).parent.parent / "log" / "slurmctld.log")


def read_log(path: Path) -> Log:
    """Read slurmctld's log, written with ``SlurmctldDebug=debug``."""
    told = Log()
    with path.open(errors="replace") as lines:
        for found in filter(None, map(_LINE.match, lines)):
            stamp, text = found.groups()
            if _PERIODS in text:
                told.boot = int(_instant(stamp))
            told.passes += [[_instant(stamp), kind] for pattern, kind in _PASSES if pattern.search(text)]
            told.started |= {match[1]: kind for pattern, kind in _STARTS if (match := pattern.search(text))}
            if match := _SUBMITTED.search(text):
                told.submitted[match[1]] = _instant(stamp)
            elif match := _ENDED.search(text):
                told.ended[match[1] or match[2]] = _instant(stamp)
            elif match := _FREED.search(text):
                told.freed.setdefault(match[2], {})[match[1]] = _instant(stamp)
    return told


def _instant(stamp: str) -> float:
    whole, _, part = stamp.partition(".")
    return time.mktime(time.strptime(whole, "%Y-%m-%dT%H:%M:%S")) + float("0." + (part or "0"))
