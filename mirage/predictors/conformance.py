"""Conformance checks that every predictor must pass."""

from __future__ import annotations

import sys
from dataclasses import fields, is_dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np

from mirage.domain.decision import (
    NO_PLAN,
    ActionScores,
    Observation,
    PlannedStart,
    PlanStatus,
    RecentWaits,
    Standing,
    WaitForecast,
    Wants,
    Window,
)
from mirage.domain.job import ABSENT, Job, JobId, JobRequest, JobState
from mirage.domain.jobtable import job_table
from mirage.domain.snapshot import JobColumns, PartitionState, Snapshot
from mirage.features.summary import COLUMNS, summarise

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirage.domain.decision import Prediction
    from mirage.ports import Predictor

HOUR = 3_600
_NOW = 1_675_209_600
"""1 February 2023."""

_WITHOUT_PLAN = tuple(status for status in PlanStatus if status is not PlanStatus.KNOWN)


def check_predictor(predictor: Predictor, observations: Sequence[Observation] = ()) -> None:
    """Raise ``AssertionError`` with the first violated requirement.

    It must answer each of ``observations`` (a made-up one where none is given), twice the same, with finite
    numbers, levels and starts ascending, without changing the observation, reading only what it ``wants`` and
    unpickling nothing. Where nothing is known (no window, waits, history, plan, predecessor) it may raise, with a
    sentence.
    """
    _require(isinstance(predictor.name, str) and predictor.name, "its name is empty")
    _require(isinstance(predictor.wants, Wants), "its attribute wants is not a Wants")
    for observation in observations or (sample_observation(),):
        answer = _answered(predictor, observation)
        again = _answered(predictor, observation)
        _require(answer == again, f"asked twice it answers {answer} and {again}")
        lean = _answered(predictor, only_wanted(observation, predictor.wants))
        _require(
            lean == answer, f"it reads what it does not want: {lean} without undeclared inputs, {answer} with them"
        )
        for bare in _bare(observation):
            _check_bare(predictor, bare)


def _require(holds: object, otherwise: str) -> None:
    """Assert, also with ``python -O``."""
    if not holds:
        raise AssertionError(otherwise)


def sample_observation(nodes: int = 1, limit: int = 48 * HOUR) -> Observation:
    """A complete observation two hours before the predecessor's end, on a busy cluster of 76 nodes.

    The same at every call.
    """
    rng = np.random.default_rng(5)
    snapshot = _snapshot(rng)
    times = _NOW - 600 * np.arange(143, -1, -1)
    rows = np.repeat(summarise(snapshot, "")[None], len(times), axis=0)
    rows[:, COLUMNS.index("pending_jobs")] += rng.integers(0, 5, len(times))
    start = _NOW + 2 * HOUR - limit
    predecessor = Job(
        JobId(7), "service", "alice", "batch", nodes, limit, JobState.RUNNING, start - HOUR, start, start + limit
    )
    return Observation(
        time=_NOW,
        snapshot=snapshot,
        predecessor=predecessor,
        successor=JobRequest("service", "alice", limit, nodes, "batch"),
        waits=_waits(rng),
        planned_start=PlannedStart.known(_NOW + 5 * HOUR, _NOW),
        window=Window(times, rows),
        history=_history(rng),
        standing=Standing(fair_share=0.4, jobs_left=6, reserved_nodes=0),
    )


def only_wanted(observation: Observation, wants: Wants) -> Observation:
    """Return the observation without inputs that the predictor does not require."""
    snapshot = observation.snapshot
    if not wants.queue:
        none = JobColumns.none()
        snapshot = replace(snapshot, pending=none, running=none, partitions=())
    history = observation.history if wants.history else None
    if history is not None:
        history = history.take(history.submit >= observation.time - wants.history)
    return replace(
        observation,
        snapshot=snapshot,
        waits=observation.waits.last(wants.waits),
        planned_start=observation.planned_start if wants.plan else NO_PLAN,
        window=observation.window if wants.window else None,
        history=history,
        standing=observation.standing if wants.standing else Standing(),
    )


def _answered(predictor: Predictor, observation: Observation) -> Prediction:
    """Return a valid prediction, made without changes to the observation."""
    before = _digest(observation)
    with _WATCH:
        answer = predictor.predict(observation)
    _require(not _WATCH.unpickled, f"it unpickled {_WATCH.unpickled}")
    _require(_digest(observation) == before, "it changed the observation")
    _check_answer(answer, observation)
    return answer


def _check_answer(answer: Prediction, observation: Observation) -> None:
    if isinstance(answer, ActionScores):
        _require(np.isfinite([answer.submit, answer.hold]).all(), f"scores are not finite: {answer}")
        return
    _require(isinstance(answer, WaitForecast), f"it answers {type(answer).__name__}")
    levels, starts = np.array(answer.levels), np.array(answer.starts)
    _require(len(levels) == len(starts) > 0, f"not one start for each level: {answer}")
    _require(np.isfinite(starts).all(), f"starts are not finite: {answer}")
    _require(((levels >= 0) & (levels <= 1)).all(), f"levels are not within 0 and 1: {levels}")
    _require((np.diff(levels) > 0).all(), f"levels do not ascend: {levels}")
    _require((np.diff(starts) >= 0).all(), f"starts descend: {starts}")
    _require(starts[0] >= observation.time, f"it predicts a start in the past: {starts[0]} at {observation.time}")


