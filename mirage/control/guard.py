"""Guards of predictors: if one fails or exceeds its time budget, a fallback predicts and the loop continues."""

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
    """The user for whom a predictor is kept in memory."""

    user: str
    question: bool = False
    """For a request of that user, not for a chain: chains have priority."""


NOBODY = Asker("")


@dataclass(frozen=True, slots=True)
class Answer:
    """A prediction, and which predictors failed before it."""

    prediction: Prediction
    by: str
    """Name of the predictor that made it."""
    trouble: str = ""
    """Why the required predictor did not make it; empty: it did."""
    model: str = ""
    """Version of the trained model that made it."""


Took = Callable[[str, float], None]
"""Callback with the predictor's name and the real seconds that it took, in the thread of the caller."""


def unheard(name: str, seconds: float) -> None:
    """Do nothing."""
    del name, seconds


class Guard:
    """Query ``predictor``; if it raises, or is still busy after ``budget`` seconds, use ``fallback``.

    A fallback that may fail as well, or take long, is a guard itself. Without a budget the predictor runs in the
    caller's thread. With one it runs in a separate thread, or in one of ``workers``. While a late prediction is
    still running, the fallback is used immediately: a predictor that hangs costs one budget, not one per cycle.
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
        """Return a prediction in any case: the fallback's if the predictor has none."""
        try:
            prediction = self._timed(observation)
        except Exception as error:
            return self.instead(observation, f"no prediction: {str(error) or type(error).__name__}")
        return Answer(prediction, self.predictor.name, model=str(getattr(self.predictor, "version", "")))

    @property
    def wants(self) -> Wants:
        """Inputs that the predictor and its fallbacks require."""
        return self.predictor.wants | self.fallback.wants

    @property
    def last_resort(self) -> str:
        """Name of the predictor that is used when all others have failed; it does not use the queue."""
        return self.fallback.last_resort if isinstance(self.fallback, Guard) else self.fallback.name

    def close(self) -> None:
        """Shut down the thread without waiting for a predictor that hangs."""
        if isinstance(self.fallback, Guard):
            self.fallback.close()
        if self._own is not None:
            self._own.shutdown(wait=False, cancel_futures=True)

    def instead(self, observation: Observation, trouble: str) -> Answer:
        """Return the fallback's prediction, with the ``trouble`` of the predictor."""
        if not isinstance(self.fallback, Guard):
            name = self.fallback.name
            return Answer(self.fallback.predict(observation), name, f"{trouble}; fell back to {name}")
        answer = self.fallback.predict(observation)
        used = f"fell back to {answer.by}"
        next_ = f"{self.fallback.predictor.name}: {answer.trouble}" if answer.trouble else used
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
            raise TimeoutError("still busy with an earlier prediction")
        self._late = self._thread.submit(self.predictor.predict, observation)
        try:
            return self._late.result(self._budget)
        except TimeoutError:
            raise TimeoutError(f"no prediction within {self._budget} s") from None


class Guards:
    """The guarded predictors of all chains: the default, and those that chains name.

    ``shadows`` predict at every decision as well; their predictions are recorded and decide nothing.
    """

    def __init__(self, default: Guard, named: NamedGuards | None = None, shadows: tuple[Guard, ...] = ()) -> None:
        self._default = default
        self._named = named
        self.shadows = shadows

    def of(self, name: str, asker: Asker = NOBODY) -> Guard:
        """Return the guard of the predictor with this name; empty: the default. Never waits.

        Raises ``PluginNotFound`` where chains cannot name predictors.
        """
        return self._at_work(name) or self._others(name).of(name, asker)

    def check(self, name: str) -> None:
        """Raise ``PluginNotFound`` or ``ConfigError`` if the name is known to be unusable. Never waits."""
        if self._at_work(name) is None:
            self._others(name).check(name)

    def prepare(self, name: str, seconds: float, asker: Asker = NOBODY) -> Guard:
        """Like ``of``, but wait up to ``seconds`` until the predictor is built. Raises why it cannot be built."""
        return self._at_work(name) or self._others(name).prepare(name, seconds, asker)

    def _at_work(self, name: str) -> Guard | None:
        if not name or name == self._default.predictor.name:
            return self._default
        return next((each for each in self.shadows if each.predictor.name == name), None)

    def _others(self, name: str) -> NamedGuards:
        if self._named is None:
            raise PluginNotFound(f"no predictor {name!r}: only {self._default.predictor.name!r} is available")
        return self._named

    def wants_of(self, guard: Guard) -> Wants:
        """Return the inputs that this predictor and the shadow predictors require."""
        return reduce(or_, (shadow.wants for shadow in self.shadows), guard.wants)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the configured predictors, the default first; chains may name others."""
        return tuple(guard.predictor.name for guard in (self._default, *self.shadows))

    @property
    def wants(self) -> Wants:
        """Inputs that any of the predictors requires."""
        known = reduce(or_, (guard.wants for guard in (self._default, *self.shadows)))
        return known | self._named.wants if self._named is not None else known

    @property
    def stuck(self) -> int:
        """Number of predictor threads that are stuck. Any thread."""
        return self.threads.stuck if self.threads is not None else 0

    @property
    def threads(self) -> PredictorThreads | None:
        """Threads that the guards of the next configuration take over; ``None``: no shared threads."""
        return self._named.threads if self._named is not None else None

    def close(self) -> None:
        """Shut down the threads of the configured predictors; others end with their work."""
        for guard in (self._default, *self.shadows):
            guard.close()
