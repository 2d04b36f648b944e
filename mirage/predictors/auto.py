"""`auto`: the best of the available predictors.

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

from mirage.domain.decision import ActionScores, Wants, checked
from mirage.domain.job import ABSENT
from mirage.predictors.idlequeue import idle_start, with_waiting_jobs
from mirage.predictors.members import AUTO, Members, members_of
from mirage.predictors.reactive import Reactive
from mirage.predictors.vote import majority, would_submit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mirage.domain.decision import Observation, Prediction
    from mirage.domain.job import Seconds
    from mirage.domain.objective import Weights
    from mirage.ports import Predictor

_LOG = logging.getLogger(__name__)

ENOUGH = 3
"""Number of predictions from which the majority decides; of fewer the first decides."""

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
        return reduce(or_, (member.wants for member in (*self._members.all, self._usual)), Wants(queue=True))

    def predict(self, observation: Observation) -> Prediction:
        """Return the combined prediction. Raises ``ValueError`` if even the usual predictor has none."""
        if self._candidates.missing and self._find is not None and self._is_due(observation.time):
            self._look(self._find, observation.time)
            return self._as_usual(observation)
        answers = self._answers(observation) if self._is_whole(observation.time) else {}
        if not answers:
            return self._as_usual(observation)
        if len(answers) >= ENOUGH:
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


def _told(prediction: Prediction, name: str, remark: str) -> Prediction:
    """Return the prediction with the candidate's name in its basis."""
    if isinstance(prediction, ActionScores):
        own = prediction.basis or f"submitting now scores {prediction.submit:.6g}, holding {prediction.hold:.6g}"
    else:
        own = prediction.basis
    basis = f"{name}: {own}" if own else name
    return replace(prediction, basis=f"{basis} ({remark})" if remark else basis)