def _bare(observation: Observation) -> tuple[Observation, ...]:
    """Yield observations with missing inputs, and one without any."""
    none = RecentWaits.none()
    empty = replace(observation.snapshot, pending=JobColumns.none(), running=JobColumns.none())
    known = observation.window
    first = Window(known.times[-1:], known.rows[-1:]) if known is not None else None
    nothing = job_table(0)
    return (
        replace(observation, window=None),
        replace(observation, window=first),
        replace(observation, waits=none),
        *(
            replace(observation, planned_start=PlannedStart(status))
            for status in PlanStatus
            if status is not PlanStatus.KNOWN
        ),
        replace(observation, standing=Standing()),
        replace(observation, history=None),
        replace(observation, history=nothing),
        replace(observation, snapshot=empty),
        replace(observation, predecessor=None),
        Observation(observation.time, empty, None, observation.successor, none),
    )


def _check_bare(predictor: Predictor, observation: Observation) -> None:
    """Check that the result is a prediction, or an error with a text."""
    before = _digest(observation)
    try:
        answer = predictor.predict(observation)
    except Exception as error:
        blunder = isinstance(error, AttributeError | IndexError | KeyError | TypeError | ZeroDivisionError)
        _require(not blunder, f"on incomplete input it stumbles: {type(error).__name__}: {error}")
        _require(str(error), f"on incomplete input it raises {type(error).__name__} without a text")
    else:
        _check_answer(answer, observation)
    _require(_digest(observation) == before, "it changed the observation")


def _digest(value: Any) -> str:
    """Return a digest of an observation, equal for equal contents."""
    digest = sha256()
    _feed(digest.update, value)
    return digest.hexdigest()


def _feed(update: Any, value: Any) -> None:
    if isinstance(value, np.ndarray):
        update(f"{value.dtype.str}{value.shape}".encode())
        update(np.ascontiguousarray(value).tobytes())
    elif is_dataclass(value):
        for field in fields(value):
            update(field.name.encode())
            _feed(update, getattr(value, field.name))
    else:
        update(repr(value).encode())


class _PickleWatch:
    """Records the classes unpickled within it, by Python audit events."""

    def __init__(self) -> None:
        self.unpickled: list[str] = []
        self._on = False
        self._hooked = False

    def __enter__(self) -> None:
        if not self._hooked:
            sys.addaudithook(self._heard)
            self._hooked = True
        self.unpickled.clear()
        self._on = True

    def __exit__(self, *_: object) -> None:
        self._on = False

    def _heard(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._on and event == "pickle.find_class":
            self.unpickled.append(".".join(map(str, arguments)))


_WATCH = _PickleWatch()


def _snapshot(rng: np.random.Generator) -> Snapshot:
    running = _jobs(rng, 50, pending=False)
    return Snapshot(
        _NOW,
        pending=_jobs(rng, 30, pending=True),
        running=running,
        partitions=(PartitionState("batch", 76, 76 - int(running.nodes.sum()), int(running.nodes.sum()), 0),),
        users=tuple(f"u{number}" for number in range(10)),
        partition_names=("batch",),
        qos_names=("normal",),
    )


def _jobs(rng: np.random.Generator, count: int, *, pending: bool) -> JobColumns:
    zeros = np.zeros(count, dtype=np.int64)
    limit = rng.choice([2, 12, 24, 48], count) * HOUR
    submit = _NOW - rng.integers(24 * HOUR, 48 * HOUR, count)
    start = zeros + ABSENT if pending else _NOW - (limit * rng.random(count)).astype(np.int64)
    return JobColumns(
        job_id=np.arange(count) + (1_000 if pending else 100),
        user=rng.integers(0, 10, count),
        partition=zeros,
        qos=zeros,
        nodes=np.ones(count, dtype=np.int64),
        limit=limit,
        submit=submit,
        eligible=submit,
        start=start,
        priority=rng.integers(1, 1_000, count),
        series=rng.integers(0, 20, count),
    )


def _waits(rng: np.random.Generator) -> RecentWaits:
    count = 200
    wait = rng.exponential(4 * HOUR, count).astype(np.int64)
    start = np.sort(_NOW - rng.integers(0, 72 * HOUR, count))
    return RecentWaits(start, wait, np.ones(count, dtype=np.int64), rng.choice([12, 48], count) * HOUR)


def _history(rng: np.random.Generator) -> Any:
    count = 200
    limit = rng.choice([2, 12, 48], count) * HOUR
    submit = np.sort(_NOW - rng.integers(48 * HOUR, 480 * HOUR, count))
    return job_table(
        count, submit=submit, start=submit + HOUR, end=submit + HOUR + limit // 2, limit=limit,
        nodes=np.ones(count, dtype=np.int32),
    )  # fmt: skip
