"""The controller's state as arrays: one table of records per kind of thing, and what each column means.

A state has four parts, told apart by their lifetime:

* ``Fixed``: cluster and arrivals; never written while running, shared by all copies.
* ``ControllerState``: everything that changes; copied for a what-if run (a few memory copies of the used rows).
* ``Scratch``: working memory of one running thread; its content means nothing between calls.
* ``KernelRecord``: what is written down for the reader (results per trace row, event log).

Tables are numpy structured arrays: compiled code reads ``jobs[s].limit``, Python reads ``jobs["limit"]``.
Times are seconds; ``NEVER`` stands for a time that is not known. Node sets are rows of 64-bit words.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mirage.domain.job import NEVER as _NEVER

NEVER = np.int64(_NEVER)

# Job status beyond domain.JobState: a slot that holds no job.
FREE = -1
PENDING = 0
RUNNING = 1
COMPLETED = 3
CANCELLED = 4
FAILED = 5
TIMEOUT = 6
NODE_FAIL = 7

# Why a job is pending: an index into REASONS, or from FIRST_LIMIT on a group's limit (see limits.obstacle).
NONE, PRIORITY, RESOURCES, HELD, BEGIN, DEPENDENCY, DEPENDENCY_NEVER, DOWN, NODE_NOT_AVAIL = range(9)
FIRST_LIMIT, LIMIT_CODES = 100, 256
REASONS = (
    "None",
    "Priority",
    "Resources",
    "JobHeldUser",
    "BeginTime",
    "Dependency",
    "DependencyNeverSatisfied",
    "PartitionDown",
    "ReqNodeNotAvail",
)

# Agenda entries, in the order in which those of one time are handled.
ON_END, ON_CANCEL, ON_BEGIN, ON_DEPENDENCY, ON_NOTICE = range(5)

# Dependency kinds, as domain.DependencyKind.
AFTER, AFTERANY, AFTEROK, AFTERNOTOK, SINGLETON = range(5)

# Slurm's releases, as year and month, from which on passes go another way.
SINCE_23_11, SINCE_24_11, SINCE_25_05, SINCE_26_05 = 2311, 2411, 2505, 2605

# Node states.
UP, DRAIN, NODE_DOWN = range(3)

# From when a pending job's age counts: since it is eligible without a break; since its submission (ACCRUE_ALWAYS);
# since it was first eligible, whatever came after (limits not enforced).
WHILE_ELIGIBLE, SINCE_SUBMISSION, SINCE_FIRST_ELIGIBLE = range(3)

HIGHEST_IN_TURN = 4_294_901_760
"""From here on priority/basic counts down, as slurmctld (``TOP_PRIORITY``)."""

# Timeline entries (known in advance).
RESERVATION_EDGE, NODES_DOWN, NODES_DRAIN, NODES_RESUME = range(4)

# Log entries.
LOG_SUBMIT, LOG_START, LOG_END, LOG_CANCEL, LOG_REQUEUE = range(5)

# Why ``advance`` returned.
DONE, WATCHED, NEED_SPACE = range(3)

# Rows of ControllerState.bits: nodes that are up, idle, or planned with by backfill that starts nothing on them.
# The last
# two are those of the first job submitted from outside; the next job's follow.
UP_ROW, IDLE_ROW, COMPLETING_ROW, MUST_ROW, PLACE_ROW = range(5)

# Columns of ControllerState.groups: ceilings and use of jobs, then one ceiling and one use per resource.
G_MAX_JOBS, G_JOBS, G_SUBMIT, G_SUBMITS, G_TRES = range(5)

# Columns of ControllerState.free and Fixed.capacity after the resources: jobs on the node / its state; its weight.
GROUPS_PER_JOB = 14

JOB = np.dtype(
    [
        ("id", "i8"),
        ("row", "i8"),  # result row: trace row, -1 none
        ("own", "i8"),  # row in ControllerState.own for jobs submitted from outside, -1 for the trace's
        ("status", "i8"),
        ("reason", "i8"),
        ("outcome", "i8"),  # the state it will end in if its limit allows
        ("exit_code", "i8"),
        ("user", "i8"),
        ("association", "i8"),
        ("partition", "i8"),
        ("qos", "i8"),
        ("name", "i8"),
        ("nodes", "i8"),
        ("listed", "i8"),  # nodes that must be among the job's, 0: any will do
        ("exclusive", "i8"),
        ("requeue", "i8"),
        ("held", "i8"),
        ("open_dependencies", "i8"),
        ("singleton", "i8"),
        ("never", "i8"),  # a dependency can never be satisfied
        ("features", "u8"),  # bit k: needs feature k
        ("reservation", "i8"),  # row in Fixed.reservations, -1 none
        ("array", "i8"),  # array id for bf_max_job_array_resv, -1 none
        ("submit", "i8"),
        ("begin", "i8"),
        ("eligible", "i8"),  # NEVER until nothing but resources holds it
        ("accrue", "i8"),  # age counts from here, which may still be to come; NEVER: not yet known
        ("limit", "i8"),
        ("runtime", "i8"),
        ("cancel_at", "i8"),  # leaves the queue then if still pending
        ("start", "i8"),
        ("end", "i8"),  # when the end event is due
        ("limit_end", "i8"),  # start + limit: what the planner believes
        ("expected", "i8"),  # planned start from the last full plan
        ("nice", "i8"),
        ("static", "f8"),  # weighted factors that do not change while pending
        ("billing", "f8"),  # usage per second while running
        ("priority", "i8"),
        ("tier", "i8"),
        ("first_alloc", "i8"),
        ("first_waiter", "i8"),  # dependencies of others on this job
        ("generation", "i8"),
        ("next_free", "i8"),
    ],
    align=True,
)

SIM = np.dtype(
    [
        (name, "i8")
        for name in (
            "now",
            "next_arrival",
            "next_timeline",
            "next_id",
            "pending",
            "running",
            "agenda",
            "sequence",
            "slots",  # high-water mark of job slots
            "free_slot",
            "allocs",
            "free_alloc",
            "deps",
            "free_dep",
            "idle",  # nodes that could take a whole-node job (or, on shared clusters, any job) now
            "last_main",
            "main_due",
            "full_due",
            "backfill_due",
            "last_backfill",
            "calculated",  # index of the last priority calculation period
            "cap_time",  # when the first pending job's age counts no further, so that others may overtake it
            "review_due",  # when backfill looks again because priorities may have changed by themselves
            "unnoticed",  # 1: a condition of a pending job may hold by now, which the next pass finds out
            "singletons",  # pending jobs that wait as singletons
            "watch",  # stop when this own row has started; -1 none
            "own",
            "lowest",  # first come, first served: the least priority given so far, as slurmctld's lowest_prio
            "started",  # jobs started so far: the next slot in the ring of waits
            "backfill_passes",
            "backfill_tests",
            "events",
            "rejected",
            "log",
        )
    ],
    align=True,
)

CONFIG = np.dtype(
    [
        (name, "i8")
        for name in (
            "nodes",
            "cpus",
            "resources",
            "first_gres",  # column of the first kind of GRES
            "whole_nodes",  # every job takes whole nodes
            "uniform_weight",
            "release",  # of Slurm, whose rules passes follow: SINCE_23_11, ...
            "backfill",
            "bf_interval",
            "bf_window",
            "bf_resolution",
            "bf_max_job_test",
            "bf_max_job_user",
            "bf_max_job_part",
            "bf_max_job_array_resv",
            "bf_max_job_start",
            "bf_min_age_reserve",
            "bf_min_prio_reserve",
            "bf_window_linear",
            "default_queue_depth",
            "sched_interval",
            "batch_sched_delay",
            "max_age",
            "calc_period",
            "boot",  # periods count from here
            "ageing",  # WHILE_ELIGIBLE, ...
            "favor_small",
            "in_turn",  # 1: priority/basic, first come, first served
            "fair_share",  # 0 none, 1 classic, 2 fair tree
            "dampening",
            "partitions",
            "users",
            "counted",  # backfill counts jobs by partition, user or array
            "reservations",
            "users_in_tree",
            "root",
        )
    ]
    + [("w_age", "f8"), ("w_fair_share", "f8"), ("decay", "f8")],
    align=True,
)

AGENDA = np.dtype(
    [("time", "i8"), ("kind", "i8"), ("sequence", "i8"), ("slot", "i8"), ("generation", "i8")], align=True
)
ALLOC = np.dtype([("node", "i8"), ("slot", "i8"), ("next_of_job", "i8")], align=True)
DEP = np.dtype(
    [
        ("kind", "i8"),
        ("delay", "i8"),
        ("owner", "i8"),
        ("generation", "i8"),
        ("next_waiter", "i8"),
        ("next_free", "i8"),
    ],
    align=True,
)
PARTITION = np.dtype(
    [("tier", "i8"), ("up", "i8"), ("over", "i8"), ("mask", "i8"), ("exclusive", "i8")], align=True
)
RESERVATION = np.dtype([("start", "i8"), ("end", "i8"), ("mask", "i8")], align=True)
TIMELINE = np.dtype([("time", "i8"), ("kind", "i8"), ("mask", "i8")], align=True)
ASSOCIATION = np.dtype(
    [
        ("parent", "i8"),
        ("user", "i8"),  # 1: a user's row, 0: an account's
        ("shares", "f8"),  # share among siblings, 0..1
        ("normal", "f8"),  # product of shares up to the root
        ("usage", "f8"),  # decayed to ``at``
        ("rate", "f8"),
        ("at", "i8"),
        ("level", "f8"),
        ("factor", "f8"),
        ("first_child", "i8"),
        ("next_sibling", "i8"),
    ],
    align=True,
)
OWN = np.dtype(
    [
        ("id", "i8"),
        ("slot", "i8"),
        ("generation", "i8"),
        ("status", "i8"),
        ("reason", "i8"),
        ("submit", "i8"),
        ("start", "i8"),
        ("end", "i8"),
        ("exit_code", "i8"),
        ("requeues", "i8"),
    ],
    align=True,
)
WAIT = np.dtype(
    [("start", "i8"), ("wait", "i8"), ("nodes", "i8"), ("limit", "i8"), ("partition", "i8")], align=True
)
LOG = np.dtype([("time", "i8"), ("kind", "i8"), ("id", "i8"), ("state", "i8")], align=True)
RESULT = np.dtype([("start", "i8"), ("end", "i8"), ("state", "i8")], align=True)
SLOT_TIME = np.dtype([("begin", "i8"), ("end", "i8"), ("next", "i8")], align=True)
RELEASE = np.dtype(
    [
        ("time", "i8"),
        ("kill", "i8"),
        ("slot", "i8"),
        ("low", "i8"),  # words of the node set that are not empty: low to high - 1
        ("high", "i8"),
    ],
    align=True,
)


class Fixed(NamedTuple):
    """Read-only while running."""

    config: np.ndarray  # CONFIG (1,)
    arrivals: np.ndarray  # JOB (n,), by (submit, row)
    arrival_needs: np.ndarray  # int64 (n, needs): see ControllerState.needs
    capacity: np.ndarray  # int64 (nodes, resources + 1): resources, then weight
    partitions: np.ndarray  # PARTITION
    reservations: np.ndarray  # RESERVATION
    timeline: np.ndarray  # TIMELINE, by time
    masks: np.ndarray  # uint64 (rows, words): partitions, features, reservations, node events
    feature_mask: np.ndarray  # int64 (features,): row in masks


class ControllerState(NamedTuple):
    """All that changes."""

    sim: np.ndarray  # SIM (1,)
    jobs: np.ndarray  # JOB (slots,)
    needs: np.ndarray  # int64 (slots, resources + resources + 1 + GROUPS_PER_JOB): per node, in all, nodes, groups
    agenda: np.ndarray  # AGENDA, a binary heap
    pending: np.ndarray  # int64 (slots,): slots in order of priority
    running: np.ndarray  # int64 (slots,): slots in order of limit_end
    allocs: np.ndarray  # ALLOC
    deps: np.ndarray  # DEP
    free: np.ndarray  # int64 (nodes, resources + 2): free resources, jobs on the node, node state
    bits: np.ndarray  # uint64 (rows, words): up, idle; by own row the nodes it must have, those it has or had
    groups: np.ndarray  # int64 (groups, 4 + 2 * (resources + 1))
    associations: np.ndarray  # ASSOCIATION
    own: np.ndarray  # OWN
    waits: np.ndarray  # WAIT, ring


class Candidate(NamedTuple):
    """A job submitted from outside, before it has a slot."""

    job: np.ndarray  # JOB (1,)
    needs: np.ndarray  # int64: a row of ControllerState.needs
    must: np.ndarray  # uint64 (words,): the nodes it must have


class Scratch(NamedTuple):
    """Working memory of one thread."""

    times: np.ndarray  # SLOT_TIME: the plan's time slots
    space: np.ndarray  # uint64 (slots of time, words): nodes no reservation holds in that slot
    bits: np.ndarray  # uint64 (4, words)
    release: np.ndarray  # RELEASE: running jobs in the order in which their limits end
    held: np.ndarray  # uint64 (running jobs, words): their nodes
    free: np.ndarray  # int64 (nodes, resources + 1): hypothetical free resources and jobs
    order: np.ndarray  # int64 (slots,): merge sort
    failed: np.ndarray  # int64 (64,): shapes that cannot start in this pass
    counts: np.ndarray  # int64 (partitions + users + arrays,): backfill's own counters
    stack: np.ndarray  # int64 (associations,)


class KernelRecord(NamedTuple):
    """What is written down for the reader; empty arrays where nobody reads."""

    results: np.ndarray  # RESULT by trace row
    log: np.ndarray  # LOG
