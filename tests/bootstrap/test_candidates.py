"""The candidates that the predictor ``auto`` finds in a daemon."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from mirage.bootstrap.cluster import ClusterInfo
from mirage.bootstrap.policies import build_guards
from mirage.bootstrap.predictors import best_at_hand
from mirage.config.loading import load_config
from mirage.domain.decision import WaitForecast, Wants
from mirage.domain.errors import ClusterUnavailable, ConfigError
from mirage.domain.objective import Weights
from mirage.plugin import sample_observation
from mirage.simulator.configuration.clusterfile import load_cluster

if TYPE_CHECKING:
    from pathlib import Path

    from mirage.domain.decision import Observation
    from mirage.predictors.auto import Auto
    from mirage.simulator.cluster import ClusterConfig

SEEN = sample_observation()
CLUSTER = load_cluster("demo")


class Named:
    """Predicts no wait, and says who it is."""

    wants = Wants()

    def __init__(self, name: str) -> None:
        self.name = name

    def predict(self, observation: Observation) -> WaitForecast:
        return WaitForecast.point(observation.time)


def in_use(models: Path, *names: str) -> Path:
    for name in names:
        (models / name).mkdir(parents=True)
        (models / name / "current").write_text("0123456789ab\n")
    return models


def who(auto: Auto, *, after: int = 120) -> str:
    """The predictor that answered, by its answer, after all candidates are found."""
    for time in (SEEN.time, SEEN.time + 60, SEEN.time + after):
        answer = auto.predict(replace(SEEN, time=time))
    return answer.basis


def without(*lost: str):
    def build(name: str) -> Named:
        if name in lost:
            raise ConfigError(name, "is broken")
        return Named(name)

    return build


def test_models_in_use_and_look_ahead_vote(tmp_path: Path) -> None:
    models = in_use(tmp_path, "zebra", "xgboost", "random-forest")
    (tmp_path / "dqn").mkdir()
    said = who(best_at_hand(models, lambda: CLUSTER, Named, Weights()))
    assert "of 4 would submit now" in said
    assert "lookahead, random-forest, xgboost, zebra" in said


@pytest.mark.parametrize(
    ("names", "lost", "first"),
    [
        ((), (), "lookahead"),
        (("xgboost",), (), "lookahead"),
        (("xgboost",), ("lookahead",), "xgboost"),
        (("dqn", "xgboost"), ("lookahead",), "xgboost"),
        (("xgboost",), ("lookahead", "xgboost"), "quantile"),
    ],
)
def test_best_that_is_there(names: tuple[str, ...], lost: tuple[str, ...], first: str, tmp_path: Path) -> None:
    auto = best_at_hand(in_use(tmp_path, *names), lambda: CLUSTER, without(*lost), Weights())
    assert who(auto).startswith(first)


def test_look_ahead_joins_once_slurm_answers(tmp_path: Path) -> None:
    """A machine starts its daemon before slurmctld is up."""
    up: list[bool] = []

    def describe() -> ClusterConfig:
        if not up:
            raise ClusterUnavailable("slurmctld does not answer")
        return CLUSTER

    auto = best_at_hand(tmp_path, describe, Named, Weights())
    assert who(auto).startswith("quantile")
    up.append(True)
    assert who(auto).startswith("quantile"), "it asks every ten minutes"
    assert [who(auto, after=seconds).split(":")[0] for seconds in (900, 960, 1_020)][-1].startswith("lookahead")


@pytest.mark.parametrize(
    ("age", "share", "expected"), [(1, 100, "reactive"), (1, 99, "lookahead"), (0, 0, "lookahead")]
)
def test_no_forecast_where_fair_share_outweighs_age(age: int, share: int, expected: str, tmp_path: Path) -> None:
    weights = replace(CLUSTER.priority, age=age, fair_share=share)
    auto = best_at_hand(tmp_path, lambda: replace(CLUSTER, priority=weights), Named, Weights())
    assert who(auto).startswith(expected)


def test_configured_daemon_asks_nobody_until_it_decides(tmp_path: Path) -> None:
    file = tmp_path / "mirage.toml"
    file.write_text(f'[service]\nstate = "{tmp_path}/state"\n[loop]\npredictor = "auto"\n')
    asked: list[str] = []

    def describe() -> ClusterConfig:
        asked.append("description")
        return CLUSTER

    config = load_config(file).config
    build_guards(config).close()
    guards = build_guards(config, ClusterInfo(description=describe))
    assert (guards.of("").predictor.name, asked) == ("auto", [])
    assert guards.wants.history == 0
    guards.of("").predict(SEEN)
    assert asked
    assert guards.wants.history > 0
    guards.close()
