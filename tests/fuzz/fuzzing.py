"""What is fuzzed, and what counts as a failure.

A target is one reader with input that it takes. Whatever is done to that input, the reader answers or raises an
error that it promises, in bounded time and memory. A target's own input is taken without an error: one that
rejects everything would test nothing.
"""

from __future__ import annotations

import resource
import signal
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mutation
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st

from mirage.domain.errors import MirageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from random import Random

LONGEST = 10.0
"""Seconds for one input of at most 64 KiB, on a busy machine: a hang, not slowness."""
MOST_MEMORY = 1 << 29
"""Bytes that reading one input may add to the process."""
SHOWN = 2_000
"""Characters of an input in a report."""
ROUND = 25
"""Examples between two checks of the clock in a run that is bounded by time."""


class Exhausts(BaseException):
    """A reader took too long or too much. No ``Exception``: no reader can swallow it, and nothing is run again."""


@dataclass(frozen=True)
class Target:
    """One reader: ``read`` with each of ``corpus`` changed may raise ``allowed`` and nothing else."""

    name: str
    read: Callable[[Any], object]
    corpus: Sequence[Any]
    allowed: tuple[type[BaseException], ...] = (MirageError,)
    words: Sequence[Any] = ()
    """Further texts to write into the input."""
    names: str = ""
    """Text that every ``MirageError`` must hold: the file's name, where the input is a file."""

    def draw(self, chance: Random) -> Any:
        """Changed input: a text, bytes or a document, as the corpus is."""
        if all(isinstance(each, str) for each in self.corpus):
            return mutation.changed_text(chance, self.corpus, self.words)
        if all(isinstance(each, bytes) for each in self.corpus):
            return mutation.changed_bytes(chance, self.corpus, self.words)
        return mutation.changed_document(chance, self.corpus)

    def check(self, given: Any) -> None:
        """Read one changed input; an ``AssertionError`` or an unexpected error of the reader is a failure."""
        with bounded():
            try:
                self.read(given)
            except self.allowed as error:
                if self.names and isinstance(error, MirageError) and self.names not in str(error):
                    raise AssertionError(f"does not name {self.names}: {error}") from error


@contextmanager
def bounded() -> Iterator[None]:
    """Within it, time and memory are bounded as ``LONGEST`` and ``MOST_MEMORY`` say."""

    def stop(number: int, frame: object) -> None:
        raise Exhausts(f"no answer within {LONGEST:.0f} s")

    before = signal.signal(signal.SIGALRM, stop)
    size = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (size + MOST_MEMORY, hard))
    signal.setitimer(signal.ITIMER_REAL, LONGEST)
    try:
        yield
    except MemoryError as error:
        raise Exhausts(f"more than {MOST_MEMORY >> 20} MiB") from error
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def fuzz(target: Target, examples: int, seed: int) -> None:
    """Read ``examples`` changed inputs; raises the error of a failure, on the smallest input found."""

    @seeded(seed)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
    )
    @given(st.randoms(use_true_random=False))
    def run(chance: Random) -> None:
        drawn = target.draw(chance)
        try:
            target.check(drawn)
        except BaseException as fault:
            fault.add_note(f"{target.name}, given {_shown(drawn)}")
            raise

    run()


def _shown(drawn: Any) -> str:
    text = repr(drawn)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}... ({len(text)} characters)"


def fuzz_for(target: Target, seconds: float, seed: int) -> int:
    """Fuzz until the time is over, one round at least; how many inputs were read."""
    end = time.monotonic() + seconds
    rounds = 0
    while not rounds or time.monotonic() < end:
        fuzz(target, ROUND, seed + rounds)
        rounds += 1
    return rounds * ROUND


@dataclass(frozen=True)
class Beside:
    """Reads a file by its path: the input is written to ``name`` in a new directory next to ``others``."""

    read: Callable[[Path], object]
    name: str
    others: Mapping[str, bytes] = field(default_factory=dict)
    folder: bool = False
    """Whether ``read`` takes the directory."""

    def __call__(self, content: str | bytes) -> object:
        with tempfile.TemporaryDirectory() as place:
            for name, other in self.others.items():
                self._put(Path(place, name), other)
            path = Path(place, self.name)
            self._put(path, content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content)
            return self.read(Path(place) if self.folder else path)

    @staticmethod
    def _put(path: Path, content: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(0o600)
