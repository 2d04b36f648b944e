"""A ``Cluster`` and ``Actuator`` in a separate process that runs as another user, queried over pipes.

The child is this module, with the name of a function as argument that makes the two from a clock. Each query
brings the cluster's time, since the child has no testbed.
"""

from __future__ import annotations

import contextlib
import importlib
import pickle
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mirage.domain.errors
from mirage.domain.errors import MirageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

TESTS = Path(__file__).resolve().parents[1]


class ActingProcess:
    """The child's attributes, as if they were here."""

    def __init__(
        self, factory: str, environment: Mapping[str, str], identity: Mapping[str, Any], now: Callable[[], int]
    ):
        self._now = now
        path = f"{TESTS.parent}:{TESTS / 'live'}"
        self._child = subprocess.Popen(
            [sys.executable, __file__, factory],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**environment, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
            cwd="/",
            **identity,
        )

    def part(self, name: str) -> Any:
        """``cluster`` or ``actuator``."""
        return _Part(self, name)

    def ask(self, part: str, method: str, *args: Any, **kwargs: Any) -> Any:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        pickle.dump((self._now(), part, method, args, kwargs), self._child.stdin)
        self._child.stdin.flush()
        failed, value = pickle.load(self._child.stdout)
        if failed:
            name, text, attributes = value
            error = Exception.__new__(getattr(mirage.domain.errors, name))
            Exception.__init__(error, text)
            error.__dict__.update(attributes)
            raise error
        return value

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._child.stdin and self._child.stdin.close()
        self._child.stdout and self._child.stdout.close()
        self._child.wait(timeout=30)


class _Part:
    def __init__(self, process: ActingProcess, name: str) -> None:
        self._process = process
        self._name = name

    def __getattr__(self, method: str) -> Any:
        return lambda *args, **kwargs: self._process.ask(self._name, method, *args, **kwargs)


class ToldClock:
    """Says the text that was set last."""

    time = 0

    def now(self) -> int:
        return self.time


def serve(factory: str) -> None:
    module, _, name = factory.partition(":")
    clock = ToldClock()
    parts = getattr(importlib.import_module(module), name)(clock)
    with contextlib.suppress(EOFError):
        while True:
            clock.time, part, method, args, kwargs = pickle.load(sys.stdin.buffer)
            pickle.dump(_answer(parts[part], method, args, kwargs), sys.stdout.buffer)
            sys.stdout.buffer.flush()


def _answer(part: Any, method: str, args: Any, kwargs: Any) -> tuple[bool, Any]:
    try:
        return False, getattr(part, method)(*args, **kwargs)
    except MirageError as error:
        return True, (type(error).__name__, str(error), dict(error.__dict__))


if __name__ == "__main__":
    serve(sys.argv[1])
