"""``xgboost``: it learns quantiles that are known, answers alike as ONNX, and decides well by them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from learnable import TOLD, USUAL, learnable, true_quantile, with_vectors
from mirage_xgboost import predictor
from mirage_xgboost.training import LEVELS, BoostingSettings, XGBoostTrainer, boosted_graph

from mirage.domain.errors import ArtifactMismatch, ConfigError
from mirage.plugin import Weights, check_predictor, load_artifact, policy_scores, submit_points
from mirage.predictors.onnx_predictor import OnnxModel

QUICK = BoostingSettings(rounds=60, learning_rate=0.2, depth=3, columns=0.8)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("xgboost") / "model"
    return XGBoostTrainer(QUICK).train(learnable(0), learnable(1, 40), 7, folder)


def hours(folder, table) -> np.ndarray:
    model = OnnxModel((folder / "model.onnx").read_bytes(), folder, table.schema.size, len(LEVELS))
    output = model.run(table.features.reshape(-1, table.schema.size))
    return load_artifact(folder).manifest.answers.quantiles(output).reshape(*table.submit.shape, -1)


def test_it_learns_quantiles_that_are_known(trained) -> None:
    fresh = learnable(2, 40)
    told = fresh.features[..., fresh.schema.names.index(TOLD)]
    found = hours(trained, fresh)
    for level in (0.1, 0.5, 0.9):
        known = true_quantile(told, level)
        off = np.abs(found[..., LEVELS.index(level)] - known)
        assert off.mean() < 0.15 * known.mean(), f"at level {level}"


def test_it_decides_almost_as_well_as_one_who_knows(trained) -> None:
    fresh = learnable(3, 60)
    told = fresh.features[..., fresh.schema.names.index(TOLD)]
    knowing = policy_scores(fresh, submit_points(fresh, true_quantile(told, 0.5)), Weights())
    learnt = policy_scores(fresh, submit_points(fresh, hours(trained, fresh)[..., LEVELS.index(0.5)]), Weights())
    fixed = [submit_points(fresh, np.full(fresh.submit.shape, lead)) for lead in np.arange(0, 12, 0.5)]
    best_fixed = min(policy_scores(fresh, index, Weights())["absolute_x"] for index in fixed)
    assert learnt["absolute_x"] < knowing["absolute_x"] + 0.35 * (best_fixed - knowing["absolute_x"])


def test_onnx_answers_as_xgboost_itself(trained) -> None:
    table = learnable(4, 20)
    booster, _ = XGBoostTrainer(QUICK)._boosted(table, 1, 25)
    vectors = table.features.reshape(-1, table.schema.size)
    model = OnnxModel(boosted_graph(booster, 25), trained, table.schema.size, len(LEVELS))
    np.testing.assert_allclose(model.run(vectors), np.expm1(booster.inplace_predict(vectors)), 1e-5, 1e-5)


def test_the_same_seed_gives_the_same_model_and_another_one_another(tmp_path) -> None:
    def made(name: str, seed: int) -> bytes:
        settings = BoostingSettings(rounds=20, learning_rate=0.2, depth=3, columns=0.3, least_in_leaf=10)
        folder = XGBoostTrainer(settings).train(learnable(0, 30), learnable(1, 10), seed, tmp_path / name)
        return (folder / "model.onnx").read_bytes()

    first = made("first", 7)
    assert made("same", 7) == first
    assert made("other", 8) != first


def test_the_curves_are_kept_and_growing_stops_where_validation_is_best(trained) -> None:
    curves = json.loads((trained / "curves.json").read_text())
    metrics = load_artifact(trained).manifest.metrics
    validation = curves["validation_pinball"]
    assert metrics["rounds"] == int(np.argmin(validation)) + 1
    assert len(validation) == len(curves["train_pinball"])


def test_in_charge_it_holds_to_what_every_predictor_must(tmp_path) -> None:
    teaching, choosing = (with_vectors(learnable(seed, 40), USUAL) for seed in (0, 1))
    folder = XGBoostTrainer(QUICK).train(teaching, choosing, 0, tmp_path / "model")
    built = predictor(str(folder))
    assert built.name == f"xgboost:{folder}"
    check_predictor(built, [USUAL])


def test_a_wrong_use_says_what_to_do(tmp_path, trained) -> None:
    with pytest.raises(ValueError, match="mirage train xgboost"):
        predictor("")
    with pytest.raises(ArtifactMismatch, match="there is no such file"):
        predictor(str(tmp_path))
    none = learnable(0, 40).between(0, 1)
    with pytest.raises(ConfigError, match="widen the span"):
        XGBoostTrainer(QUICK).train(learnable(0, 5), none, 0, tmp_path / "model")
    with pytest.raises(ConfigError, match="is there already"):
        XGBoostTrainer(QUICK).train(learnable(0, 5), learnable(1, 5), 0, trained)
