"""Guards of predictors: if one fails or exceeds its time budget, a fallback predicts and the loop continues.

Predictors run in threads of their own, as they may hang: bounded in number, each ends with its work.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from mirage.domain.decision import checked
from mirage.domain.errors import PluginNotFound

if TYPE_CHECKING:
    from mirage.control.named_predictors import NamedGuards
    from mirage.domain.decision import Observation, Prediction, Wants
    from mirage.ports import Predictor

T = TypeVar("T")
P = ParamSpec("P")

STUCK = 60.0
"""Seconds of work after which a thread counts as stuck."""


class Workers:
    """At most ``most`` threads at the same time. They do not prevent the process from ending."""

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._lock = threading.Lock()
        self._began: dict[Future[object], float] = {}

    def submit(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Begin ``work`` now. Raises ``TimeoutError`` where all threads are busy."""
        promise: Future[T] = Future()

        def run() -> None:
            try:
                promise.set_result(work(*args, **kwargs))
            except BaseException as error:
                promise.set_exception(error)
            finally:
                with self._lock:
                    del self._began[promise]  # type: ignore[arg-type]

        with self._lock:
            if len(self._began) >= self._most:
                raise TimeoutError(f"all {self._most} threads of {self._name} are busy")
            self._began[promise] = time.monotonic()  # type: ignore[index]
        threading.Thread(target=run, name=self._name, daemon=True).start()
        return promise

    @property
    def stuck(self) -> int:
        """Threads that have worked for longer than ``STUCK``. Any thread."""
        now = time.monotonic()
        with self._lock:
            return sum(now - began > STUCK for began in self._began.values())


@dataclass(frozen=True, slots=True)
class PredictorThreads:
    """The threads of all predictors of a process; a reload keeps them, so that those that hang stay bounded."""

    builders: Workers = field(default_factory=lambda: Workers(2, "predictor-build"))
    named: Workers = field(default_factory=lambda: Workers(8, "predictor"))
    """Of predictors that users name."""
    configured: Workers = field(default_factory=lambda: Workers(32, "predictor"))
    """Of those that the configuration names."""

    @property
    def stuck(self) -> int:
        """Threads that have worked for so long that they will hardly end. Any thread."""
        return self.builders.stuck + self.named.stuck + self.configured.stuck


@dataclass(frozen=True, slots=True)
class Asker:
    """The user for whom a predictor is kept in memory."""

    user: str
    question: bool = False
    """For a request of that user, not for a chain: chains have priority."""


NOBODY = Asker("")


@dataclass(frozen=True, slots=True)
class GuardedPrediction:
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


class PredictorGuard:
    """Query ``predictor``; if it raises, or is still busy after ``budget`` seconds, use ``fallback``.

    A fallback that may fail as well, or take long, is a guard itself. Without a budget the predictor runs in the
    caller's thread. With one it runs in a separate thread, or in one of ``workers``. While a late prediction is
    still running, the fallback is used immediately: a predictor that hangs costs one budget, not one per cycle.
    """

    def __init__(
        self,
        predictor: Predictor,
        fallback: Predictor | PredictorGuard,
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

    def predict(self, observation: Observation) -> GuardedPrediction:
        """Return a prediction in any case: the fallback's if the predictor has none."""
        try:
            prediction = self._timed(observation)
        except Exception as error:
            return self.instead(observation, f"no prediction: {str(error) or type(error).__name__}")
        return GuardedPrediction(
            prediction, self.predictor.name, model=str(getattr(self.predictor, "version", ""))
        )

    @property
    def wants(self) -> Wants:
        """Inputs that the predictor and its fallbacks require."""
        return self.predictor.wants | self.fallback.wants

    @property
    def last_resort(self) -> str:
        """Name of the predictor that is used when all others have failed; it does not use the queue."""
        return self.fallback.last_resort if isinstance(self.fallback, PredictorGuard) else self.fallback.name

    def close(self) -> None:
        """Shut down the thread without waiting for a predictor that hangs."""
        if isinstance(self.fallback, PredictorGuard):
            self.fallback.close()
        if self._own is not None:
            self._own.shutdown(wait=False, cancel_futures=True)

    def instead(self, observation: Observation, trouble: str) -> GuardedPrediction:
        """Return the fallback's prediction, with the ``trouble`` of the predictor."""
        if not isinstance(self.fallback, PredictorGuard):
            name = self.fallback.name
            return GuardedPrediction(self.fallback.predict(observation), name, f"{trouble}; fell back to {name}")
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

    def __init__(
        self, default: PredictorGuard, named: NamedGuards | None = None, shadows: tuple[PredictorGuard, ...] = ()
    ) -> None:
        self._default = default
        self._named = named
        self.shadows = shadows

    def of(self, name: str, asker: Asker = NOBODY) -> PredictorGuard:
        """Return the guard of the predictor with this name; empty: the default. Never waits.

        Raises ``PluginNotFound`` where chains cannot name predictors.
        """
        return self._at_work(name) or self._others(name).of(name, asker)

    def check(self, name: str) -> None:
        """Raise ``PluginNotFound`` or ``ConfigError`` if the name is known to be unusable. Never waits."""
        if self._at_work(name) is None:
            self._others(name).check(name)

    def prepare(self, name: str, seconds: float, asker: Asker = NOBODY) -> PredictorGuard:
        """Like ``of``, but wait up to ``seconds`` until the predictor is built. Raises why it cannot be built."""
        return self._at_work(name) or self._others(name).prepare(name, seconds, asker)

    def _at_work(self, name: str) -> PredictorGuard | None:
        if not name or name == self._default.predictor.name:
            return self._default
        return next((each for each in self.shadows if each.predictor.name == name), None)

    def _others(self, name: str) -> NamedGuards:
        if self._named is None:
            raise PluginNotFound(f"no predictor {name!r}: only {self._default.predictor.name!r} is available")
        return self._named

    def wants_of(self, guard: PredictorGuard) -> Wants:
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
