"""The simulated pool as arrays: one table of records per kind of thing, and what each column means.

As in the simulator's kernel, a state has parts told apart by their lifetime: ``Site`` (what placing needs to
know) and ``PoolConstants`` are never written while running and shared by all copies; ``PoolState`` is all that
changes; ``Draft`` and ``Queues`` are working memory, whose content means nothing between calls. Times are float
seconds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

INFINITY = float("inf")

SLACK = 1e-9
"""Shares of a device are sums of decimals: so much may be missing."""

# Status of a task. WAITING: not yet submitted, or for others to end.
WAITING, PENDING, RUNNING, ENDED = range(4)

# What ``advance`` and ``play`` answer. STUCK: tasks wait for which nothing will ever happen. THRASHING: tasks
# preempt one another before any of them has done any work, and so indefinitely.
OVER, DECIDE, NEED_SPACE, STUCK, THRASHING = range(5)

# Codes of the built-in placement policies.
(
    FIRST_FIT,
    BEST_FIT,
    BEST_FIT_ALL,
    BALANCE,
    CONSOLIDATE,
    RANDOM,
    DOT_PRODUCT,
    PACK,
    FRAGMENTS,
    FORESIGHT,
) = range(10)

NEED = np.dtype(
    [
        ("devices", "i8"),
        ("share", "f8"),
        ("kinds", "u8"),
        ("max_nodes", "i8"),
        ("cpus", "i8"),
        ("memory", "i8"),
        ("likeness", "i8"),  # tasks of one number need the same
    ],
    align=True,
)
NODE = np.dtype(
    [("first_device", "i8"), ("end_device", "i8"), ("cpus", "i8"), ("memory", "i8"), ("switch", "i8")], align=True
)
DEVICE = np.dtype([("node", "i8"), ("kind", "i8"), ("price", "f8"), ("island", "i8")], align=True)
LARGEST = np.dtype([("cpus", "i8"), ("devices", "i8")], align=True)

USUAL = np.dtype(
    [("devices", "i8"), ("share", "f8"), ("kinds", "u8"), ("cpus", "i8"), ("weight", "f8")], align=True
)
RATES = np.dtype([("cpus", "f8"), ("memory", "f8")], align=True)

TASK = np.dtype(
    [
        ("submit", "f8"),
        ("work", "f8"),
        ("expected", "f8"),
        ("restart", "f8"),  # NaN: never preempted
        ("rank", "i8"),  # in order of submission
        ("first_held", "i8"),  # where its devices begin in PoolState.held, while it runs
        ("first_part", "i8"),  # and its parts in PoolState.parts
    ],
    align=True,
)
CONFIG = np.dtype(
    [
        ("preempt", "i8"),
        ("move", "i8"),
        ("strict", "i8"),
        ("quantum", "f8"),
        ("interferes", "i8"),
        ("likenesses", "i8"),
    ],
    align=True,
)
SIM = np.dtype(
    [
        ("now", "f8"),
        ("decided", "f8"),  # the last time at which something could be decided
        ("arrived", "i8"),  # tasks submitted so far
        ("pending", "i8"),
        ("fresh", "i8"),  # put among the pending since ``advance`` was called
        ("running", "i8"),
        ("ended", "i8"),
        ("held", "i8"),  # devices held, each task's counted
        ("free", "f8"),  # devices free, shares added up
        ("idle_waiting", "f8"),  # device-seconds free while something was pending
        ("waiting", "f8"),  # seconds in which something was pending
        ("log", "i8"),
        ("stamp", "i8"),
        ("futile", "i8"),  # preemptions in a row before which no work was done
        ("events", "i8"),
    ],
    align=True,
)
STATE = np.dtype(
    [
        ("status", "i8"),
        ("open", "i8"),  # tasks that it waits for
        ("start", "f8"),  # first start
        ("end", "f8"),  # while it runs: when it will end as things stand
        ("began", "f8"),  # the present stint
        ("ready", "f8"),  # when work continues after a resumption
        ("since", "f8"),  # up to when ``left`` is true
        ("before", "f8"),  # seconds run before the present stint
        ("left", "f8"),  # seconds of work at reference speed
        ("speed", "f8"),
        ("row", "i8"),  # of the speed table
        ("parts", "i8"),  # nodes it runs on
        ("cost", "f8"),  # dollars an hour while it runs
        ("fee", "f8"),
        ("preemptions", "i8"),
        ("place", "i8"),  # in PoolState.agenda
        ("seen", "i8"),
        ("beside", "i8"),
    ],
    align=True,
)
PART = np.dtype(
    [
        ("node", "i8"),
        ("task", "i8"),
        ("previous", "i8"),  # of the node, -1 none
        ("next", "i8"),
    ],
    align=True,
)
SEGMENT = np.dtype([("task", "i8"), ("device", "i8"), ("start", "f8"), ("end", "f8")], align=True)


class Site(NamedTuple):
    """What never changes of nodes, devices and what tasks need: all that placing reads."""

    nodes: np.ndarray  # NODE
    devices: np.ndarray  # DEVICE, by node
    needs: np.ndarray  # NEED by task
    largest: np.ndarray  # LARGEST (1,): of any node


class Room(NamedTuple):
    """What is free."""

    free: np.ndarray  # f8 (devices,)
    cpus: np.ndarray  # i4 (nodes,)
    memory: np.ndarray  # i8 (nodes,)


class Mix(NamedTuple):
    """The tasks that are usual here, for the rules that look ahead; empty for all others."""

    types: np.ndarray  # USUAL
    rates: np.ndarray  # RATES (1,): used for each device, in the mean of the tasks that need any
    worth: np.ndarray  # f8: of the free part of a device, by thousandths; 1 for a whole one
    prices: np.ndarray  # f8 (likenesses,): of the share that a task needs


class Memo(NamedTuple):
    """Ratings that may be needed again."""

    keys: np.ndarray  # u8
    ratings: np.ndarray  # f8


class Draft(NamedTuple):
    """Working memory of placing: the last placement found, and what is counted on the way."""

    size: np.ndarray  # i8 (2,): devices, nodes
    devices: np.ndarray  # i4
    nodes: np.ndarray  # i4
    taken: np.ndarray  # i8 (nodes,): devices taken on each; 0 between calls
    failed: np.ndarray  # u1 (likenesses,)
    marked: np.ndarray  # u1 (devices,): 0 between calls
    scratch: np.ndarray  # f8 (devices,): what would be free
    mix: Mix
    memo: Memo


class PoolConstants(NamedTuple):
    """Read-only while running."""

    config: np.ndarray  # CONFIG (1,)
    tasks: np.ndarray  # TASK
    arrivals: np.ndarray  # i4: tasks in order of submission
    rows: np.ndarray  # i4 (tasks, kinds, spreads): as SpeedTable.row
    alone: np.ndarray  # f8
    together: np.ndarray  # f8 (rows, rows)
    first_waiter: np.ndarray  # i8 (tasks + 1,)
    waiters: np.ndarray  # i4: tasks that wait for each


class Queues(NamedTuple):
    """The pending by what they need: for each likeness a heap, the first to start on top. For ``play`` alone."""

    key: np.ndarray  # i4 (tasks,): place in the order of scores, which is the same all the time
    first: np.ndarray  # i8 (likenesses + 1,): where each heap begins in ``heap``
    size: np.ndarray  # i8 (likenesses,)
    heap: np.ndarray  # i4 (tasks,)


class PoolState(NamedTuple):
    """All that changes."""

    sim: np.ndarray  # SIM (1,)
    states: np.ndarray  # STATE by task
    served: np.ndarray  # f8 (tasks,): true for running tasks only after ``mainloop.refresh``
    remaining: np.ndarray  # f8 (tasks,): likewise
    task_node: np.ndarray  # i4 (tasks,)
    pending: np.ndarray  # i4 (tasks,): in order of submission
    fresh: np.ndarray  # i4 (tasks,): the pending that have just come
    agenda: np.ndarray  # i4 (tasks,): running tasks, a heap by end
    free: np.ndarray  # f8 (devices,)
    cpus: np.ndarray  # i4 (nodes,)
    memory: np.ndarray  # i8 (nodes,)
    held: np.ndarray  # i4
    parts: np.ndarray  # PART
    first_part: np.ndarray  # i8 (nodes,): of each node, -1 none
    log: np.ndarray  # SEGMENT
