"""Run an evaluation: train, run missing episodes in several processes, and report progress."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Self

from mirage import __version__
from mirage.domain.chain import Steering
from mirage.domain.errors import ConfigError, PluginNotFound
from mirage.ownprocess import spawning
from mirage.predictors.lookahead import Lookahead
from mirage.predictors.reactive import Reactive
from mirage.predictors.registry import build_predictor, build_trainer
from mirage.replay.episodes import policy_predictor
from mirage.replay.oracle import Oracle
from mirage.replay.plan import split_policy
from mirage.simulator.configuration.resize import with_nodes
from mirage.training.evaluation.models import Learned, TrainedModels
from mirage.training.evaluation.plan import parts_of
from mirage.training.evaluation.planner import OLD, MonthOld, mistaken
from mirage.training.evaluation.playing import Actor, Played, play_episodes
from mirage.training.evaluation.results import Cell, read_part, write_part
from mirage.training.fingerprint import cluster_fingerprint, trace_fingerprint
from mirage.training.workers import leave_with_parent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from mirage.backends.simulated import SimulatedCluster
    from mirage.domain.jobtable import JobTable
    from mirage.ports import Predictor
    from mirage.predictors.registry import Factory
    from mirage.replay.plan import ReplayPlan
    from mirage.simulator.cluster import ClusterConfig
    from mirage.training.evaluation.plan import EvaluationPlan, Method, Run, Setting


@dataclass(frozen=True, slots=True)
class Found:
    """Results of one run on one setting."""

    setting: Setting
    run: Run
    episodes: tuple[Played, ...]
    """Episodes by number."""
    learned: Learned | None
    """The models trained for it; ``None`` without training."""


@dataclass(frozen=True, slots=True)
class _Task:
    """Runs on some consecutive episodes of a setting."""

    setting: Setting
    runs: tuple[tuple[Run, Learned | None], ...]
    numbers: range


def learned_names(names: Sequence[str]) -> frozenset[str]:
    """Those of the names, and of the members of ensembles, that need training.

    Raises ``PluginNotFound`` for an unknown name.
    """
    found = set()
    for name in dict.fromkeys(part for method in names for part in parts_of(method)):
        try:
            build_trainer(name)
        except PluginNotFound:
            if name not in (Oracle.name, Lookahead.name):
                build_predictor(name)
        else:
            found.add(name)
    return frozenset(found)


class Evaluation:
    """One comparison in one directory."""

    def __init__(
        self, trace: JobTable, cluster: ClusterConfig, plan: EvaluationPlan, folder: Path, workers: int = 1
    ) -> None:
        """Raises ``ConfigError`` for an invalid plan, before anything runs."""
        plan.check(trace)
        self._trace, self._plan, self._folder = trace, plan, folder
        self._workers = workers
        self._models = TrainedModels(trace, cluster, plan, folder, workers)
        self._trace_mark = trace_fingerprint(trace)
        self._worlds = {
            setting.cluster_nodes: _resized(cluster, setting.cluster_nodes) for setting in plan.settings
        }
        for method in plan.methods:
            if split_policy(method.name)[1] is not Steering.OFF:
                raise ConfigError(
                    "--methods",
                    f"{method.name!r} is an early-submission method; use mirage replay to compare these",
                )
            for world in self._worlds.values():
                mistaken(world, method.error)

    def carry_out(
        self,
        say: Callable[[str], None] = lambda text: None,
        show: Callable[[list[Found]], None] = lambda found: None,
    ) -> list[Found]:
        """Results of each run on each setting, in the plan's order.

        Stored results are used. ``say`` reports steps, ``show`` gets the finished results whenever there are
        more than before.
        """
        finished: list[Found] = []
        with _Pool(_Bench(self._trace, self._worlds, self._plan), self._workers) as pool:
            for methods in _together(self._plan.methods):
                learned = {run: self._learned(run, say) for method in methods for run in method.runs}
                self._play(learned, pool, say)
                finished += self._found(learned)
                finished.sort(key=self._order)
                show(list(finished))
        return finished

    def _learned(self, run: Run, say: Callable[[str], None]) -> Learned | None:
        return self._models.learned(run, say) if run.method.seeds else None

    def _order(self, found: Found) -> tuple[int, int, int]:
        settings, methods = self._plan.settings, self._plan.methods
        return settings.index(found.setting), methods.index(found.run.method), found.run.seed

    def _play(self, learned: dict[Run, Learned | None], pool: _Pool, say: Callable[[str], None]) -> None:
        tasks = [task for setting in self._plan.settings for task in self._missing(setting, learned)]
        names = ", ".join(run.label for run in learned)
        for number, (task, result) in enumerate(pool.played(tasks), start=1):
            for (run, models), episodes in zip(task.runs, result, strict=True):
                write_part(self._folder, self._cell(task.setting, run, models), episodes)
            say(f"played {number} of {len(tasks)} parts of {names}")

    def _missing(self, setting: Setting, learned: dict[Run, Learned | None]) -> Iterator[_Task]:
        for numbers in self._plan.parts():
            runs = tuple(
                (run, models)
                for run, models in learned.items()
                if read_part(self._folder, self._cell(setting, run, models), numbers) is None
            )
            if runs:
                yield _Task(setting, runs, numbers)

    def _found(self, learned: dict[Run, Learned | None]) -> list[Found]:
        return [
            Found(setting, run, tuple(self._episodes(self._cell(setting, run, models))), models)
            for setting in self._plan.settings
            for run, models in learned.items()
        ]

    def _episodes(self, cell: Cell) -> Iterator[Played]:
        for numbers in self._plan.parts():
            part = read_part(self._folder, cell, numbers)
            if part is None:
                raise ConfigError(
                    str(self._folder / cell.place), "was changed during the evaluation; run it again"
                )
            yield from part

    def _cell(self, setting: Setting, run: Run, learned: Learned | None) -> Cell:
        world, replay = self._worlds[setting.cluster_nodes], self._plan.replay(setting)
        told = {name: value for name, value in asdict(replay).items() if name not in ("policies", "end")}
        planner = cluster_fingerprint(mistaken(world, run.method.error))
        circumstances = told | {
            "trace": self._trace_mark,
            "cluster": cluster_fingerprint(world),
            "planner": planner if run.method.plans else "",
            "model": learned.mark if learned else "",
            "mirage": __version__,
        }
        return Cell(setting, run, tuple(circumstances.items()))


def _together(methods: Sequence[Method]) -> list[tuple[Method, ...]]:
    """Groups of runs that share a process: all quick ones without training, then the others one by one."""
    quick = tuple(method for method in methods if not method.seeds and not method.plans)
    return [*([quick] if quick else []), *((method,) for method in methods if method not in quick)]


def _resized(cluster: ClusterConfig, count: int) -> ClusterConfig:
    return cluster if count == cluster.node_count else with_nodes(cluster, count)


@dataclass(frozen=True, slots=True)
class _Bench:
    """Settings of a worker process for every task."""

    trace: JobTable
    worlds: dict[int, ClusterConfig]
    plan: EvaluationPlan

    def play(self, task: _Task) -> list[list[Played]]:
        """The episodes of each run, in the task's order."""
        world, replay = self.worlds[task.setting.cluster_nodes], self.plan.replay(task.setting)
        actors = [_actor(run, learned, replay, world) for run, learned in task.runs]
        episodes = list(play_episodes(self.trace, world, replay, task.numbers, actors))
        return [[played[place] for played in episodes] for place in range(len(actors))]


