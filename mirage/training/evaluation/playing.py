"""Run episodes with one method after the other, and record predictions and their durations."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from mirage.control.observations import ObservationBuilder
from mirage.domain.decision import WaitForecast, Wants, forecast_of
from mirage.domain.job import NEVER
from mirage.replay.episodes import PATIENCE, Background, keep_alive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mirage.backends.simulated import SimulatedCluster
    from mirage.domain.decision import Observation, Prediction
    from mirage.domain.job import Job, JobRequest, Seconds
    from mirage.domain.jobtable import JobTable
    from mirage.domain.snapshot import Snapshot
    from mirage.ports import Predictor
    from mirage.replay.episodes import Opening
    from mirage.replay.plan import ReplayPlan
    from mirage.simulator.cluster import ClusterConfig

HOUR = 3_600
PROBES = tuple(hours * HOUR for hours in (36, 24, 12, 6, 3))
"""Seconds before the predecessor's end at which every method makes a forecast, independent of its submission."""


@dataclass(frozen=True, slots=True)
class ScoredForecast:
    """The prediction for a job submitted at one time, and the simulated result."""

    lead: Seconds
    """Seconds before the predecessor's end."""
    levels: tuple[float, ...]
    """Empty: no forecast, because the method has none or rejected the observation."""
    waits: tuple[float, ...]
    """Seconds, one per level."""
    wait: Seconds
    """The simulated wait in seconds."""


@dataclass(frozen=True, slots=True)
class PlayedEpisode:
    """Result of one method in one episode."""

    number: int
    start: Seconds
    """When the predecessor was submitted."""
    predecessor_end: Seconds | None
    """``None``: no handover took place; ``troubles`` has the reasons."""
    successor_submit: Seconds | None
    successor_start: Seconds | None
    asked: int
    """Number of predictions."""
    seconds: float
    """Sum of their durations in seconds (wall-clock time)."""
    troubles: tuple[str, ...]
    forecasts: tuple[ScoredForecast, ...] = ()


@dataclass(frozen=True, slots=True)
class PlayableMethod:
    """One method, ready to play."""

    label: str
    wants: Wants
    build: Callable[[SimulatedCluster], Predictor]
    """The predictor for one episode on this cluster; ``wants``: its required inputs."""
    foresees: bool
    """Whether its forecasts are waits, so that they can be scored."""


class Timed:
    """A predictor with a clock for its predictions."""

    def __init__(self, predictor: Predictor) -> None:
        self._predictor = predictor
        self.name = predictor.name
        self.wants = predictor.wants
        self.asked = 0
        self.seconds = 0.0

    def predict(self, observation: Observation) -> Prediction:
        """As the predictor itself. Raises what it raises."""
        begin = perf_counter()
        try:
            return self._predictor.predict(observation)
        finally:
            self.asked += 1
            self.seconds += perf_counter() - begin


def play_episodes(
    trace: JobTable,
    cluster: ClusterConfig,
    plan: ReplayPlan,
    numbers: Sequence[int],
    actors: Sequence[PlayableMethod],
) -> Iterator[tuple[PlayedEpisode, ...]]:
    """Run the episodes of these numbers (ascending), each with every actor, in their order.

    Raises ``SubmissionRejected`` where the cluster rejects the service's job.
    """
    background = Background(trace, cluster, watched=any(actor.wants.window for actor in actors))
    starts = plan.episode_starts()
    for number in numbers:
        background.run_until(starts[number])
        opening = background.open(plan.chain())
        if opening is None:
            text = f"no first link: it would not start within {PATIENCE // 86_400} days"
            yield tuple(PlayedEpisode(number, starts[number], None, None, None, 0, 0.0, (text,)) for _ in actors)
            continue
        foreseen = _foreseen(opening, plan, actors)
        yield tuple(
            _play(opening.copy(), plan, actor, number, forecasts)
            for actor, forecasts in zip(actors, foreseen, strict=True)
        )


