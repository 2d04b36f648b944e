"""Keeps a predictor from stopping the loop: what raises or takes too long is answered for."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from mirage.domain.decision import checked
from mirage.domain.errors import PluginNotFound

if TYPE_CHECKING:
    from mirage.control.named import NamedGuards
    from mirage.control.workers import PredictorThreads, Workers
    from mirage.domain.decision import Observation, Prediction, Wants
    from mirage.ports import Predictor


@dataclass(frozen=True, slots=True)
class Asker:
    """For whom a predictor is kept."""

    user: str
    question: bool = False
    """Not for a chain of that user: chains go first."""


NOBODY = Asker("")


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
    caller's thread. With one it runs in a thread of its own, or of ``workers``; while a late answer is still being
    worked on the fallback answers at once, so a predictor that hangs costs one budget, not one a cycle.
    """

    def __init__(
        self,
        predictor: Predictor,
        fallback: Predictor | Guard,
        budget: float | None = None,
        took: Took = unheard,
        workers: Workers | None = None,
    ) -> None:
        self.predictor = predictor
        self.fallback = fallback
        self._took = took
        self._budget = budget
        self._late: Future[Prediction] | None = None
        self._own = ThreadPoolExecutor(1, "predictor") if budget is not None and workers is None else None
        self._thread = (workers or self._own) if budget is not None else None

    def predict(self, observation: Observation) -> Answer:
        """A prediction in any case; the fallback's when the predictor has none."""
        try:
            prediction = self._timed(observation)
        except Exception as error:
            return self.instead(observation, f"no prediction: {str(error) or type(error).__name__}")
        return Answer(prediction, self.predictor.name, model=str(getattr(self.predictor, "version", "")))

    @property
    def wants(self) -> Wants:
        """What an observation must bring, for the fallback too."""
        return self.predictor.wants | self.fallback.wants

    @property
    def last_resort(self) -> str:
        """The name of the predictor that answers when all others have failed; it knows nothing of the queue."""
        return self.fallback.last_resort if isinstance(self.fallback, Guard) else self.fallback.name

    def close(self) -> None:
        """Let go of the thread; a predictor that hangs is not waited for."""
        if isinstance(self.fallback, Guard):
            self.fallback.close()
        if self._own is not None:
            self._own.shutdown(wait=False, cancel_futures=True)

    def instead(self, observation: Observation, trouble: str) -> Answer:
        """What is answered in the predictor's place, and after which trouble with it."""
        if not isinstance(self.fallback, Guard):
            name = self.fallback.name
            return Answer(self.fallback.predict(observation), name, f"{trouble}; {name} answered")
        answer = self.fallback.predict(observation)
        next_ = f"{self.fallback.predictor.name}: {answer.trouble}" if answer.trouble else f"{answer.by} answered"
        return replace(answer, trouble=f"{trouble}; {next_}")

    def _timed(self, observation: Observation) -> Prediction:
        began = time.monotonic()
        try:
            return checked(self._ask(observation))
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
    """The guarded predictors of all chains: the default, and those that chains name.

    ``shadows`` are asked at every decision as well; what they say is written down and decides nothing.
    """

    def __init__(self, default: Guard, named: NamedGuards | None = None, shadows: tuple[Guard, ...] = ()) -> None:
        self._default = default
        self._named = named
        self.shadows = shadows

    def of(self, name: str, asker: Asker = NOBODY) -> Guard:
        """The guard of the predictor so named; empty: the default. Never waits.

        Raises ``PluginNotFound`` where chains cannot name predictors.
        """
        return self._at_work(name) or self._others(name).of(name, asker)

    def check(self, name: str) -> None:
        """Raise what is known to be wrong with the name: ``PluginNotFound``, ``ConfigError``. Never waits."""
        if self._at_work(name) is None:
            self._others(name).check(name)

    def prepare(self, name: str, seconds: float, asker: Asker = NOBODY) -> Guard:
        """As ``of``, once the predictor is built or so many seconds are over. Raises why it cannot be built."""
        return self._at_work(name) or self._others(name).prepare(name, seconds, asker)

    def _at_work(self, name: str) -> Guard | None:
        if not name or name == self._default.predictor.name:
            return self._default
        return next((each for each in self.shadows if each.predictor.name == name), None)

    def _others(self, name: str) -> NamedGuards:
        if self._named is None:
            raise PluginNotFound(f"no predictor {name!r}: only {self._default.predictor.name!r} is at hand")
        return self._named

    def wants_of(self, guard: Guard) -> Wants:
        """What an observation must bring for a chain that this predictor decides, and for the shadows."""
        return reduce(or_, (shadow.wants for shadow in self.shadows), guard.wants)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the predictors that the daemon itself names, the default's first; chains may name others."""
        return tuple(guard.predictor.name for guard in (self._default, *self.shadows))

    @property
    def wants(self) -> Wants:
        """What any of them wants."""
        known = reduce(or_, (guard.wants for guard in (self._default, *self.shadows)))
        return known | self._named.wants if self._named is not None else known

    @property
    def stuck(self) -> int:
        """Threads of predictors that will hardly end. Any thread."""
        return self.threads.stuck if self.threads is not None else 0

    @property
    def threads(self) -> PredictorThreads | None:
        """For the guards that follow these at a reload; ``None``: they have no threads in common."""
        return self._named.threads if self._named is not None else None

    def close(self) -> None:
        """Let go of the threads of those that the daemon itself names; others end with their work."""
        for guard in (self._default, *self.shadows):
            guard.close()
