"""Run a workload on a running testbed, each step at its time of Slurm's clock."""

from __future__ import annotations

import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from keepalive.surroundings import Surroundings
    from recording.plan import Change, PlannedJob, Workload

SCONTROL = {"hold": "uhold", "release": "release"}
LEAD = 90
"""Slurm's seconds from now to a workload's first time."""


@dataclass(slots=True)
class Played:
    """The submissions of a run: time and job id."""

    begin: int
    """Slurm's time of the workload's time 0."""
    ids: dict[str, int] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    """Slurm's error messages by job or change, such as a job that ended before it was to be held."""
    changes: list[dict[str, Any]] = field(default_factory=list)
    lags: list[float] = field(default_factory=list)
    """Delay of each step, in Slurm's seconds."""


class Player:
    """One workload on one testbed."""

    def __init__(self, around: Surroundings, workload: Workload) -> None:
        self._around, self._workload = around, workload
        self._played = Played(int(around.now()) + LEAD)

    def play(self, say: Callable[[str], None]) -> Played:
        """Run all steps and return after the last one; jobs continue."""
        steps = self._steps()
        for count, (at, act) in enumerate(steps):
            instant = self._played.begin + at
            time.sleep(max(0.0, (instant - self._around.now()) / self._around.rate))
            act()
            self._played.lags.append(self._around.now() - instant)
            if count % 50 == 49:
                lag = self._played.lags[-1]
                say(f"{count + 1} of {len(steps)} steps, {at / 3600:.1f} h, late by {lag:.1f} s")
        return self._played

    def _steps(self) -> list[tuple[int, Callable[[], None]]]:
        steps = [(job.at, lambda job=job: self._submit(job)) for job in self._workload.jobs]
        steps += [(change.at, lambda change=change: self._change(change)) for change in self._workload.changes]
        return sorted(steps, key=lambda step: step[0])

    def _submit(self, job: PlannedJob) -> None:
        script = f"#!/bin/sh\nexec sleep {job.runtime}\n"
        argv = ["sbatch", "--parsable", f"--uid={job.user}", *self._options(job)]
        try:
            answer = self._around.run("root", argv, script)
        except subprocess.CalledProcessError as refused:
            self._played.refused[job.name] = refused.stderr.strip()
            return
        self._played.ids[job.name] = int(answer.split(";")[0])

    def _options(self, job: PlannedJob) -> Iterator[str]:
        yield from ("-D", "/", "-o", "/dev/null", "--export=NONE", f"-J{job.job_name or job.name}")
        yield from (f"-p{job.partition}", f"-N{job.nodes}", f"-t{job.limit}")
        yield from ("--ntasks-per-node=1", f"-c{job.cpus}")
        named = {"-A": job.account, "--gres=": job.gres, "-C": job.features, "-w": job.node_list}
        named["--reservation="] = job.reservation
        yield from (f"{option}{value}" for option, value in named.items() if value)
        if job.exclusive:
            yield "--exclusive"
        if job.held:
            yield "-H"
        if job.nice:
            yield f"--nice={job.nice}"
        if job.begin:
            yield f"--begin={_stamp(self._played.begin + job.begin)}"
        if job.array:
            yield f"--array=0-{job.array - 1}" + (f"%{job.most_at_once}" if job.most_at_once else "")
        if job.depends_on:
            yield f"--dependency={job.dependency}:{self._played.ids[job.depends_on]}"
        elif job.singleton:
            yield "--dependency=singleton"

    def _change(self, change: Change) -> None:
        job = self._played.ids.get(change.job, 0)
        if change.kind == "hold" and not self._is_pending(job):
            self._played.refused[f"hold {change.job}"] = "is no longer pending"
            return
        try:
            self._around.run("root", self._argv(change, str(job)))
        except subprocess.CalledProcessError as refused:
            self._played.refused[f"{change.kind} {change.job}"] = refused.stderr.strip()
            return
        done = {"time": int(self._around.now()), "kind": change.kind, "job": job, "value": change.value}
        if change.kind == "reserve":
            done["value"] = self._absolute(change.value)
        self._played.changes.append(done)

    def _is_pending(self, job: int) -> bool:
        """Slurm accepts a hold of a running job, but accounting then loses the job."""
        return bool(self._around.run("root", ["squeue", "-h", "-t", "PD", "-j", str(job), "-o", "%A"]).strip())

    def _argv(self, change: Change, job: str) -> list[str]:
        match change.kind:
            case "hold" | "release":
                return ["scontrol", SCONTROL[change.kind], job]
            case "nice":
                return ["scontrol", "update", f"jobid={job}", f"nice={change.value}"]
            case "cancel":
                return ["scancel", job]
            case "reserve":
                name, start, end, nodes = self._absolute(change.value).split(",", 3)
                words = [f"reservationname={name}", f"starttime={_stamp(int(start))}", f"nodes={nodes}"]
                return ["scontrol", "create", *words, f"endtime={_stamp(int(end))}", "users=root"]
            case "down" | "drain" | "resume":
                return ["scontrol", "update", f"nodename={change.value}", f"state={change.kind}", "reason=planned"]
        raise ValueError(f"{change.kind}: no such change")

    def _absolute(self, value: str) -> str:
        name, start, end, nodes = value.split(",", 3)
        return f"{name},{self._played.begin + int(start)},{self._played.begin + int(end)},{nodes}"


class Watcher:
    """Polls the queue periodically while a workload runs."""

    def __init__(self, around: Surroundings, every: int) -> None:
        """``every``: poll interval, in Slurm's seconds."""
        self._around, self._every, self._over = around, every, False
        self._pool = ThreadPoolExecutor(1)
        self.looks: list[dict[str, Any]] = []
        """``time`` and ``pending``: id, priority, reason."""

    def __enter__(self) -> Watcher:
        self._done = self._pool.submit(self._watch)
        return self

    def __exit__(self, *_: object) -> None:
        self._over = True
        self._done.result()

    def _watch(self) -> None:
        due = self._around.now()
        while not self._over:
            due += self._every
            time.sleep(max(0.0, (due - self._around.now()) / self._around.rate))
            self.looks.append(self._look())

    def _look(self) -> dict[str, Any]:
        before = self._around.now()
        text = self._around.run("root", ["squeue", "-h", "-r", "-t", "PD", "-o", "%A|%Q|%r"])
        rows = [line.split("|") for line in text.splitlines()]
        pending = [[int(job), int(priority), reason] for job, priority, reason in rows]
        return {"time": int((before + self._around.now()) / 2), "pending": pending}


def _stamp(instant: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(instant))
