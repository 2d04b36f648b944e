"""Small scenarios: a few jobs, one rule each, and when every job must start.

An expectation is a time that the rule names: a job's own submission, another's end, a time of the
scenario. The alternatives that another rule would choose are ten minutes or more away.
"""

from __future__ import annotations

from recording.plan import Change, Expected, PlannedJob, Workload

MINUTE = 60
NODES = "cpu=4,v100=2,a100=2"
CONF = (
    "SchedulerParameters=bf_interval=30,sched_interval=60,batch_sched_delay=3,bf_window=120,bf_resolution=60,"
    "bf_continue,bf_max_job_test=500,default_queue_depth=100,bf_max_time=3600,bf_yield_interval=10000000,"
    "max_sched_time=60,build_queue_timeout=480000000",
    "PriorityWeightFairshare=10000",
    "PriorityWeightAge=10000",
    "PriorityWeightJobSize=1000",
    "PriorityWeightPartition=1000",
    "PriorityMaxAge=1-00:00:00",
    "PriorityCalcPeriod=00:01:00",
    "SlurmctldDebug=debug",
)
ACCOUNTS = (
    "add account fresh Fairshare=50 Description=fresh Organization=testbed",
    "add account used Fairshare=50 Description=used Organization=testbed",
    "add user carol account=fresh Fairshare=10",
    "add user bob account=used Fairshare=10",
)


def scenarios() -> tuple[Workload, ...]:
    """All scenarios; they run one after the other on one testbed, each from an idle cluster."""
    return (*_priorities(), *_backfill(), *_limits(), *_resources(), *_conditions(), *_nodes())


def _job(name: str, minute: int, limit: int, runtime: int, nodes: int = 1, **more: object) -> PlannedJob:
    """A job of whole CPU nodes by default; all times in minutes."""
    asked = {"user": "alice", "partition": "cpu", "account": "research", "cpus": 64} | more
    return PlannedJob(name, minute * MINUTE, limit=limit, runtime=runtime * MINUTE, nodes=nodes, **asked)


def _scenario(
    name: str, jobs: list[PlannedJob], expected: dict[str, Expected], changes: tuple[Change, ...] = ()
) -> Workload:
    return Workload(name, NODES, tuple(jobs), changes, CONF, ACCOUNTS, expected=expected)


def _change(minute: int, kind: str, job: str = "", value: str = "") -> Change:
    return Change(minute * MINUTE, kind, job, value)


def _priorities() -> tuple[Workload, ...]:
    wall = _job("wall", 0, 20, 20, 4)
    return (
        _scenario(
            "age",  # the job submitted first may begin later: its age counts from its begin time
            [wall, _job("late", 1, 20, 10, 4, begin=12 * MINUTE), _job("old", 5, 20, 10, 4)],
            {"old": ("end", "wall"), "late": ("end", "old")},
        ),
        _scenario(
            "size",  # PriorityFavorSmall=NO
            [wall, _job("small", 1, 20, 10, 2), _job("large", 4, 20, 10, 4)],
            {"large": ("end", "wall"), "small": ("end", "large")},
        ),
        _scenario(
            "fair-share",
            [
                _job("wall", 0, 20, 20, 4, user="bob", account="used"),
                _job("used", 1, 20, 10, 4, user="bob", account="used"),
                _job("fresh", 5, 20, 10, 4, user="carol", account="fresh"),
            ],
            {"fresh": ("end", "wall"), "used": ("end", "fresh")},
        ),
        _scenario(
            "nice",
            [wall, _job("nice", 1, 20, 10, 4, nice=500), _job("plain", 3, 20, 10, 4)],
            {"plain": ("end", "wall"), "nice": ("end", "plain")},
        ),
        _scenario(
            "nice-changed",
            [wall, _job("made-nice", 1, 20, 10, 4), _job("plain", 3, 20, 10, 4)],
            {"plain": ("end", "wall"), "made-nice": ("end", "plain")},
            (_change(6, "nice", "made-nice", "500"),),
        ),
        _scenario(
            "tier",  # partition debug has the higher tier, on the same nodes
            [
                _job("wall", 0, 20, 20, 2, partition="a100"),
                _job("plain", 1, 20, 10, 2, partition="a100"),
                _job("debug", 5, 20, 10, 2, partition="debug"),
            ],
            {"debug": ("end", "wall"), "plain": ("end", "debug")},
        ),
    )


def _backfill() -> tuple[Workload, ...]:
    three = _job("three", 0, 30, 28, 3)
    return (
        _scenario(
            "backfill",
            [three, _job("wide", 1, 20, 10, 4), _job("short", 2, 20, 10), _job("long", 3, 40, 10)],
            {"short": ("submit", "short"), "wide": ("end", "three"), "long": ("end", "wide")},
        ),
        _scenario(
            "backfill-window",  # a job that cannot start within bf_window is not planned, and delays no other
            [_job("three", 0, 180, 15, 3), _job("wide", 1, 20, 10, 4), _job("long", 3, 240, 25)],
            {"long": ("submit", "long"), "wide": ("end", "long")},
        ),
        _scenario(
            "backfill-early-end",  # a job that ends before its limit lets the plan start earlier
            [_job("three", 0, 60, 20, 3), _job("wide", 1, 20, 10, 4), _job("fits", 2, 40, 30)],
            {"fits": ("submit", "fits"), "wide": ("end", "fits")},
        ),
        _scenario(
            "cancelled",  # the plan of a job that is cancelled no longer keeps its nodes
            [three, _job("wide", 1, 30, 20, 4), _job("long", 2, 60, 10)],
            {"long": ("at", 10 * MINUTE)},
            (_change(10, "cancel", "wide"),),
        ),
        _scenario(
            "time-limit",
            [_job("endless", 0, 10, 60, 4), _job("next", 1, 10, 10, 4)],
            {"next": ("at", 10 * MINUTE)},
        ),
    )


