"""Measure the speed of running tasks, alone and next to others, from their progress reports.

An interval is the time in which a task's placement and neighbours stay the same. Its work is counted from report
to report, by the times at which the task wrote them. The first report must be newer than the one found when the
interval began, and the last one must have been read before it ended. So neither clocks nor delays mix intervals.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mirage.allocation.ddl.speeds import MeasuredRun
from mirage.allocation.engine.entries import Remark, SpeedSeen
from mirage.allocation.engine.journal import key
from mirage.allocation.engine.task_interface import NoReport, last_report, read_report, report_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from mirage.allocation.ddl.estimation import Scene
    from mirage.allocation.engine.allocation_table import AllocationTable, Holding
    from mirage.allocation.engine.dependencies import Running
    from mirage.allocation.engine.entries import Entry
    from mirage.allocation.engine.journal import StateFolder
    from mirage.allocation.engine.plan import WorkPlan
    from mirage.allocation.engine.task_interface import ProgressReport
    from mirage.allocation.engine.task_states import TaskStates
    from mirage.domain.pool import Pool

READ_EVERY = 15.0
"""Seconds between two reads of one task's file."""
WRITE_EVERY = 600.0
"""Seconds after which an interval is recorded though it continues: a link may end without warning."""


@dataclass(slots=True)
class _Stretch:
    """One attempt with the same placement and neighbours."""

    attempt: int
    scene: Scene | None
    """``None``: of a kind that no table has."""
    read: float
    before: ProgressReport | None
    """The report found when the interval began."""
    first: ProgressReport | None = None
    last: ProgressReport | None = None

    def take(self, report: ProgressReport) -> None:
        """Add a report read during the interval. One that counts less than before starts a new measurement."""
        if report in (self.before, self.last):
            return
        if self.first is None or self.last is None or report.done < self.last.done:
            self.first = report
        self.last = report

    @property
    def seconds(self) -> float:
        """Seconds between the first report and the last one."""
        return self.last.written - self.first.written if self.first and self.last else 0.0

    @property
    def done(self) -> float:
        """Work between the first report and the last one."""
        return self.last.done - self.first.done if self.first and self.last else 0.0


@dataclass(slots=True)
class ThroughputMeter:
    """Reads the reports of one link's tasks."""

    plan: WorkPlan
    pool: Pool
    folder: StateFolder
    reports: dict[int, ProgressReport] = field(default_factory=dict)
    """The last report of each task, by row, of attempts whose work counts."""
    _stretches: dict[int, _Stretch] = field(default_factory=dict)
    _complained: set[tuple[int, int]] = field(default_factory=set)

    def recall(self, ledger: TaskStates) -> None:
        """Progress of tasks whose work from earlier agent runs is kept."""
        for row, task in enumerate(self.plan.tasks):
            attempts = ledger.of(task.name) if task.checkpoint else []
            report = last_report(self.folder, task.name, attempts[-1].number) if attempts else None
            if report is not None:
                self.reports[row] = report

    def look(self, now: float, running: Mapping[int, Running], book: AllocationTable) -> Iterator[Entry]:
        """Yield the entries to record. Call it before any task starts."""
        scenes = _Scenes(self.plan, self.pool, [book.holdings[row] for row in running if row in book.holdings])
        for row, stretch in list(self._stretches.items()):
            each = running.get(row)
            if each is None or each.attempt != stretch.attempt:
                yield from self._leave(row)
            elif each.stopping is not None or scenes.of(row) != stretch.scene:
                yield from self._written(row, now)
                del self._stretches[row]
        for row, each in running.items():
            if each.stopping is None:
                yield from self._follow(row, each, now, scenes)

    def _leave(self, row: int) -> Iterator[Entry]:
        """Close the interval of a task that has ended; its last report is its progress."""
        stretch = self._stretches[row]
        task = self.plan.tasks[row]
        yield from self._written(row, stretch.read)
        del self._stretches[row]
        report = last_report(self.folder, task.name, stretch.attempt)
        self.reports.pop(row, None)
        if report is not None and task.checkpoint is not None:
            self.reports[row] = report

    def _follow(self, row: int, each: Running, now: float, scenes: _Scenes) -> Iterator[Entry]:
        stretch = self._stretches.get(row)
        if stretch is not None and now - stretch.read < READ_EVERY:
            return
        try:
            report = read_report(report_path(self.folder, self.plan.tasks[row].name, each.attempt))
        except NoReport as error:
            yield from self._complain(row, each.attempt, now, str(error))
            report = None
        if report is not None:
            self.reports[row] = report
        elif stretch is None and self.plan.tasks[row].checkpoint is None:
            self.reports.pop(row, None)  # of an attempt whose work is lost
        if stretch is None:
            self._stretches[row] = _Stretch(each.attempt, scenes.of(row), now, report)
            return
        stretch.read = now
        if report is not None:
            stretch.take(report)
        if stretch.seconds >= WRITE_EVERY:
            yield from self._written(row, now)
            stretch.first = stretch.last

    def _written(self, row: int, now: float) -> Iterator[Entry]:
        stretch = self._stretches[row]
        if stretch.scene is not None and stretch.seconds > 0 and stretch.done > 0:
            run, beside = stretch.scene
            name = self.plan.tasks[row].name
            others = [_plain(other) for other in beside]
            yield SpeedSeen(now, name, stretch.attempt, _plain(run), others, stretch.seconds, stretch.done)

    def _complain(self, row: int, attempt: int, now: float, why: str) -> Iterator[Entry]:
        if (row, attempt) not in self._complained:
            self._complained.add((row, attempt))
            yield Remark(now, f"{key(self.plan.tasks[row].name, attempt)}: invalid progress report: {why}")


class _Scenes:
    """Which task runs how, and next to which others."""

    def __init__(self, plan: WorkPlan, pool: Pool, holdings: Iterable[Holding]) -> None:
        self._plan, self._pool = plan, pool
        self._holdings = {each.row: each for each in holdings if each.devices}
        self._on: dict[int, set[int]] = {}
        for each in self._holdings.values():
            for node in each.nodes:
                self._on.setdefault(node, set()).add(each.row)

    def of(self, row: int) -> Scene | None:
        """``None`` where the task or a neighbour has no model, or devices of several kinds."""
        holding = self._holdings.get(row)
        if holding is None:
            return None
        beside = {other for node in holding.nodes for other in self._on[node]} - {row}
        runs = [self._run(each) for each in (row, *beside)]
        known = [run for run in runs if run is not None]
        if len(known) < len(runs):
            return None
        return known[0], tuple(sorted(known[1:], key=_plain))

    def _run(self, row: int) -> MeasuredRun | None:
        task, holding = self._plan.tasks[row], self._holdings[row]
        kinds = {self._pool.kinds[int(self._pool.device_kind[device])] for device in holding.devices}
        if not task.model or len(kinds) > 1:
            return None
        return MeasuredRun(task.model, task.devices, len(holding.nodes), kinds.pop())


def _plain(run: MeasuredRun) -> tuple[str, int, int, str]:
    return run.model, run.devices, run.spread, run.kind
