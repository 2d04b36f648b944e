"""Predictors that users name: built outside the loop's thread, bounded in number, with a fallback."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

from mirage.control.guard import NOBODY, PredictorGuard, PredictorThreads, unheard
from mirage.domain.decision import Wants
from mirage.domain.errors import ConfigError, MirageError, PluginNotFound
from mirage.predictors.members import SHOWN, check_name, is_combined
from mirage.predictors.registry import build_predictor, is_built_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from concurrent.futures import Future

    from mirage.control.guard import Asker, Took
    from mirage.domain.decision import Observation, Prediction
    from mirage.ports import Predictor

MOST, MOST_ENSEMBLES = 16, 8
"""Maximum number of predictors with models in memory, and of ensembles."""
_SHARE = 4
"""A user may have at most this fraction (1 / N) of these places."""
MOST_PLAIN = 64
"""Maximum number of cached predictors that are only a number with a name; others are built when needed."""
_MOST_FAILED = 256
_IDLE = 3_600.0
"""Seconds after which an unused predictor may be dropped for another."""
_RETRY = 300.0
_LONGEST = 400
"""Characters of an error that the journal quotes."""
_LOOK = 0.02


class _Absent:
    """In the place of a predictor that is not there: says why, so that the fallback answers."""

    wants = Wants()

    def __init__(self, name: str, why: str) -> None:
        self.name = name
        self._why = why

    def predict(self, observation: Observation) -> Prediction:
        """Raises ``PluginNotFound``."""
        del observation
        raise PluginNotFound(self._why)


@dataclass(slots=True)
class _Built:
    promise: Future[Predictor]
    guard: PredictorGuard | None = None
    chains: dict[str, float] = field(default_factory=dict)
    """By user: when a chain used it last."""
    questions: dict[str, float] = field(default_factory=dict)

    def note(self, asker: Asker) -> None:
        (self.questions if asker.question else self.chains)[asker.user] = time.monotonic()

    @property
    def users(self) -> frozenset[str]:
        return frozenset(self.chains) | frozenset(self.questions)

    @property
    def used(self) -> float:
        return max((*self.chains.values(), *self.questions.values()))


@dataclass(frozen=True, slots=True)
class _Failed:
    error: Exception
    time: float = field(default_factory=time.monotonic)


class NamedGuards:
    """Guards of the predictors that chains and prediction requests name. Any thread."""

    def __init__(
        self,
        build: Callable[[str], Predictor],
        fallback: Predictor | PredictorGuard,
        budget: float | None,
        took: Took = unheard,
        threads: PredictorThreads | None = None,
    ) -> None:
        self.threads = threads or PredictorThreads()
        self._build = build
        self._fallback = fallback
        self._budget = budget
        self._took = took
        self._lock = threading.Lock()
        self._plain: dict[str, PredictorGuard] = {}
        self._built: dict[str, _Built] = {}
        self._failed: dict[str, _Failed] = {}

    def of(self, name: str, asker: Asker = NOBODY) -> PredictorGuard:
        """Return its guard. Never waits or raises: without a built predictor, the fallback predicts."""
        try:
            with self._lock:
                found = self._ready(name, asker)
        except Exception as error:
            return self._absent(name, str(error)[:_LONGEST])
        return found or self._absent(name, f"{name} is still being loaded")

    def check(self, name: str) -> None:
        """Raise the known error of this name, if any. Never waits."""
        check_name(name)
        with self._lock:
            if name in self._failed:
                raise self._failed[name].error
            if _is_plain(name):
                self._plain_guard(name)

    def prepare(self, name: str, seconds: float, asker: Asker = NOBODY) -> PredictorGuard:
        """Return its guard once it is built; after ``seconds`` the build continues. Not for the loop's thread.

        Raises ``PluginNotFound`` or ``ConfigError`` for a wrong name or model.
        """
        until = time.monotonic() + seconds
        with self._lock:
            self._failed.pop(name, None)
        while True:
            with self._lock:
                found = self._ready(name, asker)
            if found is not None:
                return found
            if time.monotonic() >= until:
                return self.of(name, asker)
            time.sleep(_LOOK)

    @property
    def wants(self) -> Wants:
        """Inputs that the recently used predictors require."""
        with self._lock:
            self._forget_idle()
            built = [each.guard.wants for each in self._built.values() if each.guard is not None]
            return reduce(or_, [*built, *(each.wants for each in self._plain.values())], Wants())

    def _ready(self, name: str, asker: Asker) -> PredictorGuard | None:
        """``None``: it is not built yet. Raises why it cannot be."""
        check_name(name)
        if _is_plain(name):
            return self._plain_guard(name)
        failed = self._failed.get(name)
        if failed is not None and time.monotonic() - failed.time < _RETRY:
            raise failed.error
        built = self._built.get(name) or self._begin(name, asker)
        if built is None:
            return None
        built.note(asker)
        if built.guard is None and built.promise.done():
            built.guard = self._finished(name, built.promise)
        return built.guard

    def _plain_guard(self, name: str) -> PredictorGuard:
        """Of a number with a name: there is nothing to read, so it is built here."""
        guard = self._plain.pop(name, None) or self._guard(build_predictor(name))
        self._plain[name] = guard
        _drop_oldest(self._plain, MOST_PLAIN)
        return guard

    def _begin(self, name: str, asker: Asker) -> _Built | None:
        """``None``: others are being built. Raises ``ConfigError`` where there are too many."""
        self._forget_idle()
        if any(asker.user in each.users and not each.promise.done() for each in self._built.values()):
            return None  # one user keeps no more than one thread busy
        self._make_room(name, asker)
        try:
            promise = self.threads.builders.submit(self._build, name)
        except TimeoutError:
            return None
        built = self._built[name] = _Built(promise)
        built.note(asker)
        return built

    def _make_room(self, name: str, asker: Asker) -> None:
        """Raises ``ConfigError`` where neither the user nor one who has more may give way."""
        most = MOST_ENSEMBLES if is_combined(name) else MOST
        alike = {each: built for each, built in self._built.items() if is_combined(each) is is_combined(name)}
        own = [each for each, built in alike.items() if asker.user in built.users]
        if len(own) >= most // _SHARE:
            asked = [each for each in own if asker.user not in alike[each].chains]
            if not asked:
                problem = f"chains of {asker.user} use {len(own)} other predictors of this kind, the maximum"
                raise ConfigError(f"predictor {name!r}", f"{problem}; choose one of these, or omit --predictor")
            given = self._idlest(asked)
            del alike[given].questions[asker.user]
            if not alike[given].users:
                del alike[given], self._built[given]
        if len(alike) >= most:
            least = self._giving_way(alike, asker)
            if least is None:
                problem = f"chains use {most} other predictors of this kind, the maximum"
                raise ConfigError(f"predictor {name!r}", f"{problem}; choose a configured predictor")
            del self._built[least]

    def _giving_way(self, alike: dict[str, _Built], asker: Asker) -> str | None:
        """Choose the predictor to drop: first one kept only for requests, then one of the user with the most."""
        count = Counter(user for built in alike.values() for user in built.users)
        asked = [name for name, built in alike.items() if not built.chains]
        if asked and not asker.question:
            return self._idlest(asked)
        candidates = asked if asker.question else list(alike)
        weights = {name: min(count[user] for user in alike[name].users) for name in candidates}
        largest = max(weights.values(), default=0)
        if largest <= count[asker.user] + 1:
            return None
        return self._idlest(name for name, weight in weights.items() if weight == largest)

    def _idlest(self, names: Iterable[str]) -> str:
        return min(names, key=lambda name: self._built[name].used)

    def _finished(self, name: str, promise: Future[Predictor]) -> PredictorGuard:
        try:
            return self._guard(promise.result())
        except Exception as error:
            del self._built[name]
            told = f"{type(error).__name__}: {error}"
            known = error if isinstance(error, MirageError) else ConfigError(f"predictor {name!r}", told)
            self._failed.pop(name, None)
            self._failed[name] = _Failed(known)
            _drop_oldest(self._failed, _MOST_FAILED)
            raise known from error

    def _guard(self, predictor: Predictor) -> PredictorGuard:
        fallback = self._fallback
        if isinstance(fallback, PredictorGuard) and fallback.predictor.name == predictor.name:
            fallback = fallback.fallback
        return PredictorGuard(predictor, fallback, self._budget, self._took, self.threads.named)

    def _absent(self, name: str, why: str) -> PredictorGuard:
        return PredictorGuard(
            _Absent(name if len(name) <= SHOWN else f"{name[: SHOWN - 3]}...", why), self._fallback
        )

    def _forget_idle(self) -> None:
        now = time.monotonic()
        for name, built in list(self._built.items()):
            for uses in (built.chains, built.questions):
                for user in [user for user, used in uses.items() if now - used > _IDLE]:
                    del uses[user]
            if not built.users:
                del self._built[name]


def _is_plain(name: str) -> bool:
    return is_built_in(name.partition(":")[0])


def _drop_oldest(kept: dict[str, Any], most: int) -> None:
    while len(kept) > most:
        del kept[next(iter(kept))]
