"""Prediction requests of users: the loop's thread answers them while it waits for the next cycle.

A request never displaces a decision: commands and cycles come first, and between two checks of the clock one
request is answered.
"""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import Future
from dataclasses import dataclass
from enum import StrEnum
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from mirage.domain.decision import ActionScores
from mirage.domain.errors import ClusterUnavailable, MirageError
from mirage.domain.job import ABSENT
from mirage.domain.shares import find_displaced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mirage.control.guard import Guards, PredictorGuard
    from mirage.control.observations import ObservationBuilder
    from mirage.domain.decision import Observation, PlannedStart, Prediction, WaitForecast
    from mirage.domain.job import JobRequest, Seconds
    from mirage.domain.snapshot import Snapshot

MOST_WAITING = 32
"""Maximum number of queued requests; each may cost the time budget of each predictor."""


MOST_OF_ONE = 8
"""Maximum number of queued requests about jobs of one user; the other places are for other users."""


class TooManyPredictionRequests(MirageError):
    """The queue of prediction requests is full."""


class Role(StrEnum):
    """Why a predictor is asked."""

    IN_CHARGE = "in charge"
    INSTEAD = "instead"
    """A fallback that answered, as the active predictor failed."""
    SHADOW = "shadow"
    NAMED = "named"


@dataclass(frozen=True, slots=True)
class PredictionRequest:
    """When would this job start if it were submitted now?"""

    request: JobRequest
    named: PredictorGuard | None = None
    """An additional predictor, used only for this request."""
    only_charge: bool = False


"""Use only the active predictor, not the shadow predictors."""


@dataclass(frozen=True, slots=True)
class PredictorReply:
    """What one predictor makes of it."""

    predictor: str
    role: Role
    forecast: WaitForecast | None
    trouble: str = ""
    """Why there is no forecast."""


@dataclass(frozen=True, slots=True)
class PredictionResult:
    """What all that were asked make of it."""

    time: Seconds
    """The snapshot's, on which all of it rests."""
    stale_since: Seconds
    planned_start: PlannedStart
    """Slurm's planned start of such a job, if a predictor requires it, or why there is none."""
    said: tuple[PredictorReply, ...]
    partition: str = ""
    """Where such a job would run; empty: that is not known."""


class PredictionQueue:
    """Any thread asks, the loop's thread answers. Equal questions that wait are one.

    ``nudge`` ends the loop's wait.
    """

    def __init__(self, nudge: Callable[[], None]) -> None:
        self._nudge = nudge
        self._waiting: dict[PredictionRequest, Future[PredictionResult]] = {}
        self._lock = threading.Lock()

    def ask(self, question: PredictionRequest) -> Future[PredictionResult]:
        """Return a future, shared by all callers with an equal request; do not cancel it.

        Raises ``TooManyPredictionRequests``.
        """
        with self._lock:
            known = self._waiting.get(question)
            if known is not None:
                return known
            user, count = question.request.user, Counter(other.request.user for other in self._waiting)
            if count[user] >= MOST_OF_ONE:
                raise TooManyPredictionRequests(
                    f"{MOST_OF_ONE} prediction requests of {user} are queued; retry later"
                )
            displaced = self._make_room(count, user) if len(self._waiting) >= MOST_WAITING else None
            promise = self._waiting[question] = Future[PredictionResult]()
        if displaced is not None:
            displaced.set_exception(
                TooManyPredictionRequests(
                    "other users have prediction requests too; retry later, with fewer of them"
                )
            )
        self._nudge()
        return promise

    def _make_room(self, count: Counter[str], user: str) -> Future[PredictionResult]:
        """Remove the newest request of the user with the most, and return its future.

        Raises ``TooManyPredictionRequests``.
        """
        heaviest = find_displaced(count, user)
        if heaviest is None:
            raise TooManyPredictionRequests(f"{len(self._waiting)} prediction requests are queued; retry later")
        newest = next(other for other in reversed(self._waiting) if other.request.user == heaviest)
        return self._waiting.pop(newest)

    def answer(self, foresee: Callable[[PredictionRequest], PredictionResult]) -> bool:
        """Answer the request that has waited longest; return whether there was one."""
        with self._lock:
            question = next(iter(self._waiting), None)
        if question is None:
            return False
        try:
            result: PredictionResult | Exception = foresee(question)
        except Exception as error:  # the caller gets the error; the loop continues
            result = error
        with self._lock:
            promise = self._waiting.pop(question)
        if isinstance(result, Exception):
            promise.set_exception(result)
        else:
            promise.set_result(result)
        return True

    def close(self) -> None:
        """Fail all waiting requests: the loop has ended."""
        with self._lock:
            left, self._waiting = list(self._waiting.values()), {}
        for promise in left:
            promise.set_exception(MirageError("the daemon is stopping; retry once it runs again"))