def _actor(run: Run, learned: Learned | None, replay: ReplayPlan, world: ClusterConfig) -> Actor:
    method = run.method
    planner = mistaken(world, method.error)
    models = {name: _once(f"{name}:{model.folder}") for name, model in learned.models} if learned else {}
    foresees = method.name not in (Oracle.name, Reactive.name) and not method.name.startswith("fixed:")

    def build(cluster: SimulatedCluster | None) -> Predictor:
        predictor = policy_predictor(method.name, replay, cluster, planner, models)
        return MonthOld(predictor) if method.error == OLD else predictor

    return Actor(run.label, build(None).wants, build, foresees)


def _once(text: str) -> Factory:
    """Returns the trained predictor: its files are read once, not for every episode."""
    predictor = build_predictor(text)
    return lambda parameter: predictor


class _Pool:
    """Runs tasks in separate processes, or in this one where one is enough."""

    def __init__(self, bench: _Bench, workers: int) -> None:
        self._bench = bench
        # Processes are spawned: to fork one that has threads (a progress bar) is not safe.
        self._pool = ProcessPoolExecutor(workers, spawning(), _take_place, (bench,)) if workers > 1 else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=kind is None, cancel_futures=True)

    def played(self, tasks: Sequence[_Task]) -> Iterator[tuple[_Task, list[list[Played]]]]:
        """Each task with its result, in order of completion."""
        if self._pool is None:
            yield from ((task, self._bench.play(task)) for task in tasks)
            return
        futures = {self._pool.submit(_play, task): task for task in tasks}
        for future in as_completed(futures):
            yield futures[future], future.result()


_bench: list[_Bench] = []
"""The bench of this worker process; its initialiser fills it."""


def _take_place(bench: _Bench) -> None:
    leave_with_parent()
    _bench.append(bench)


def _play(task: _Task) -> list[list[Played]]:
    return _bench[0].play(task)