def _limits() -> tuple[Workload, ...]:
    return (
        _scenario(
            "max-jobs",
            [_job("first", 0, 20, 15, account="limited"), _job("second", 1, 20, 10, account="limited")],
            {"second": ("end", "first")},
        ),
        _scenario(
            "grp-tres",  # two nodes for the whole account
            [
                _job("alices", 0, 20, 15, account="limited"),
                _job("bobs", 1, 40, 30, user="bob", account="limited"),
                _job("carols", 2, 20, 10, user="carol", account="limited"),
            ],
            {"bobs": ("submit", "bobs"), "carols": ("end", "alices")},
        ),
        _scenario(
            "max-submit",
            [_job(f"job-{k}", 0, 20, 10, account="limited") for k in range(4)],
            {"job-1": ("end", "job-0"), "job-2": ("end", "job-1"), "job-3": ("refused", "")},
        ),
        _scenario(
            "array-throttle",
            [_job("tasks", 0, 20, 12, array=4, most_at_once=2), _job("beside", 1, 20, 10)],
            {"tasks.0": ("submit", "tasks"), "tasks.2": ("first end", "tasks"), "beside": ("submit", "beside")},
        ),
    )


def _resources() -> tuple[Workload, ...]:
    a100 = {"partition": "a100", "cpus": 8}
    v100 = {"partition": "v100"}
    return (
        _scenario(
            "gres",
            [
                _job("whole", 0, 60, 40, gres="gpu:a100:4", **a100),
                _job("half", 1, 60, 15, gres="gpu:a100:2", **a100),
                _job("other-half", 2, 60, 40, gres="gpu:a100:2", **a100),
                _job("one", 3, 60, 10, gres="gpu:a100:1", **a100),
            ],
            {"other-half": ("submit", "other-half"), "one": ("end", "half")},
        ),
        _scenario(
            "cpus",
            [
                _job("half", 0, 60, 15, cpus=20, **v100),
                _job("other-half", 1, 60, 40, cpus=20, **v100),
                _job("whole", 2, 60, 40, cpus=40, **v100),
                _job("more", 3, 60, 10, cpus=10, **v100),
            ],
            {"other-half": ("submit", "other-half"), "whole": ("submit", "whole"), "more": ("end", "half")},
        ),
        _scenario(
            "exclusive",
            [
                _job("alone", 0, 60, 15, cpus=1, exclusive=True, **v100),
                _job("also-alone", 1, 60, 40, cpus=1, exclusive=True, **v100),
                _job("small", 2, 60, 10, cpus=1, **v100),
            ],
            {"also-alone": ("submit", "also-alone"), "small": ("end", "alone")},
        ),
        _scenario(
            "node-list",
            [
                _job("there", 0, 30, 20, node_list="cpu-002"),
                _job("there-too", 1, 20, 10, node_list="cpu-002"),
                _job("anywhere", 2, 20, 10),
            ],
            {"there-too": ("end", "there"), "anywhere": ("submit", "anywhere")},
        ),
    )


def _conditions() -> tuple[Workload, ...]:
    wall = _job("wall", 0, 20, 20, 4)
    return (
        _scenario(
            "held",
            [_job("held", 0, 20, 10, held=True)],
            {"held": ("at", 12 * MINUTE)},
            (_change(12, "release", "held"),),
        ),
        _scenario(
            "hold",
            [wall, _job("first", 1, 20, 10, 4), _job("second", 2, 20, 15, 4)],
            {"second": ("end", "wall"), "first": ("end", "second")},
            (_change(4, "hold", "first"), _change(24, "release", "first")),
        ),
        _scenario(
            "begin",
            [_job("later", 0, 20, 10, begin=15 * MINUTE)],
            {"later": ("at", 15 * MINUTE)},
        ),
        _scenario(
            "dependencies",
            [
                _job("first", 0, 20, 12),
                _job("after-ok", 1, 20, 10, depends_on="first", dependency="afterok"),
                _job("after", 1, 20, 10, depends_on="after-ok", dependency="after"),
                _job("never", 1, 20, 10, depends_on="first", dependency="afternotok"),
            ],
            {"after-ok": ("end", "first"), "after": ("start", "after-ok"), "never": ("never", "")},
            (_change(20, "cancel", "never"),),
        ),
        _scenario(
            "singleton",
            [
                _job("one", 0, 20, 12, job_name="series", singleton=True),
                _job("two", 1, 20, 10, job_name="series", singleton=True),
            ],
            {"one": ("submit", "one"), "two": ("end", "one")},
        ),
    )


def _nodes() -> tuple[Workload, ...]:
    return (
        _scenario(
            "reservation",
            [_job("too-long", 5, 30, 10, 4), _job("fits", 6, 15, 10, 2)],
            {"fits": ("submit", "fits"), "too-long": ("at", 35 * MINUTE)},
            (_change(0, "reserve", value=f"upkeep,{25 * MINUTE},{35 * MINUTE},cpu-[001-004]"),),
        ),
        _scenario(
            "drain",
            [_job("wide", 5, 20, 10, 4), _job("narrow", 6, 20, 5, 1)],
            {"wide": ("at", 20 * MINUTE)},
            (_change(1, "drain", value="cpu-004"), _change(20, "resume", value="cpu-004")),
        ),
    )
