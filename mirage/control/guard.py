"""Keeps a predictor from stopping the loop: what raises or takes too long is answered for."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from mirage.domain.decision import ActionScores, WaitForecast
from mirage.domain.errors import PluginNotFound

if TYPE_CHECKING:
    from mirage.domain.decision import Observation, Prediction, Wants
    from mirage.ports import Predictor


@dataclass(frozen=True, slots=True)
class Answer:
    """A prediction, and what went wrong on the way to it."""

    prediction: Prediction
    by: str
    """The name of the predictor that answered."""
    trouble: str = ""
    """Empty: the one that was asked answered."""
    model: str = ""
    """Which version of a trained model answered."""


Took = Callable[[str, float], None]
"""Is told, in whatever thread asks, who was asked and how many real seconds that took."""


def unheard(name: str, seconds: float) -> None:
    """Nobody wants to know."""
    del name, seconds


class Guard:
    """Asks ``predictor``; where it raises, or is still busy after ``budget`` seconds, asks ``fallback``.

    A fallback that may fail as well, or take long, is a guard itself. Without a budget the predictor runs in the
    caller's thread. With one it runs in a thread of its own; while a late answer is still being worked on the
    fallback answers at once, so a predictor that hangs costs one budget, not one a cycle.
    """

    def __init__(
        self,
        predictor: Predictor,
        fallback: Predictor | Guard,
        budget: float | None = None,
        took: Took = unheard,
    ) -> None:
        self.predictor = predictor
        self._took = took
        self._fallback = fallback
        self._budget = budget
        self._late: Future[Prediction] | None = None
        self._thread = ThreadPoolExecutor(1, "predictor") if budget is not None else None

    def predict(self, observation: Observation) -> Answer:
        """A prediction in any case; the fallback's when the predictor has none."""
        try:
            prediction = self._timed(observation)
        except Exception as error:
            return self._instead(observation, f"no prediction: {str(error) or type(error).__name__}")
        return Answer(prediction, self.predictor.name, model=str(getattr(self.predictor, "version", "")))

    @property
    def wants(self) -> Wants:
        """What an observation must bring, for the fallback too."""
        return self.predictor.wants | self._fallback.wants

    def close(self) -> None:
        """Let go of the thread; a predictor that hangs is not waited for."""
        if isinstance(self._fallback, Guard):
            self._fallback.close()
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)

    def _instead(self, observation: Observation, trouble: str) -> Answer:
        if not isinstance(self._fallback, Guard):
            name = self._fallback.name
            return Answer(self._fallback.predict(observation), name, f"{trouble}; {name} answered")
        answer = self._fallback.predict(observation)
        next_ = f"{self._fallback.predictor.name}: {answer.trouble}" if answer.trouble else f"{answer.by} answered"
        return replace(answer, trouble=f"{trouble}; {next_}")

    def _timed(self, observation: Observation) -> Prediction:
        began = time.monotonic()
        try:
            return _checked(self._ask(observation))
        finally:
            self._took(self.predictor.name, time.monotonic() - began)

    def _ask(self, observation: Observation) -> Prediction:
        if self._thread is None:
            return self.predictor.predict(observation)
        if self._late is not None and not self._late.done():
            raise TimeoutError("still busy with an earlier question")
        self._late = self._thread.submit(self.predictor.predict, observation)
        try:
            return self._late.result(self._budget)
        except TimeoutError:
            raise TimeoutError(f"no answer within {self._budget} s") from None


class Guards:
    """The guarded predictors of all chains: the default, and those that chains name, built when first wanted.

    ``shadows`` are asked at every decision as well; what they say is written down and decides nothing.
    """

    def __init__(
        self, default: Guard, build: Callable[[str], Guard] | None = None, shadows: tuple[Guard, ...] = ()
    ) -> None:
        self._default = default
        self._build = build
        self._named: dict[str, Guard] = {}
        self.shadows = shadows

    def of(self, name: str) -> Guard:
        """The guard of the predictor so named; empty: the default. Raises ``PluginNotFound``, ``ConfigError``."""
        if not name or name == self._default.predictor.name:
            return self._default
        shadow = next((each for each in self.shadows if each.predictor.name == name), None)
        if shadow is not None:
            return shadow
        if name not in self._named:
            if self._build is None:
                raise PluginNotFound(f"no predictor {name!r}: only {self._default.predictor.name!r} is at hand")
            self._named[name] = self._build(name)
        return self._named[name]

    def wants_of(self, name: str) -> Wants:
        """What an observation must bring for a chain that names this predictor, and for the shadows."""
        return reduce(or_, (shadow.wants for shadow in self.shadows), self.of(name).wants)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the predictors that the daemon itself names, the default's first; chains may name others."""
        return tuple(guard.predictor.name for guard in (self._default, *self.shadows))

    @property
    def wants(self) -> Wants:
        """What any of them wants."""
        return reduce(or_, (guard.wants for guard in self._all()))

    def _all(self) -> tuple[Guard, ...]:
        return (self._default, *self._named.values(), *self.shadows)

    def close(self) -> None:
        """Let go of all threads."""
        for guard in self._all():
            guard.close()


def _checked(prediction: Prediction) -> Prediction:
    """The same prediction. Raises ``ValueError`` for one that says nothing (NaN, levels without starts)."""
    if isinstance(prediction, ActionScores):
        numbers: tuple[float, ...] = (prediction.submit, prediction.hold)
    elif isinstance(prediction, WaitForecast):
        numbers = prediction.starts
    else:
        raise TypeError(f"predicted {type(prediction).__name__}, not a WaitForecast or ActionScores")
    if not numbers or any(number != number for number in numbers):  # noqa: PLR0124 (NaN differs from itself)
        raise ValueError(f"predicted nothing usable: {prediction}")
    return prediction
