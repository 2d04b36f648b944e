"""The coarse pool as arrays: nodes with so many free devices, tasks with so many devices for so long."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

SLACK = 1e-6
"""Shares of devices are sums of decimals: so much may be missing."""

LOAD = np.dtype(
    [
        ("devices", "f8"),  # all of its shares together
        ("length", "f8"),  # seconds, as estimated
        ("kinds", "u8"),
        ("most_nodes", "i8"),
    ],
    align=True,
)


class Goal(NamedTuple):
    """What a plan costs: the mean completion time times one weight plus the makespan times the other."""

    jct: float
    makespan: float


class Stage(NamedTuple):
    """What never changes during a search: P tasks that wait, before them in every column R that run."""

    loads: np.ndarray  # LOAD (R + P,)
    kinds: np.ndarray  # u8 (nodes,): what each node has
    free: np.ndarray  # f8 (nodes,): devices free now
    nodes: np.ndarray  # i8 (R + P, K): of those that run, the nodes
    parts: np.ndarray  # f8 (R + P, K): and how many devices on each; 0 behind the last


class Scratch(NamedTuple):
    """Working memory of one trial."""

    free: np.ndarray  # f8 (nodes,)
    nodes: np.ndarray  # i8 (R + P, K)
    parts: np.ndarray  # f8 (R + P, K)
    taken: np.ndarray  # u1 (nodes,): 0 between calls
    end: np.ndarray  # f8 (R + P,)
    heap: np.ndarray  # i8 (R + P,): those that run, the first to end on top


class Orders(NamedTuple):
    """Rows of ``Stage.loads``, first come first."""

    best: np.ndarray  # i8 (P,)
    current: np.ndarray  # i8 (P,)
    trial: np.ndarray  # i8 (P,)
    costs: np.ndarray  # f8 (2,): of the best and of the current
