"""Look-aheads with deliberate errors: the value of a plan if the cluster differs from its configuration."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from mirage.domain.decision import Wants
from mirage.domain.errors import ConfigError
from mirage.domain.job import ABSENT, JobState
from mirage.simulator.configuration.resize import with_nodes

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirage.domain.decision import Observation, Prediction
    from mirage.domain.job import Seconds
    from mirage.domain.jobtable import JobTable
    from mirage.ports import Predictor
    from mirage.simulator.cluster import ClusterConfig

MONTH = 28 * 86_400
"""Whole weeks, so that the hours of the week stay what they are."""

OLD = "month-old"


def _fewer(config: ClusterConfig) -> ClusterConfig:
    count = config.node_count
    return with_nodes(config, min(count - 1, round(0.95 * count)))


def _more(config: ClusterConfig) -> ClusterConfig:
    count = config.node_count
    return with_nodes(config, max(count + 1, round(1.05 * count)))


def _without_user_limits(config: ClusterConfig) -> ClusterConfig:
    free = replace(config.default_association, max_jobs=-1)
    users = tuple(replace(row, max_jobs=-1) if row.user else row for row in config.associations)
    qos = tuple(replace(one, max_jobs_per_user=-1) for one in config.qos)
    return replace(config, default_association=free, associations=users, qos=qos)


def _with_other_priorities(config: ClusterConfig) -> ClusterConfig:
    """Age counts half, and size as much as age: a queue that serves large jobs first."""
    age = config.priority.age // 2
    return replace(config, priority=replace(config.priority, age=age, job_size=max(age, config.priority.job_size)))


_ERRORS: dict[str, Callable[[ClusterConfig], ClusterConfig]] = {
    "nodes+5%": _more,
    "nodes-5%": _fewer,
    "no-user-limit": _without_user_limits,
    "priorities": _with_other_priorities,
    OLD: lambda config: config,
}

ERRORS = tuple(_ERRORS)


def mistaken(config: ClusterConfig, error: str) -> ClusterConfig:
    """The cluster as seen by a planner with this error; unchanged for an empty one. Raises ``ConfigError``."""
    if not error:
        return config
    if error not in _ERRORS:
        raise ConfigError("--planner-error", f"unknown error {error!r} (choose from {', '.join(ERRORS)})")
    wrong = _ERRORS[error](config)
    if wrong == config and error != OLD:
        raise ConfigError("--planner-error", f"{error} changes nothing on {config.name}")
    return wrong


class MonthOld:
    """A look-ahead that uses the jobs known four weeks ago instead of those until now."""

    def __init__(self, predictor: Predictor) -> None:
        self._predictor = predictor
        self.name = predictor.name
        wants = predictor.wants
        self.wants = replace(wants, history=wants.history + MONTH) if wants.history else Wants()

    def predict(self, observation: Observation) -> Prediction:
        """As the predictor itself. Raises what it raises."""
        history = observation.history
        if history is not None:
            observation = replace(observation, history=aged(history, observation.time))
        return self._predictor.predict(observation)


def aged(history: JobTable, now: Seconds) -> JobTable:
    """The jobs known ``MONTH`` before ``now``, with every time moved by as much towards ``now``."""
    then = now - MONTH
    known = history.take(history.submit <= then)
    started = (known.start != ABSENT) & (known.start <= then)
    left = (known.end != ABSENT) & (known.end <= then)
    return replace(
        known,
        submit=known.submit + MONTH,
        eligible=np.where(known.eligible != ABSENT, known.eligible + MONTH, ABSENT),
        start=np.where(started, known.start + MONTH, ABSENT),
        end=np.where(left, known.end + MONTH, ABSENT),
        state=np.where(left, known.state, np.where(started, int(JobState.RUNNING), int(JobState.PENDING))).astype(
            np.int8
        ),
    )
