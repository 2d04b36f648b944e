"""Models trained anew now and then, on what the daemon itself has seen; none is put in use without a promotion."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirage.documenttext import parse_json
from mirage.domain.errors import MirageError
from mirage.ownprocess import own_python

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from threading import Event

    from mirage.daemon.launching import Launcher
    from mirage.domain.job import Seconds
    from mirage.domain.jobtable import JobTable
    from mirage.ports import Clock

_DAY = 86_400
WARM_UP: Seconds = 7 * _DAY
"""What comes before the first hand-over: the simulated queue fills, and the first waits are known."""
LEAST: Seconds = 14 * _DAY
"""A shorter span of hand-overs teaches little."""


@dataclass(frozen=True, slots=True)
class Curriculum:
    """What is trained, and how often."""

    every: Seconds
    predictor: str
    nodes: tuple[int, ...]
    limit: Seconds
    span: Seconds
    """How far back jobs are learnt from."""
    partition: str = ""


@dataclass(frozen=True, slots=True)
class Retraining:
    """Trains when it is due."""

    curriculum: Curriculum
    jobs: Callable[[Seconds], JobTable]
    """Those submitted since an instant."""
    cluster: Callable[[Path], str]
    """What ``mirage train --cluster`` takes; files may be laid into the folder for it."""
    launcher: Launcher
    clock: Clock
    folder: Path
    """For its files."""
    models: Path
    """The shelf on which the result is kept."""
    stopped: Event

    def run(self) -> str:
        """Train if it is due; says what came of it, nothing where nothing is due.

        A training that fails is due again after the same span. Raises ``MirageError``.
        """
        now = self.clock.now()
        if not self._due(now):
            return ""
        jobs = self.jobs(now - self.curriculum.span)
        if not len(jobs) or now - int(jobs.submit[0]) < WARM_UP + LEAST:
            return ""
        self._note(now)
        return self._train(jobs, now)

    def _train(self, jobs: JobTable, now: Seconds) -> str:
        from mirage.predictors.artifacts.shelf import Shelf
        from mirage.trace.parquet import write_table

        work = self.folder / "work"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        write_table(jobs, work / "jobs.parquet")
        argv = self._command(work, int(jobs.submit[0]) + WARM_UP, min(now, int(jobs.submit[-1])))
        if not self.launcher.run(argv, work, self.stopped):
            self._forget()
            return "ended before its time, as the daemon does; it begins anew"
        kept = Shelf(self.models).keep(work / "model")
        shutil.rmtree(work, ignore_errors=True)
        name = f"{kept.name}:{kept.version}"
        return f"{name} is trained; loop.shadows watches it, mirage models promote puts it in use"

    def _command(self, work: Path, start: Seconds, end: Seconds) -> Sequence[str]:
        plan = self.curriculum
        options = {
            "--trace": str(work / "jobs.parquet"),
            "--cluster": self.cluster(work),
            "--start": str(start),
            "--end": str(end),
            "--nodes": ",".join(str(count) for count in plan.nodes),
            "--limit": f"{plan.limit}s",
            "--partition": plan.partition,
            "--workers": str(self.launcher.workers),
            "--output": str(work / "model"),
        }
        told = [word for pair in options.items() if pair[1] for word in pair]
        return own_python("-m", "mirage", "train", plan.predictor, *told)

    def _due(self, now: Seconds) -> bool:
        try:
            last = int(parse_json(self._marker.read_text(encoding="utf-8"))["begun"])
        except (OSError, ValueError, KeyError, TypeError):
            return True
        return not 0 <= now - last < self.curriculum.every

    def _note(self, now: Seconds) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            self._marker.write_text(json.dumps({"begun": now}), encoding="utf-8")
        except OSError as error:
            raise MirageError(f"{self._marker} cannot be written, so nothing is trained: {error}") from error

    def _forget(self) -> None:
        self._marker.unlink(missing_ok=True)

    @property
    def _marker(self) -> Path:
        return self.folder / "last.json"
