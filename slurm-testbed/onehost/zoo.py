"""Jobs of every kind that a parser may meet, brought to the state in which they are recorded."""

from __future__ import annotations

import shlex
import subprocess
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from onehost import services
from onehost.daemons import environment
from onehost.errors import TestbedError
from onehost.people import person
from onehost.programs import need
from onehost.slurmcommands import slurm
from onehost.waiting import wait_until

if TYPE_CHECKING:
    from onehost.layout import Layout
    from onehost.settings import Settings

NODES = "cpu=7,v100=2,a100=3,npu=2"
LOST_NODE, SILENT_NODE, RESERVED_NODE = "cpu-006", "cpu-005", "cpu-007"
STATE_TIMEOUT_S = 120.0
WORK = "sleep 20h"


@dataclass(frozen=True, slots=True)
class Wanted:
    """A job: ``state`` and ``reason`` are those that squeue must show before the recording."""

    name: str
    options: str
    state: str = "PENDING"
    reason: str = ""
    """Any reason where empty."""
    user: str = "alice"
    command: str = WORK
    extra: tuple[str, ...] = ()
    """Options that are not split at spaces."""


ENDED = (
    Wanted("completed", "-p cpu -N2 -t 60", "COMPLETED", command="srun sleep 2m"),
    Wanted("failed", "-p cpu -t 60", "FAILED", command="exit 3"),
    Wanted("killed-by-signal", "-p cpu -t 60", "FAILED", command="kill -9 $$"),
    Wanted("timeout", "-p cpu -t 1", "TIMEOUT", user="bob"),
    Wanted("array-completed", "-p cpu -t 60 --array=0-3", "COMPLETED", command="true"),
    Wanted("array-mixed", "-p cpu -t 60 --array=1,2", "", command="test $SLURM_ARRAY_TASK_ID = 1"),
    Wanted("gpu-completed", "-p v100 -N2 --gres=gpu:v100:4 -t 60", "COMPLETED", user="bob", command="sleep 5m"),
    Wanted("het-completed", "", "COMPLETED"),
)
TO_CANCEL = (
    Wanted("cancelled-running", "-p cpu -t 600", "RUNNING", user="carol"),
    Wanted("cancelled-pending", "-p cpu -H -t 60", "PENDING", user="carol"),
)
ON_LOST_NODE = (
    Wanted("node-fail", f"-p cpu -w {LOST_NODE} --no-requeue -n1 -t 600", "RUNNING", user="bob"),
    Wanted("requeued", f"-p cpu -w {LOST_NODE} --requeue -n1 -t 600", "RUNNING"),
)
TOO_LATE = (Wanted("deadline", f"-p cpu -w {LOST_NODE} --exclusive -t 1 --deadline=now+3minutes", "DEADLINE"),)
RUNNING = (
    Wanted("running", "-p cpu -N1 -n4 -t 1-12 -w cpu-001", "RUNNING", command=f"srun -n2 {WORK}"),
    Wanted("running-whole-node", "-p cpu --exclusive -w cpu-002 -t 1500", "RUNNING", user="bob"),
    Wanted("running-gpus", "-p v100 -N2 --exclusive --gres=gpu:v100:4 -t 2-0", "RUNNING", user="bob"),
    Wanted("running-gpus-total", "-p a100 --gpus=3 -t 1-0", "RUNNING"),
    Wanted("running-gpus-per-node", "-p a100 -N1 --gpus-per-node=a100:1 -w a100-002 -t 1-0", "RUNNING"),
    Wanted("running-gpus-per-task", "-p a100 -n2 -N1 --gpus-per-task=1 -t 1-0", "RUNNING"),
    Wanted("running-untyped-gpus", "-p a100 -N1 --gres=gpu:2 -t 1-0", "RUNNING", user="bob"),
    Wanted("running-npus", "-p npu -N2 --gres=npu:ascend:8 -t 1-0", "RUNNING", user="carol"),
    Wanted("running-unlimited", "-p endless -w cpu-003 -n1 -t UNLIMITED", "RUNNING"),
    Wanted("running-default-limit", "-p cpu -w cpu-003 -n1 --mem=1G", "RUNNING", command="sleep 50m"),
    Wanted("running-link", "-p cpu -w cpu-003 -n1 -t 2-0", "RUNNING", extra=("--comment=mirage:abc:1",)),
    Wanted("running-reservation", "-p cpu -n1 -t 600 --reservation=today", "RUNNING"),
    Wanted("running-array", "-p cpu -w cpu-004 -n1 -t 1-0 --array=1-9:2%2", "RUNNING"),
    Wanted("suspended", "-p cpu -w cpu-004 -n1 -t 1-0", "RUNNING"),
    Wanted("running-het", "", "RUNNING"),
    Wanted("completing", f"-p cpu -w {SILENT_NODE} -n1 -t 1-0", "RUNNING"),
    Wanted("limited-running", "-p cpu -A limited -n1 -w cpu-001 -t 60", "RUNNING", command="sleep 59m"),
)
PENDING = (
    Wanted("resources", "-p v100 -N2 --gres=gpu:v100:4 -t 2-0", reason="Resources", user="carol"),
    Wanted("priority", "-p v100 -N1 --gres=gpu:v100:1 -t 1-0 --nice=500", reason="Priority", user="bob"),
    Wanted("dependency", "-p cpu -t 60 --dependency=afterany:{running}", reason="Dependency"),
    Wanted(
        "dependencies", "-p cpu -t 60 --dependency=afterok:{running}:{running-npus},singleton", reason="Dependency"
    ),
    Wanted("dependency-never", "-p cpu -t 60 --dependency=afterok:{failed}", reason="DependencyNeverSatisfied"),
    Wanted("singleton", "-p cpu -t 60 --dependency=singleton -J running", reason="Dependency"),
    Wanted("begin-time", "-p cpu -t 60 --begin=now+30days", reason="BeginTime"),
    Wanted("held-by-user", "-p cpu -t 60 -H", reason="JobHeldUser"),
    Wanted("held-link", "-p a100 -N2 --gres=gpu:a100:2 -t 2-0 -H --nice=100", extra=("--comment=mirage:abc:2",)),
    Wanted("held-by-admin", "-p cpu -t 60 -H", user="bob"),
    Wanted("limit-jobs", "-p cpu -A limited -t 60", reason="AssocMaxJobsLimit"),
    Wanted("limit-nodes", "-p cpu -A limited -N3 -t 60", reason="AssocGrpNodeLimit", user="bob"),
    Wanted("node-not-available", f"-p cpu -w {LOST_NODE} -t 60", user="carol"),
    Wanted("reservation", "-p cpu -t 60 --reservation=tomorrow", reason="Reservation"),
    Wanted("partition-down", "-p closed -t 60", reason="PartitionDown"),
    Wanted("two-partitions", "-p v100,a100 -N2 --exclusive -t 1-0"),
    Wanted("node-range", "-p v100 -N1-2 --gpus-per-node=v100:4 --time-min=60 -t 2-0", user="carol"),
    Wanted("constraint", "-p a100 -C a100&nvlink -x a100-002 --mem-per-cpu=2G -c8 --gpus=4 -t 90", user="carol"),
    Wanted("deadline-ahead", "-p v100 -N2 --exclusive -t 60 --deadline=now+20days", user="bob"),
    Wanted("array-pending", "-p v100 -N2 --exclusive -t 60 --array=0-99%5", user="bob"),
    Wanted(
        "name-with-marks", "-p v100 -N2 --exclusive -t 60", extra=("-J", "a b|c;d,e=f\\\"'", "--comment=x | y; z")
    ),
    Wanted("name-unicode", "-p v100 -N2 --exclusive -t 60", extra=("-J", "größe→日本 🚀", "--comment=naïve | ok")),
    Wanted(
        "name-with-newline",
        "-p v100 -N2 --exclusive -t 60",
        extra=("-J", "two\nlines", "--comment=mirage:no\n9|1"),
    ),
    Wanted("name-empty", "-p v100 -N2 --exclusive -t 60", extra=("-J", "", "--comment=")),
    Wanted("name-long", "-p v100 -N2 --exclusive -t 60", extra=("-J", "n" * 200, "--comment=" + "c" * 300)),
)
HET_SCRIPT = """#!/bin/bash
#SBATCH -p cpu -n1 -t {limit}
#SBATCH hetjob
#SBATCH -p a100 -n1 --gres=gpu:a100:1 -t {limit}
{command}
"""