class PredictionService:
    """Predict starts of jobs that are not submitted; results for the last snapshot are cached."""

    def __init__(self, observer: ObservationBuilder) -> None:
        self._observer = observer
        self._known: dict[PredictionRequest, PredictionResult] = {}
        self._seen: tuple[Snapshot, Guards] | None = None

    def foresee(
        self, question: PredictionRequest, snapshot: Snapshot, guards: Guards, alive: Callable[[], None]
    ) -> PredictionResult:
        """Return the predictions for ``question`` from ``snapshot``; call ``alive`` between predictors.

        Raises ``ClusterUnavailable`` if the cluster has not answered yet.
        """
        if snapshot.stale and snapshot.stale_since == snapshot.time and not snapshot.partitions:
            raise ClusterUnavailable("the cluster has not answered yet; retry in a minute")
        if self._seen is None or self._seen[0] is not snapshot or self._seen[1] is not guards:
            self._seen, self._known = (snapshot, guards), {}
        if question not in self._known:
            self._known[question] = self._foreseen(question, snapshot, guards, alive)
        return self._known[question]

    def _foreseen(
        self, question: PredictionRequest, snapshot: Snapshot, guards: Guards, alive: Callable[[], None]
    ) -> PredictionResult:
        asked = list(_asked(question, guards))
        wants = reduce(or_, (guard.wants for guard, _ in asked))
        observation = self._observer.observe(snapshot, None, question.request, wants)
        said: list[PredictorReply] = []
        for guard, role in asked:
            alive()
            if (guard.predictor.name, Role.INSTEAD) not in ((each.predictor, each.role) for each in said):
                said.extend(_said(guard, role, observation))
        where = observation.successor.partition
        return PredictionResult(
            snapshot.time, _stale_since(snapshot), observation.planned_start, tuple(said), where
        )


def _asked(question: PredictionRequest, guards: Guards) -> Iterator[tuple[PredictorGuard, Role]]:
    charge = guards.of("")
    yield charge, Role.IN_CHARGE
    if not question.only_charge:
        yield from ((guard, Role.SHADOW) for guard in guards.shadows if guard is not charge)
    if question.named is not None:
        yield question.named, Role.NAMED


def _said(guard: PredictorGuard, role: Role, observation: Observation) -> Iterator[PredictorReply]:
    """Yield its reply and, if it failed, that of the fallback that would decide."""
    name, answer = guard.predictor.name, guard.predict(observation)
    if not answer.trouble:
        yield _reply(name, role, answer.prediction)
        return
    yield PredictorReply(name, role, None, answer.trouble)
    if role is Role.IN_CHARGE and answer.by != guard.last_resort:
        instead = _reply(answer.by, Role.INSTEAD, answer.prediction)
        if instead.forecast is not None:
            yield instead


def _reply(name: str, role: Role, prediction: Prediction) -> PredictorReply:
    """Return a reply; scores and rules have no meaning for a job without a predecessor."""
    if not isinstance(prediction, ActionScores):
        return PredictorReply(name, role, None if prediction.rule else prediction, prediction.rule)
    if prediction.forecast is not None:
        return PredictorReply(name, role, prediction.forecast)
    return PredictorReply(
        name, role, None, "it scores the actions submit and hold at a handover and predicts no start"
    )


def _stale_since(snapshot: Snapshot) -> Seconds:
    return snapshot.stale_since if snapshot.stale else ABSENT
