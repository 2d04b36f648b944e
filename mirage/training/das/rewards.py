"""Reward of a decision: the paper's, with our choices where it is open, and advantages from it.

The paper rewards the tasks scheduled at t by 1 / (fee_i JCT_i), and charges alpha C_i n_i for those left, with the
demand n_i; the sum is divided by their number. C_i and the units of fee and JCT are not public. Ours:

- fee and JCT are divided by those of the task alone at reference speed without waiting: each term is at most 1;
- the charge for those left is for time: between two decisions C_i n_i is the time that task i was in the pool, by
  the mean JCT of the set of tasks, whether it waits or runs. So the charges of an episode add up to the mean JCT,
  the figure that is compared, and a task that is made slow continues costing;
- both are divided by the number of tasks in the set, which no decision changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirage.allocation.ddl.outcome import Outcome
    from mirage.training.das.rollouts import Episode

Float64 = NDArray[np.float64]

BONUS = 0.1
"""Weight of the term of scheduled tasks next to the charge for time, alpha = 1."""


def rewards(episode: Episode, unit: float) -> Float64:
    """One number for each step; ``unit`` is the mean JCT (s) of the set."""
    outcome, count = episode.outcome, len(episode.outcome.tasks)
    times = np.array([*(step.now for step in episode.steps), np.inf])
    togo = time_to_go(outcome, times)
    charged = (togo[:-1] - togo[1:]) / unit
    worth = _worth(outcome)
    gained = np.array([worth[step.started].sum() for step in episode.steps])
    return np.asarray((BONUS * gained - charged) / count)


def _worth(outcome: Outcome) -> Float64:
    """1 / (fee JCT) of each task, both by those of the undisturbed task."""
    tasks = outcome.tasks
    held = np.maximum(outcome.served, 1e-9) / tasks.work
    return np.asarray(tasks.work / np.maximum(outcome.jct, tasks.work) / np.maximum(held, 1.0))


def time_to_go(outcome: Outcome, times: Float64) -> Float64:
    """Task-seconds in the pool from each time on, including tasks still to come."""
    begins = np.maximum(outcome.tasks.submit[:, None], np.minimum(times, outcome.end.max())[None, :])
    return np.asarray(np.maximum(outcome.end[:, None] - begins, 0.0).sum(axis=0))


def group_features(group: Sequence[Episode], unit: float) -> list[Float64]:
    """Features of each episode of a set of tasks (steps, 4), from which the critic knows the kind of set:

    the mean task-time to go of the group at that time; and how the episode stands against the group in tasks
    present, seconds left, and device-seconds left.
    """
    count = len(group[0].outcome.tasks)
    curves = [_curve(episode) for episode in group]
    features = []
    for episode, curve in zip(group, curves, strict=True):
        times = curve[:, 0]
        togo = np.mean([time_to_go(other.outcome, times) for other in group], axis=0) / unit / count
        present = np.mean([_present(other.outcome, times) for other in group], axis=0)
        off = [(_present(episode.outcome, times) - present) / 10.0]
        for column in (1, 2):
            mean = np.mean([np.interp(times, other[:, 0], other[:, column]) for other in curves], axis=0)
            off.append((curve[:, column] - mean) / unit / 10.0)
        features.append(np.stack([togo, *off], axis=1))
    return features


def _curve(episode: Episode) -> Float64:
    """(steps, 3): time, seconds and device-seconds left of tasks that are in the pool."""
    rows = []
    for step in episode.steps:
        left = np.exp(step.sight.base[:, 0])
        rows.append((step.now, left.sum(), (left * np.exp(step.sight.base[:, 1])).sum()))
    return np.array(rows)


def _present(outcome: Outcome, times: Float64) -> Float64:
    here = (outcome.tasks.submit[:, None] <= times) & (outcome.end[:, None] > times)
    return np.asarray(here.sum(axis=0), dtype=np.float64)


def advantages(reward: Float64, value: Float64, smoothing: float) -> tuple[Float64, Float64]:
    """Generalised advantages (Schulman et al., ICLR 2016), undiscounted, and the targets of the critic."""
    following = np.append(value[1:], 0.0)
    surprise = reward + following - value
    found = np.zeros(len(reward))
    carried = 0.0
    for place in range(len(reward) - 1, -1, -1):
        carried = surprise[place] + smoothing * carried
        found[place] = carried
    return found, found + value