def _play(
    opening: Opening, plan: ReplayPlan, actor: PlayableMethod, number: int, forecasts: tuple[ScoredForecast, ...]
) -> PlayedEpisode:
    """The episode as the replay runs it."""
    timed = Timed(actor.build(opening.cluster))
    record, troubles = keep_alive(opening, plan.chain(), plan, timed)
    started = [link for link in record.links if link.started]
    ended = len(started) > 1 and started[0].final
    return PlayedEpisode(
        number=number,
        start=plan.episode_starts()[number],
        predecessor_end=started[0].end if ended else None,
        successor_submit=started[1].submit if ended else None,
        successor_start=started[1].start if ended else None,
        asked=timed.asked,
        seconds=timed.seconds,
        troubles=troubles,
        forecasts=forecasts,
    )


def _foreseen(
    opening: Opening, plan: ReplayPlan, actors: Sequence[PlayableMethod]
) -> list[tuple[ScoredForecast, ...]]:
    """Forecasts of every actor at ``PROBES``, as far as it predicts waits."""
    asked = [actor for actor in actors if actor.foresees]
    found: dict[str, list[ScoredForecast]] = {actor.label: [] for actor in actors}
    for probe in _probes(opening, plan, asked) if asked else ():
        for actor in asked:
            forecast = _forecast(actor.build(probe.cluster), probe.observation(actor.wants))
            levels = forecast.levels if forecast is not None else ()
            waits = tuple(start - probe.snapshot.time for start in forecast.starts) if forecast is not None else ()
            found[actor.label].append(ScoredForecast(probe.lead, levels, waits, probe.wait))
    return [tuple(found[actor.label]) for actor in actors]


@dataclass(frozen=True, slots=True)
class _Probe:
    """One time of the predecessor's run at which forecasts are made."""

    lead: Seconds
    """Seconds before the predecessor's end."""
    wait: Seconds
    """The simulated wait in seconds, if submitted now."""
    cluster: SimulatedCluster
    observer: ObservationBuilder
    snapshot: Snapshot
    predecessor: Job | None
    request: JobRequest

    def observation(self, wants: Wants) -> Observation:
        return self.observer.observe(self.snapshot, self.predecessor, self.request, wants)


def _probes(opening: Opening, plan: ReplayPlan, actors: Sequence[PlayableMethod]) -> Iterator[_Probe]:
    """Observations as in the control loop, on one copy that continues from probe to probe."""
    chain, first = plan.chain(), opening.cluster.now()
    own, request, end = chain.link_request(1), chain.link_request(2), first + plan.limit
    times = np.array([end - lead for lead in PROBES if end - lead > first], dtype=np.int64)
    starts = opening.copy().cluster.start_times(request, times)
    watching = next((actor.wants for actor in actors if actor.wants.window), Wants())
    seen = opening.copy()
    cluster = seen.cluster
    observer = ObservationBuilder(cluster, cluster, cluster, cluster, seen.windows)
    for time, start in zip(times.tolist(), starts.tolist(), strict=True):
        snapshot = _watched(cluster, observer, watching, time, plan.tick)
        if start != NEVER:
            predecessor = snapshot.link(own.tag, own.user)
            yield _Probe(end - time, start - time, cluster, observer, snapshot, predecessor, request)


def _watched(
    cluster: SimulatedCluster, observer: ObservationBuilder, wants: Wants, until: Seconds, tick: Seconds
) -> Snapshot:
    """The snapshot of ``until``; if windows are required, all snapshots before are observed first."""
    while True:
        if wants.window or cluster.now() == until:
            snapshot = cluster.snapshot()
            observer.seen(snapshot, wants)
        if cluster.now() == until:
            return snapshot
        cluster.advance(min(cluster.now() + tick, until))


def _forecast(predictor: Predictor, observation: Observation) -> WaitForecast | None:
    """``None`` without a forecast: scores of actions, or a rejected observation."""
    try:
        prediction = predictor.predict(observation)
    except Exception:  # as in the control loop, which records it
        return None
    return forecast_of(prediction)
