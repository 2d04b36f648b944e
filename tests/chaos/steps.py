"""The steps of each chain's work, as the scripts of its links write them down."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from mirage.domain.job import NEVER

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy as np
    from chaos.slurmctld import Slurmctld

    from mirage.domain.job import Job, JobId, JobRequest

STEP = 60
"""Seconds that a step takes; the checkpoint after it takes none."""


@dataclass(frozen=True)
class Step:
    """One line of the file that the links of a chain share."""

    at: int
    number: int
    job_id: JobId


@dataclass(frozen=True)
class Exit:
    """A script that ended because it was warned: the limit that it was warned of, and the limit at its end."""

    warned_of: int
    limit: int


@dataclass
class _Writer:
    """A script that runs: it continues from the last step that it found, until it is warned."""

    chain: str
    job_id: JobId
    start: int
    first: int
    until: int = NEVER
    warned_of: int = 0
    written: int = 0


@dataclass
class Scripts:
    """The scripts of all links. Each reads its chain's last step as it starts, and writes each that it completes.

    Those of the chains in ``goals`` end with 0 once that many steps are written; warned of their limit, they save
    their state for a while and end with 0 as well. The scripts of the others run until something ends them.
    """

    ctld: Slurmctld
    rng: np.random.Generator
    goals: Mapping[str, int] = field(default_factory=dict)
    steps: dict[str, list[Step]] = field(default_factory=lambda: defaultdict(list))
    """By chain, in order of time."""
    exits: dict[JobId, Exit] = field(default_factory=dict)
    """The jobs whose last run ended after a warning."""
    _writers: dict[JobId, _Writer] = field(default_factory=dict)

    def starts(self, job: Job, request: JobRequest) -> None:
        if not request.tag:
            return
        chain = request.tag.split(":")[1]
        self._write(chain)
        last = self._last(chain)
        self._writers[job.job_id] = _Writer(chain, job.job_id, self.ctld.now, last)
        if chain in self.goals:
            self.ctld.does(job.job_id, max(1, (self.goals[chain] - last) * STEP))

    def warned(self, job: Job) -> None:
        writer = self._writers[job.job_id]
        writer.until, writer.warned_of = self.ctld.now, job.limit
        warn = self.ctld.request(job.job_id).warn
        assert warn is not None
        self.ctld.obey(job.job_id, int(self.rng.integers(1, warn.lead)))

    def ends(self, job: Job) -> None:
        if job.job_id not in self._writers:
            return
        writer = self._writers[job.job_id]
        self._write(writer.chain)
        self.exits.pop(job.job_id, None)
        if writer.until != NEVER:
            self.exits[job.job_id] = Exit(writer.warned_of, job.limit)
        del self._writers[job.job_id]

    def _last(self, chain: str) -> int:
        return self.steps[chain][-1].number if self.steps[chain] else 0

    def _write(self, chain: str) -> None:
        """The output of one chain's scripts until now."""
        lines = [line for writer in self._writers.values() if writer.chain == chain for line in self._of(writer)]
        self.steps[chain] += sorted(lines, key=lambda step: (step.at, step.job_id))

    def _of(self, writer: _Writer) -> Iterator[Step]:
        while (at := writer.start + (writer.written + 1) * STEP) <= min(self.ctld.now, writer.until):
            number = writer.first + writer.written + 1
            if number > self.goals.get(writer.chain, NEVER):
                return
            writer.written += 1
            yield Step(at, number, writer.job_id)


def judge_step_numbers(chain: str, written: Sequence[tuple[int, JobId]], goal: int | None) -> Iterator[str]:
    """Say what is wrong with the steps of one writer, given as numbers and jobs in order.

    ``goal``: how many there must be, where the chain is done.
    """
    for (before, first), (after, second) in pairwise(written):
        if after != before + 1:
            yield f"{chain}: step {after} follows step {before} (job {first}, then job {second})"
    if written and written[0][0] != 1:
        yield f"{chain}: the first step is {written[0][0]}"
    done = written[-1][0] if written else 0
    if goal is not None and done != goal:
        yield f"{chain} is done, {done} of {goal} steps are"
