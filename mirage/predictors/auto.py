"""The best of the predictors that are at hand.

On months that no model had seen, the majority of three or more predictors that know the cluster cost less than
each of them alone, look-ahead alone came next, and all of them were better than the waits of the last jobs. Where
fair share outweighs age, every forecast was worse than submitting at the end.
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
"""So many that answer vote; of fewer the first decides."""

ASK_AGAIN = 600
"""Slurm's seconds after which candidates are looked for again where some could not be had."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """The predictors to choose among."""

    informed: Sequence[Predictor] = ()
    """Those that know the cluster, the best first; one that fails is left out."""
    missing: str = ""
    """Why one that may be there later is not among them, for the reader; empty: all are."""
    instead: Predictor | None = None
    """Answers in place of the usual one where none of ``informed`` does."""

    @classmethod
    def none_helps(cls) -> Candidates:
        """Where fair share outweighs age: a forecast reads the waits of others, and each does worse than none."""
        return cls(instead=Reactive("fair share outweighs age here: no forecast does better"))


class Auto:
    """Asks all candidates, and answers as the best of them do."""

    def __init__(
        self,
        candidates: Candidates,
        usual: Predictor,
        weights: Weights,
        find: Callable[[], Candidates] | None = None,
        name: str = AUTO,
    ) -> None:
        """``usual`` answers where no candidate does.

        ``find``: called by ``predict``, where candidates are missing, to have them all; it may take seconds.
        ``weights``: which quantile of a forecast is to reach the predecessor's end.
        """
        self.name = name
        self._candidates, self._usual = candidates, usual
        self._members = Members(candidates.informed, name)
        self._level = weights.critical_level
        self._find, self._looked = find, ABSENT
        self._unfit: Seconds = ABSENT
        """Up to here observations may lack what the candidates want; ``ABSENT``: the next one may, too."""

    @property
    def wants(self) -> Wants:
        """What the candidates want that were found so far, and the queue."""
        return reduce(or_, (member.wants for member in (*self._members.all, self._usual)), Wants(queue=True))

    def predict(self, observation: Observation) -> Prediction:
        """The candidates' answer. Raises ``ValueError`` where not even the usual predictor has one."""
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
        """Whether the observation of ``time`` was made for these candidates: it begins after they were wanted."""
        if self._unfit == ABSENT:
            self._unfit = time
        return self._find is None or time > self._unfit

    def _answers(self, observation: Observation) -> dict[str, Prediction]:
        """Of the candidates that have one, by name, the best first."""
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
        """The answer of the best one, with what the others would do."""
        name, *others = answers
        end = observation.predecessor.end if observation.predecessor is not None else ABSENT
        remarks = [
            f"{other} would {'submit now' if would_submit(answers[other], end, self._level) else 'hold'}"
            for other in others
            if end != ABSENT
        ]
        return _told(answers[name], name, "; ".join(remarks))


def auto_of(parameter: str, build: Callable[[str], Predictor], weights: Weights) -> Auto:
    """The best of the predictors named, ``+`` between them and the best first; quantile where none answers.

    Raises ``ValueError``, and as ``build`` does.
    """
    found = Candidates(tuple(map(build, members_of(AUTO, parameter))))
    return Auto(found, build("quantile"), weights, name=f"{AUTO}:{parameter}" if parameter else AUTO)


def _told(prediction: Prediction, name: str, remark: str) -> Prediction:
    """The same, saying whose answer it is."""
    if isinstance(prediction, ActionScores):
        own = prediction.basis or f"submitting now scores {prediction.submit:.6g}, holding {prediction.hold:.6g}"
    else:
        own = prediction.basis
    basis = f"{name}: {own}" if own else name
    return replace(prediction, basis=f"{basis} ({remark})" if remark else basis)