class Zoo:
    """The jobs by name; built on a fresh testbed by ``populate``."""

    def __init__(self, settings: Settings, layout: Layout) -> None:
        self.settings, self.layout = settings, layout
        self.jobs: dict[str, str] = {}
        self.wanted: dict[str, Wanted] = {}

    def populate(self) -> None:
        """Bring every job to its state. The order matters: later jobs depend on earlier ones."""
        # 1. Partitions and reservations that some jobs need.
        slurm(
            self.layout,
            "scontrol",
            "create",
            *shlex.split("PartitionName=endless Nodes=cpu-[001-004] MaxTime=UNLIMITED"),
        )
        slurm(
            self.layout, "scontrol", "create", *shlex.split("PartitionName=closed Nodes=cpu-[001-004] State=DOWN")
        )
        self.reserve("today", "now", "1-0", f"Nodes={RESERVED_NODE} Users=alice")
        self.reserve("tomorrow", "now+2days", "2:00:00", f"Nodes={RESERVED_NODE} Accounts=research")
        # 2. Jobs that have ended.
        self.submit_all(ENDED + TO_CANCEL + ON_LOST_NODE + TOO_LATE)
        self.await_all(ENDED + TO_CANCEL + ON_LOST_NODE + TOO_LATE)
        for wanted in TO_CANCEL:
            slurm(self.layout, "scancel", self.jobs[wanted.name])
        services.act_on_node(LOST_NODE, "down", self.settings, self.layout)
        # 3. Jobs that run, and jobs that wait for them.
        self.submit_all(RUNNING)
        self.await_all(RUNNING)
        slurm(self.layout, "scontrol", "suspend", self.jobs["suspended"])
        self.submit_all(PENDING)
        slurm(self.layout, "scontrol", "hold", self.jobs["held-by-admin"])
        # 4. Short-lived states: a node that does not answer keeps its job completing.
        services.act(f"slurmd@{SILENT_NODE}", "pause", self.settings, self.layout)
        slurm(self.layout, "scancel", self.jobs["completing"])
        self.await_all(PENDING)

    def reserve(self, name: str, start: str, duration: str, what: str) -> None:
        """An advance reservation."""
        fixed = f"ReservationName={name} StartTime={start} Duration={duration}"
        slurm(self.layout, "scontrol", "create", "reservation", *fixed.split(), *what.split())

    def submit_all(self, wanted: tuple[Wanted, ...]) -> None:
        """Submit jobs in the given order."""
        for job in wanted:
            self.jobs[job.name] = self.submit(job)

    def submit(self, job: Wanted) -> str:
        """Submit one job as its user; returns the job id."""
        user = person(job.user)
        het = job.name.endswith("het") or job.name.startswith("het")
        limit, command = (60, "sleep 1m") if job.name.startswith("het") else (1440, WORK)
        script = HET_SCRIPT.format(limit=limit, command=command) if het else f"#!/bin/bash\n{job.command}\n"
        options = shlex.split(job.options.replace("{", "{0[").replace("}", "]}").format(self.jobs))
        done = subprocess.run(
            [need("sbatch"), "--parsable", "-J", job.name, "-o", "/dev/null", *options, *job.extra],
            input=script,
            env={**environment(self.layout), "HOME": str(user.home), "USER": user.name},
            cwd=user.home,
            capture_output=True,
            text=True,
            check=False,
            **user.identity(),
        )
        if done.returncode:
            raise RuntimeError(f"{job.name}: {done.stderr}")
        return done.stdout.strip()

    def await_all(self, wanted: tuple[Wanted, ...]) -> None:
        """Wait until squeue shows each job as it must."""
        for job in wanted:
            try:
                wait_until(partial(self.is_there, job), STATE_TIMEOUT_S, f"job {job.name}")
            except TestbedError as error:
                raise TestbedError(f"{error} to be {job.state} {job.reason}; it is {self.seen(job)}") from error

    def is_there(self, job: Wanted) -> bool:
        """Whether each record of the job has its state and reason; for an array, whether any has."""
        seen = self.seen(job)
        fits = [
            (not job.state or state == job.state) and (not job.reason or reason == job.reason)
            for state, reason in seen
        ]
        return any(fits) if "array" in job.name else bool(fits) and all(fits)

    def seen(self, job: Wanted) -> list[tuple[str, str]]:
        """State and reason, as squeue shows them now."""
        text = slurm(self.layout, "squeue", "-h", "-a", "-t", "all", "-j", self.jobs[job.name], "-o", "%T %r")
        return [(state, reason) for state, _, reason in (line.partition(" ") for line in text.splitlines())]
