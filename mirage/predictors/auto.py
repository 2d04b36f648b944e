"""`auto`: the best of the available predictors, or the current queue where little history is known.

On months outside the training data, the majority of three or more predictors that know the cluster cost less than
each of them alone. Look-ahead alone came next. All of them were better than the waits of the last jobs. Where the
fair-share weight exceeds the age weight, every forecast was worse than submitting at the end.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

import numpy as np

from mirage.domain.decision import ActionScores, RecentWaits, WaitForecast, Wants, checked
from mirage.domain.job import ABSENT
from mirage.features.waitclass import ENOUGH
from mirage.predictors.baselines import Reactive
from mirage.predictors.ensemble import majority, would_submit
from mirage.predictors.members import AUTO, Members, members_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mirage.domain.decision import Observation, Prediction
    from mirage.domain.job import JobRequest, Seconds
    from mirage.domain.objective import Weights
    from mirage.domain.snapshot import Snapshot
    from mirage.ports import Predictor

_LEVELS = (0.1, 0.5, 0.9)


def no_job_waits(snapshot: Snapshot, partitions: str) -> bool:
    """Return whether no queued job can start in one of the partitions now; ``False`` also if unknown.

    ``partitions``: comma-separated several. Jobs that depend on others or are held do not count, nor links that
    are
    bound to their predecessors' nodes.
    """
    return any(_is_clear(snapshot, partition) for partition in partitions.split(","))


def _is_clear(snapshot: Snapshot, partition: str) -> bool:
    if snapshot.stale or _idle(snapshot, partition) is None:
        return False
    if partition not in snapshot.partition_names:
        return True
    jobs = snapshot.pending
    wanted = (jobs.eligible <= snapshot.time) & (jobs.partition == snapshot.partition_names.index(partition))
    bound = {int(job.job_id) for job in snapshot.links.values() if job.node_list}
    return not {int(job_id) for job_id in jobs.job_id[wanted]} - bound


def idle_start(observation: Observation) -> WaitForecast | None:
    """Return a start now if a partition has enough idle nodes and no other pending job; else ``None``.

    Only of plain nodes: which idle nodes have which GRES or features is not known here.
    """
    snapshot, request = observation.snapshot, observation.successor
    partitions = request.partition or (observation.predecessor.partition if observation.predecessor else "")
    if _is_special(request):
        return None
    for partition in partitions.split(","):
        idle = _idle(snapshot, partition) or 0
        if idle >= request.nodes and _is_clear(snapshot, partition):
            basis = f"no job waits in partition {partition}, {idle} of its nodes are idle"
            return WaitForecast(_LEVELS, (observation.time,) * len(_LEVELS), basis)
    return None


def with_waiting_jobs(observation: Observation) -> tuple[Observation, int]:
    """Add the waits of pending jobs if fewer than ``ENOUGH`` waits are known; return their number too.

    Only jobs of the partition that request at most the successor's nodes and time. A pending job has waited for
    half of its time in the median, so twice its wait so far counts.
    """
    known, snapshot, request = observation.waits, observation.snapshot, observation.successor
    if not 0 < len(known.wait) < ENOUGH or request.partition not in snapshot.partition_names:
        return observation, 0
    jobs = snapshot.pending
    where = snapshot.partition_names.index(request.partition)
    alike = (jobs.partition == where) & (jobs.eligible <= snapshot.time)
    alike &= (jobs.nodes <= request.nodes) & (jobs.limit <= request.limit)
    alike &= ~np.isin(jobs.job_id, [int(job.job_id) for job in snapshot.links.values() if job.node_list])
    some = jobs.take(np.flatnonzero(alike)[-ENOUGH:])
    so_far = snapshot.time - np.maximum(some.submit, some.eligible)
    waits = RecentWaits(
        np.concatenate([known.start, np.full(len(some), snapshot.time)]),
        np.concatenate([known.wait, 2 * np.maximum(so_far, 0)]),
        np.concatenate([known.nodes, some.nodes]),
        np.concatenate([known.limit, some.limit]),
        known.partition,
    )
    return (replace(observation, waits=waits), len(some)) if len(some) else (observation, 0)


def _idle(snapshot: Snapshot, partition: str) -> int | None:
    """Return the idle nodes; ``None`` for an unknown partition."""
    return next((state.idle for state in snapshot.partitions if state.name == partition), None)


def _is_special(request: JobRequest) -> bool:
    return bool(request.gres_per_node or request.features or request.node_list or request.reservation)


_LOG = logging.getLogger(__name__)

ENOUGH_FORECASTS = 3
"""Number of predictions from which the majority decides; of fewer the first decides."""

_OWN = Wants(queue=True, standing=True)
"""Inputs that every prediction requires."""

ASK_AGAIN = 600
"""Seconds (Slurm's clock) until missing candidates are searched again."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """Predictors to choose from."""

    informed: Sequence[Predictor] = ()
    """Predictors that know the cluster, best first; a failing one is left out."""
    missing: str = ""
    """Why a candidate is missing that may be available later; empty: none is missing."""
    instead: Predictor | None = None
    """Fallback that replaces the usual predictor if none of ``informed`` gives a prediction."""

    @classmethod
    def none_helps(cls) -> Candidates:
        """Use no forecast where fair share outweighs age: all forecasts do worse there than none."""
        return cls(instead=Reactive("fair share outweighs age here: no forecast does better"))


class Auto:
    """Queries all candidates, and combines the best of them."""

    def __init__(
        self,
        candidates: Candidates,
        usual: Predictor,
        weights: Weights,
        find: Callable[[], Candidates] | None = None,
        name: str = AUTO,
    ) -> None:
        """``usual``: fallback if no candidate gives a prediction.

        ``find``: called by ``predict`` to search missing candidates; may take seconds.
        ``weights``: which quantile of a forecast is to reach the predecessor's end.
        """
        self.name = name
        self._candidates, self._usual = candidates, usual
        self._members = Members(candidates.informed, name)
        self._level = weights.critical_level
        self._find, self._looked = find, ABSENT
        self._unfit: Seconds = ABSENT
        """Observations up to this time may lack required inputs; ``ABSENT``: the next one may, too."""

    @property
    def wants(self) -> Wants:
        """Required inputs of the candidates found so far, and the queue."""
        return reduce(or_, (member.wants for member in (*self._members.all, self._usual)), _OWN)

    def predict(self, observation: Observation) -> Prediction:
        """Return the combined prediction. Raises ``ValueError`` if even the usual predictor has none."""
        if self._candidates.missing and self._find is not None and self._is_due(observation.time):
            self._look(self._find, observation.time)
            return self._as_usual(observation)
        answers = self._answers(observation) if self._is_whole(observation.time) else {}
        if not answers:
            return self._as_usual(observation)
        if len(answers) >= ENOUGH_FORECASTS:
            return majority(answers, observation, self._level)
        return self._first(answers, observation)

    def _look(self, find: Callable[[], Candidates], now: Seconds) -> None:
        found, before = find(), self._candidates.missing
        if found.missing and found.missing != before:
            _LOG.warning("event=candidates_missing predictor=%s text=%r", self.name, found.missing)
        self._candidates, self._members = found, Members(found.informed, self.name)
        self._looked, self._unfit = now, ABSENT

    def _is_due(self, now: Seconds) -> bool:
        return self._looked == ABSENT or not self._looked <= now < self._looked + ASK_AGAIN

    def _is_whole(self, time: Seconds) -> bool:
        """Whether the observation of ``time`` has the inputs of these candidates."""
        if self._unfit == ABSENT:
            self._unfit = time
        return self._find is None or time > self._unfit

    def _answers(self, observation: Observation) -> dict[str, Prediction]:
        """Predictions by candidate name, best first, without candidates that failed."""
        if not self._members.all:
            return {}
        try:
            asked = self._members.ask(observation, checked)
        except ValueError:  # logged, each of them
            return {}
        found = zip(self._members.all, asked, strict=True)
        return {member.name: answer for member, answer in found if answer is not None}

    def _as_usual(self, observation: Observation) -> Prediction:
        return _after_reservations(self._of_usual(observation), observation)

    def _of_usual(self, observation: Observation) -> Prediction:
        usual = self._candidates.instead or self._usual
        if usual is self._usual and (idle := idle_start(observation)) is not None:
            return (
                replace(idle, basis=f"{idle.basis} ({self._candidates.missing})")
                if self._candidates.missing
                else idle
            )
        waiting = 0
        if usual is self._usual:
            observation, waiting = with_waiting_jobs(observation)
        remarks = [f"{waiting} of these jobs wait still"] * bool(waiting)
        remarks += [self._candidates.missing] * bool(self._candidates.missing)
        return _told(usual.predict(observation), usual.name, "; ".join(remarks))

    def _first(self, answers: Mapping[str, Prediction], observation: Observation) -> Prediction:
        """The prediction of the best candidate; the basis names what the others would do."""
        name, *others = answers
        end = observation.predecessor.end if observation.predecessor is not None else ABSENT
        remarks = [
            f"{other} would {'submit now' if would_submit(answers[other], end, self._level) else 'hold'}"
            for other in others
            if end != ABSENT
        ]
        return _told(answers[name], name, "; ".join(remarks))


def auto_of(parameter: str, build: Callable[[str], Predictor], weights: Weights) -> Auto:
    """Build ``auto`` from predictors joined by ``+``, best first; fallback: quantile.

    Raises ``ValueError``, and as ``build`` does.
    """
    found = Candidates(tuple(map(build, members_of(AUTO, parameter))))
    return Auto(found, build("quantile"), weights, name=f"{AUTO}:{parameter}" if parameter else AUTO)


def _after_reservations(prediction: Prediction, observation: Observation) -> Prediction:
    """The forecast with no start before enough nodes are outside reservations: past waits know none of them."""
    free = observation.standing.unreserved
    if free <= observation.time or not isinstance(prediction, WaitForecast) or prediction.rule:
        return prediction
    starts = tuple(max(start, free) for start in prediction.starts)
    if starts == tuple(prediction.starts):
        return prediction
    basis = f"{prediction.basis}; a reservation keeps the nodes until then" if prediction.basis else ""
    return replace(prediction, starts=starts, basis=basis)


def _told(prediction: Prediction, name: str, remark: str) -> Prediction:
    """Return the prediction with the candidate's name in its basis."""
    if isinstance(prediction, ActionScores):
        own = prediction.basis or f"submitting now scores {prediction.submit:.6g}, holding {prediction.hold:.6g}"
    else:
        own = prediction.basis
    basis = f"{name}: {own}" if own else name
    return replace(prediction, basis=f"{basis} ({remark})" if remark else basis)
