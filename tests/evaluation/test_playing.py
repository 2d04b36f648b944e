"""Played episodes against the replay's, true waits against real submissions, and what is kept."""

from __future__ import annotations

import math

import pytest
from small_trace import CLUSTER, DAY, HOUR, plan, trace

from mirage.domain.decision import Observation, WaitForecast, Wants
from mirage.domain.errors import ConfigError, PluginNotFound
from mirage.predictors.baselines import Reactive
from mirage.replay.closedloop import replay
from mirage.simulator.simulation import Simulation
from mirage.training.evaluation import schedule
from mirage.training.evaluation.plan import EvaluationPlan, EvaluationSetting, Method, methods_of
from mirage.training.evaluation.playing import PROBES, PlayableMethod, play_episodes
from mirage.training.evaluation.schedule import Evaluation, Found, learned_names

NAMES = ("reactive", "fixed:6h", "average", "quantile", "slurm", "lookahead", "oracle")
TRACE = trace()
START = 1_000_000 + 10 * DAY


SETTINGS = (EvaluationSetting(6, 2),)


def starts(found: Found) -> list[int | None]:
    return [episode.successor_start for episode in found.episodes]


def evaluation(*names: str, settings=SETTINGS, episodes: int = 14, **changes) -> EvaluationPlan:
    spans = {"train_from": 0, "validate_from": 0, "test_from": START, "test_to": START + (episodes - 1) * 9 * HOUR}
    methods = tuple(Method(name) for name in names)
    return EvaluationPlan(methods, settings, **spans, limit=DAY, every=9 * HOUR, **changes)


def test_hand_overs_are_those_of_the_replay() -> None:
    replays = plan(*NAMES, episodes=2, start=START, end=START + 9 * HOUR)
    theirs = {
        (o.policy, o.episode): (o.successor_submit, o.successor_start)
        for o in replay(TRACE, CLUSTER, replays).outcomes
    }
    ours = evaluation(*NAMES, episodes=2)
    actors = [
        schedule._actor(method.runs[0], None, ours.replay(ours.settings[0]), CLUSTER) for method in ours.methods
    ]
    mine = {}
    for played in play_episodes(TRACE, CLUSTER, ours.replay(ours.settings[0]), range(2), actors):
        for name, one in zip(NAMES, played, strict=True):
            mine[name, one.number] = (one.successor_submit, one.successor_start)
            assert all(name == "slurm" for _ in one.troubles)  # its plan does not reach that far
            assert bool(one.forecasts) == (name in ("average", "quantile", "slurm", "lookahead"))
    assert mine == theirs


def test_true_waits_are_those_of_jobs_that_were_submitted() -> None:
    ours = evaluation("quantile")
    replays = ours.replay(ours.settings[0])
    actor = schedule._actor(ours.methods[0].runs[0], None, replays, CLUSTER)
    (played,) = next(iter(play_episodes(TRACE, CLUSTER, replays, range(1), [actor])))
    probes = [forecast for forecast in played.forecasts if forecast.lead in PROBES]
    assert len(probes) == sum(lead < DAY for lead in PROBES)
    for forecast in probes:
        simulation = Simulation(CLUSTER, TRACE)
        simulation.run_until(START)
        chain = replays.chain()
        simulation.submit(chain.link_request(1), DAY)
        simulation.run_until(played.predecessor_end - forecast.lead)
        number = simulation.submit(chain.link_request(2), DAY)
        simulation.run_until(simulation.now + 20 * DAY)
        job = simulation.job(number)
        assert job.start - (played.predecessor_end - forecast.lead) == forecast.wait


class Noting(Reactive):
    """Wants to know all, and notes whether it does."""

    wants = Wants(waits=9, queue=True, plan=True, window=True, history=DAY, standing=True)

    def __init__(self) -> None:
        self.seen: list[Observation] = []

    def predict(self, observation: Observation) -> WaitForecast:
        self.seen.append(observation)
        return super().predict(observation)


def test_probes_and_decisions_see_all_that_is_wanted() -> None:
    noting = Noting()
    actor = PlayableMethod("noting", noting.wants, lambda cluster: noting, foresees=True)
    replays = evaluation("reactive").replay(SETTINGS[0])
    (played,) = next(iter(play_episodes(TRACE, CLUSTER, replays, range(1), [actor])))
    assert len(noting.seen) == len(played.forecasts) + played.asked
    for seen in noting.seen:
        assert len(seen.waits.wait)
        assert seen.window is not None
        assert seen.history is not None
        assert not math.isnan(seen.standing.fair_share)


def test_what_is_finished_is_found_again(tmp_path) -> None:
    def play(*names: str, **changes):
        said: list[str] = []
        found = Evaluation(TRACE, CLUSTER, evaluation(*names, **changes), tmp_path).carry_out(said.append)
        return found, len(said)

    first, parts = play("reactive", "quantile")
    assert parts == 2
    again, parts = play("reactive", "quantile")
    assert (again, parts) == (first, 0)
    more, parts = play(
        "reactive", "quantile", "oracle", settings=(EvaluationSetting(6, 2), EvaluationSetting(5, 2))
    )
    assert parts == 4
    assert [one for one in more if one.setting == EvaluationSetting(6, 2)][:2] == first
    longer, parts = play("reactive", episodes=16)
    assert parts == 1
    assert longer[0].episodes[:12] == first[0].episodes[:12]
    assert starts(longer[0])[:14] == starts(first[0])
    kept = sorted((tmp_path / "played").rglob("*.json"))
    kept[0].write_text(kept[0].read_text()[:100])
    kept[1].unlink()
    repaired, parts = play(
        "reactive", "quantile", "oracle", settings=(EvaluationSetting(6, 2), EvaluationSetting(5, 2))
    )
    assert parts > 0
    assert [(one.setting, one.run, starts(one)) for one in repaired] == [
        (o.setting, o.run, starts(o)) for o in more
    ]


def test_mistakes_are_named_before_the_work(tmp_path) -> None:
    with pytest.raises(PluginNotFound, match="magic"):
        learned_names(("magic",))
    with pytest.raises(ConfigError, match="level"):
        learned_names(("quantile:2",))
    with pytest.raises(ConfigError, match="duplicate"):
        methods_of(("reactive", "reactive"), frozenset(), 3, ())
    with pytest.raises(ConfigError, match="lookahead"):
        methods_of(("reactive",), frozenset(), 3, ("nodes+5%",))
    with pytest.raises(ConfigError, match="early-submission"):
        Evaluation(TRACE, CLUSTER, evaluation("pin"), tmp_path)
    with pytest.raises(ConfigError, match="--test-from"):
        Evaluation(
            TRACE, CLUSTER, EvaluationPlan((Method("reactive"),), (EvaluationSetting(6, 1),), 0, 0, 5, 9), tmp_path
        )
    assert list(tmp_path.iterdir()) == []
