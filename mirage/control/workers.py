"""Threads for work that may hang: bounded in number; each ends with its work."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

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
