"""Run an evaluation: train, run missing episodes in several processes, and report progress.

Among the methods are look-aheads with deliberate errors: the value of a plan if the cluster differs from its
configuration.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Self

import numpy as np

from mirage import __version__
from mirage.domain.chain import Steering
from mirage.domain.decision import Wants
from mirage.domain.errors import ConfigError, PluginNotFound
from mirage.domain.job import ABSENT, JobState
from mirage.ownprocess import spawning
from mirage.predictors.baselines import Reactive
from mirage.predictors.lookahead import Lookahead
from mirage.predictors.registry import build_predictor, build_trainer
from mirage.replay.episodes import Oracle, policy_predictor
from mirage.replay.plan import split_policy
from mirage.simulator.cluster import with_nodes
from mirage.training.chunks import cluster_fingerprint, trace_fingerprint
from mirage.training.evaluation.plan import parts_of
from mirage.training.evaluation.playing import PlayableMethod, PlayedEpisode, play_episodes
from mirage.training.evaluation.results import Cell, TrainedModels, TrainedRun, read_part, write_part
from mirage.training.launch import leave_with_parent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from mirage.backends.simulated import SimulatedCluster
    from mirage.domain.decision import Observation, Prediction
    from mirage.domain.job import Seconds
    from mirage.domain.jobtable import JobTable
    from mirage.ports import Predictor
    from mirage.predictors.registry import Factory
    from mirage.replay.plan import ReplayPlan
    from mirage.simulator.cluster import ClusterConfig
    from mirage.training.evaluation.plan import EvaluationPlan, EvaluationRun, EvaluationSetting, Method

MONTH = 28 * 86_400
"""Whole weeks, so that the hours of the week stay what they are."""

OLD = "month-old"


def _fewer(config: ClusterConfig) -> ClusterConfig:
    count = config.node_count
    return with_nodes(config, min(count - 1, round(0.95 * count)))


def _more(config: ClusterConfig) -> ClusterConfig:
    count = config.node_count
    return with_nodes(config, max(count + 1, round(1.05 * count)))


def _without_user_limits(config: ClusterConfig) -> ClusterConfig:
    free = replace(config.default_association, max_jobs=-1)
    users = tuple(replace(row, max_jobs=-1) if row.user else row for row in config.associations)
    qos = tuple(replace(one, max_jobs_per_user=-1) for one in config.qos)
    return replace(config, default_association=free, associations=users, qos=qos)


def _with_other_priorities(config: ClusterConfig) -> ClusterConfig:
    """Age counts half, and size as much as age: a queue that serves large jobs first."""
    age = config.priority.age // 2
    return replace(config, priority=replace(config.priority, age=age, job_size=max(age, config.priority.job_size)))


_ERRORS: dict[str, Callable[[ClusterConfig], ClusterConfig]] = {
    "nodes+5%": _more,
    "nodes-5%": _fewer,
    "no-user-limit": _without_user_limits,
    "priorities": _with_other_priorities,
    OLD: lambda config: config,
}

ERRORS = tuple(_ERRORS)


def mistaken(config: ClusterConfig, error: str) -> ClusterConfig:
    """The cluster as seen by a planner with this error; unchanged for an empty one. Raises ``ConfigError``."""
    if not error:
        return config
    if error not in _ERRORS:
        raise ConfigError("--planner-error", f"unknown error {error!r} (choose from {', '.join(ERRORS)})")
    wrong = _ERRORS[error](config)
    if wrong == config and error != OLD:
        raise ConfigError("--planner-error", f"{error} changes nothing on {config.name}")
    return wrong


class MonthOld:
    """A look-ahead that uses the jobs known four weeks ago instead of those until now."""

    def __init__(self, predictor: Predictor) -> None:
        self._predictor = predictor
        self.name = predictor.name
        wants = predictor.wants
        self.wants = replace(wants, history=wants.history + MONTH) if wants.history else Wants()

    def predict(self, observation: Observation) -> Prediction:
        """As the predictor itself. Raises what it raises."""
        history = observation.history
        if history is not None:
            observation = replace(observation, history=aged(history, observation.time))
        return self._predictor.predict(observation)


def aged(history: JobTable, now: Seconds) -> JobTable:
    """The jobs known ``MONTH`` before ``now``, with every time moved by as much towards ``now``."""
    then = now - MONTH
    known = history.take(history.submit <= then)
    started = (known.start != ABSENT) & (known.start <= then)
    left = (known.end != ABSENT) & (known.end <= then)
    return replace(
        known,
        submit=known.submit + MONTH,
        eligible=np.where(known.eligible != ABSENT, known.eligible + MONTH, ABSENT),
        start=np.where(started, known.start + MONTH, ABSENT),
        end=np.where(left, known.end + MONTH, ABSENT),
        state=np.where(left, known.state, np.where(started, int(JobState.RUNNING), int(JobState.PENDING))).astype(
            np.int8
        ),
    )


@dataclass(frozen=True, slots=True)
class Found:
    """Results of one run on one setting."""

    setting: EvaluationSetting
    run: EvaluationRun
    episodes: tuple[PlayedEpisode, ...]
    """Episodes by number."""
    learned: TrainedRun | None
    """The models trained for it; ``None`` without training."""


@dataclass(frozen=True, slots=True)
class _Task:
    """Runs on some consecutive episodes of a setting."""

    setting: EvaluationSetting
    runs: tuple[tuple[EvaluationRun, TrainedRun | None], ...]
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
        with _WorkerPool(_Bench(self._trace, self._worlds, self._plan), self._workers) as pool:
            for methods in _together(self._plan.methods):
                learned = {run: self._learned(run, say) for method in methods for run in method.runs}
                self._play(learned, pool, say)
                finished += self._found(learned)
                finished.sort(key=self._order)
                show(list(finished))
        return finished

    def _learned(self, run: EvaluationRun, say: Callable[[str], None]) -> TrainedRun | None:
        return self._models.learned(run, say) if run.method.seeds else None

    def _order(self, found: Found) -> tuple[int, int, int]:
        settings, methods = self._plan.settings, self._plan.methods
        return settings.index(found.setting), methods.index(found.run.method), found.run.seed

    def _play(
        self, learned: dict[EvaluationRun, TrainedRun | None], pool: _WorkerPool, say: Callable[[str], None]
    ) -> None:
        tasks = [task for setting in self._plan.settings for task in self._missing(setting, learned)]
        names = ", ".join(run.label for run in learned)
        for number, (task, result) in enumerate(pool.played(tasks), start=1):
            for (run, models), episodes in zip(task.runs, result, strict=True):
                write_part(self._folder, self._cell(task.setting, run, models), episodes)
            say(f"played {number} of {len(tasks)} parts of {names}")

    def _missing(
        self, setting: EvaluationSetting, learned: dict[EvaluationRun, TrainedRun | None]
    ) -> Iterator[_Task]:
        for numbers in self._plan.parts():
            runs = tuple(
                (run, models)
                for run, models in learned.items()
                if read_part(self._folder, self._cell(setting, run, models), numbers) is None
            )
            if runs:
                yield _Task(setting, runs, numbers)

    def _found(self, learned: dict[EvaluationRun, TrainedRun | None]) -> list[Found]:
        return [
            Found(setting, run, tuple(self._episodes(self._cell(setting, run, models))), models)
            for setting in self._plan.settings
            for run, models in learned.items()
        ]

    def _episodes(self, cell: Cell) -> Iterator[PlayedEpisode]:
        for numbers in self._plan.parts():
            part = read_part(self._folder, cell, numbers)
            if part is None:
                raise ConfigError(
                    str(self._folder / cell.place), "was changed during the evaluation; run it again"
                )
            yield from part

    def _cell(self, setting: EvaluationSetting, run: EvaluationRun, learned: TrainedRun | None) -> Cell:
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

    def play(self, task: _Task) -> list[list[PlayedEpisode]]:
        """The episodes of each run, in the task's order."""
        world, replay = self.worlds[task.setting.cluster_nodes], self.plan.replay(task.setting)
        actors = [_actor(run, learned, replay, world) for run, learned in task.runs]
        episodes = list(play_episodes(self.trace, world, replay, task.numbers, actors))
        return [[played[place] for played in episodes] for place in range(len(actors))]


def _actor(
    run: EvaluationRun, learned: TrainedRun | None, replay: ReplayPlan, world: ClusterConfig
) -> PlayableMethod:
    method = run.method
    planner = mistaken(world, method.error)
    models = {name: _once(f"{name}:{model.folder}") for name, model in learned.models} if learned else {}
    foresees = method.name not in (Oracle.name, Reactive.name) and not method.name.startswith("fixed:")

    def build(cluster: SimulatedCluster | None) -> Predictor:
        predictor = policy_predictor(method.name, replay, cluster, planner, models)
        return MonthOld(predictor) if method.error == OLD else predictor

    return PlayableMethod(run.label, build(None).wants, build, foresees)


def _once(text: str) -> Factory:
    """Returns the trained predictor: its files are read once, not for every episode."""
    predictor = build_predictor(text)
    return lambda parameter: predictor


class _WorkerPool:
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

    def played(self, tasks: Sequence[_Task]) -> Iterator[tuple[_Task, list[list[PlayedEpisode]]]]:
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


def _play(task: _Task) -> list[list[PlayedEpisode]]:
    return _bench[0].play(task)
