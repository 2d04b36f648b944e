"""A contended day: several users in three accounts on three kinds of nodes, more work than they hold.

Every job is drawn, with the seed, from the mixture below; no parameter is fitted to Slurm or the simulator.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from recording.plan import Change, PlannedJob, Workload

HOUR = 3_600
ARRIVALS_S = 18 * HOUR
"""Seconds in which jobs arrive; the rest of the day drains the queue."""
JOBS = 620
LOAD = 1.02
"""Arriving work, divided by what the nodes can do in that time."""
NODES = {"cpu": 14, "v100": 12, "a100": 14}
CPUS = {"cpu": 64, "v100": 40, "a100": 64}
GPUS = 4
LIMITS = (20, 30, 45, 60, 90, 120, 150, 180, 240, 300, 360, 480)
LIMIT_ODDS = (8, 12, 8, 16, 8, 14, 6, 8, 8, 4, 5, 3)
CONF = (
    "SchedulerParameters=bf_interval=30,sched_interval=60,batch_sched_delay=3,bf_window=1440,bf_resolution=60,"
    "bf_continue,bf_max_job_test=500,default_queue_depth=100,bf_max_time=3600,bf_yield_interval=10000000,"
    "max_sched_time=60,build_queue_timeout=120000000",
    "PriorityWeightFairshare=20000",
    "PriorityWeightAge=20000",
    "PriorityWeightJobSize=2000",
    "PriorityWeightPartition=1000",
    "PriorityMaxAge=1-00:00:00",
    "PriorityDecayHalfLife=2-00:00:00",
    "PriorityCalcPeriod=00:05:00",
    "SlurmctldDebug=debug",
    "DebugFlags=Route,Hetjob",  # when the nodes of a job are free again; since 26.05, what backfill starts
)
ACCOUNTS = (
    "add account projects Fairshare=70 Description=projects Organization=testbed",
    "add user dave account=research Fairshare=20",
    "add user erin account=teaching Fairshare=5 MaxJobs=8",
    "add user frank account=projects Fairshare=10",
    "modify account teaching set GrpTRES=gres/gpu=40",
    "modify user bob where account=research set MaxJobs=20",
)


@dataclass(frozen=True, slots=True)
class Person:
    """A user: its share of the jobs, and its partitions."""

    name: str
    account: str
    share: float
    partitions: tuple[tuple[str, float], ...]


PEOPLE = (
    Person("alice", "research", 0.26, (("cpu", 3), ("a100", 5), ("debug", 1))),
    Person("bob", "research", 0.20, (("cpu", 6), ("v100", 4))),
    Person("dave", "research", 0.12, (("v100", 5), ("a100", 5))),
    Person("carol", "teaching", 0.14, (("cpu", 5), ("v100", 4), ("debug", 2))),
    Person("erin", "teaching", 0.12, (("v100", 6), ("a100", 3), ("debug", 1))),
    Person("frank", "projects", 0.16, (("cpu", 4), ("a100", 6))),
)


def day(seed: int) -> Workload:
    """The workload; the same seed gives the same one."""
    dice = random.Random(seed)  # noqa: S311 - a workload, no secret
    instants = sorted(dice.uniform(0, ARRIVALS_S) for _ in range(JOBS))
    jobs = [_job(dice, number, int(at)) for number, at in enumerate(instants)]
    jobs = _loaded(jobs)
    jobs = _with_conditions(dice, jobs)
    return Workload(
        "day",
        ",".join(f"{kind}={count}" for kind, count in NODES.items()),
        tuple(jobs),
        tuple(_changes(dice, jobs)),
        CONF,
        ACCOUNTS,
        seed,
    )


def _job(dice: random.Random, number: int, at: int) -> PlannedJob:
    person = dice.choices(PEOPLE, [each.share for each in PEOPLE])[0]
    partition = dice.choices([p for p, _ in person.partitions], [w for _, w in person.partitions])[0]
    limit = dice.choices(LIMITS, LIMIT_ODDS)[0]
    if partition == "debug":
        limit = dice.choice((10, 15, 20, 30))
    whole = dice.random() < 0.5
    nodes = dice.choices((1, 2, 3, 4, 6), (46, 26, 10, 14, 4))[0] if whole else dice.choices((1, 2), (4, 1))[0]
    nodes = min(nodes, 2) if partition == "debug" else nodes
    part = 4 if whole else dice.choice((1, 2))
    kind = "a100" if partition == "debug" else partition
    gres = "" if partition == "cpu" else f"gpu:{kind}:{part * GPUS // 4}"
    run = max(120, round(limit * 60 * min(1.3, dice.betavariate(1.6, 1.3) * 1.15)))
    return PlannedJob(
        f"j{number:04d}",
        at,
        person.name,
        partition,
        limit,
        run,
        person.account,
        nodes,
        CPUS[kind] * part // 4,
        gres,
        exclusive=whole and dice.random() < 0.2,
    )


def _loaded(jobs: list[PlannedJob]) -> list[PlannedJob]:
    """Scale limits and run times of each kind of node so that ``LOAD`` of what it can do arrives."""
    scaled = []
    for kind, count in NODES.items():
        mine = [job for job in jobs if (job.partition if job.partition != "debug" else "a100") == kind]
        work = sum(job.nodes * job.cpus / CPUS[kind] * min(job.runtime, job.limit * 60) for job in mine)
        factor = LOAD * count * ARRIVALS_S / work
        scaled += [_scaled(job, factor) for job in mine]
    return sorted(scaled, key=lambda job: job.at)


def _scaled(job: PlannedJob, factor: float) -> PlannedJob:
    if job.partition == "debug":
        return job
    limit = max(10, round(job.limit * factor / 5) * 5)
    return replace(job, limit=min(limit, 1_440), runtime=max(60, round(job.runtime * limit / job.limit)))


def _with_conditions(dice: random.Random, jobs: list[PlannedJob]) -> list[PlannedJob]:
    """Dependencies on an earlier job of the same user, holds, begin times and niceness."""
    found: list[PlannedJob] = []
    for number, job in enumerate(jobs):
        earlier = [each for each in jobs[max(0, number - 25) : number] if each.user == job.user]
        found.append(_with_condition(dice, job, earlier))
    return found


def _with_condition(dice: random.Random, job: PlannedJob, earlier: list[PlannedJob]) -> PlannedJob:
    draw = dice.random()
    if draw < 0.08 and earlier:
        kind = dice.choice(("afterok", "afterany", "after"))
        return replace(job, depends_on=dice.choice(earlier).name, dependency=kind)
    if draw < 0.11:
        return replace(job, held=True)
    if draw < 0.13:
        return replace(job, begin=job.at + dice.randrange(600, 3 * HOUR))
    if draw < 0.18:
        return replace(job, nice=dice.choice((100, 500, 2_000)))
    return job


def _changes(dice: random.Random, jobs: list[PlannedJob]) -> list[Change]:
    """Releases of what was held, holds for a while, new niceness, cancellations."""
    changes = [Change(job.at + dice.randrange(300, 2 * HOUR), "release", job.name) for job in jobs if job.held]
    free = [job for job in jobs if not (job.held or job.begin or job.depends_on)]
    for job in dice.sample(free, 45):
        at = job.at + dice.randrange(120, 2_400)
        kind = dice.choices(("nice", "hold", "cancel"), (20, 10, 15))[0]
        value = str(dice.choice((50, 1_000, 5_000))) if kind == "nice" else ""
        changes.append(Change(at, kind, job.name, value))
        if kind == "hold":
            changes.append(Change(at + dice.randrange(600, HOUR), "release", job.name))
    return sorted(changes, key=lambda change: change.at)
