"""Episodes: drawn at random, begun at their times, and ended after their durations."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import numpy as np
    from chaos.life import Daemon
    from chaos.oracle import Oracle
    from chaos.slurmctld import Slurmctld

    from mirage.domain.chain import ChainRecord
    from mirage.domain.job import Job


@dataclass
class Episodes:
    """Plans what happens, each kind with its share."""

    daemon: Daemon
    oracle: Oracle
    rng: np.random.Generator
    tell: Callable[[str], None]
    count: int = 0
    """Those that did happen: some find nothing that they could happen to."""
    _ends: dict[int, Callable[[], object]] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    @property
    def ctld(self) -> Slurmctld:
        return self.daemon.line.slurm.simulation

    def draw(self, kinds: Mapping[Callable[[Any], None], float], begin: int, until: int, count: int) -> None:
        """``count`` of them begin somewhere between; they combine as they fall."""
        acts, shares = zip(*kinds.items(), strict=True)
        odds = [share / sum(shares) for share in shares]
        for time in sorted(int(time) for time in self.rng.integers(begin, until, count)):
            act = acts[int(self.rng.choice(len(acts), p=odds))]
            self.ctld.at(time, lambda act=act: act(self))

    def end_all(self) -> None:
        """End all running episodes now."""
        for number in tuple(self._ends):
            self._end(number)

    def _for(self, seconds: int, what: str, end: Callable[[], object]) -> None:
        self._happens(f"{what} for {seconds} s")
        number = next(self._numbers)
        self._ends[number] = end
        self.ctld.at(self.ctld.now + seconds, lambda: self._end(number))

    def _happens(self, what: str) -> None:
        self.count += 1
        self.tell(what)

    def _end(self, number: int) -> None:
        if end := self._ends.pop(number, None):
            end()

    def _while(self, longest: int) -> int:
        """Many are short, some long."""
        return int(60 * (longest / 60) ** float(self.rng.random()))

    def _one_of(self, jobs: list[Job]) -> Job | None:
        draw = float(self.rng.random())
        return jobs[int(draw * len(jobs))] if jobs else None

    def _records(self) -> tuple[ChainRecord, ...]:
        return self.daemon.service.store.chains.load() if self.daemon.service else ()
