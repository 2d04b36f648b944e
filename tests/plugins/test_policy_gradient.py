"""``policy-gradient``: the expected return is what playing gives, known policies are found, the artifact holds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from learnable import USUAL, learnable, with_vectors
from mirage_encoders.networks import EncoderOptions
from mirage_encoders.selection import ValidationSchedule, mean_cost, scores
from mirage_encoders.trainer import ScoreTrainer, TrainingLength
from mirage_policy_gradient import mlp_trainer, ppo_trainer, predictor
from mirage_policy_gradient.learning import PolicyOptions, entropy, expected_return, learn
from solvable import POINTS, solvable

from mirage.plugin import ConfigError, Weights, check_predictor

SMALL = PolicyOptions(
    algorithm="reinforce",
    encoder=EncoderOptions("mlp", 32),
    rate=3e-3,
    envs=64,
    patience=ValidationSchedule(8_000, 30),
)
PPO = replace(SMALL, algorithm="ppo", rollout=24, batch=512, rate=1e-3, submit_chance=0.05)


@given(st.integers(0, 10**6), st.integers(2, 7))
@settings(max_examples=40)
def test_the_expected_return_is_the_sum_over_all_ways_to_play(seed: int, points: int) -> None:
    rng = np.random.default_rng(seed)
    logits, returns = rng.normal(0, 3, (3, points, 2)), rng.normal(0, 5, (3, points))
    found = expected_return(torch.tensor(logits), torch.tensor(returns)).numpy()
    for episode in range(3):
        held, total = 1.0, 0.0
        for point in range(points):
            hold, submit = np.exp(logits[episode, point] - logits[episode, point].max())
            chance = 1.0 if point == points - 1 else submit / (hold + submit)
            total += held * chance * returns[episode, point]
            held *= 1 - chance
        assert found[episode] == pytest.approx(total, abs=1e-9)


def test_its_gradient_is_what_drawn_actions_estimate() -> None:
    """REINFORCE's estimator, return times the gradient of the actions' logarithm, over many drawn plays."""
    rng = np.random.default_rng(0)
    logits = torch.tensor(rng.normal(size=(1, 4, 2)), requires_grad=True)
    returns = torch.tensor(rng.normal(0, 2, (1, 4)))
    expected_return(logits, returns).sum().backward()
    chances = torch.softmax(logits.detach()[0], dim=-1).numpy()
    estimate, plays = np.zeros((4, 2)), 200_000
    at = np.array([next((k for k in range(3) if u[k] < chances[k, 1]), 3) for u in rng.random((plays, 3))])
    for stop, count in zip(*np.unique(at, return_counts=True), strict=True):
        gradient = np.zeros((4, 2))
        for point in range(min(stop + 1, 3)):
            gradient[point] = -chances[point]
            gradient[point, 1 if point == stop else 0] += 1
        estimate += count / plays * float(returns[0, stop]) * gradient
    np.testing.assert_allclose(logits.grad[0].numpy(), estimate, atol=0.02)


def test_entropy_is_greatest_where_nothing_is_decided() -> None:
    assert float(entropy(torch.zeros(2, 5, 2))) == pytest.approx(np.log(2))
    assert float(entropy(torch.tensor([[[9.0, -9.0], [0.0, 0.0]]]))) == pytest.approx(0, abs=1e-5)


@pytest.mark.parametrize("kind", ["mlp", "transformer", "moe"])
def test_reinforce_finds_a_policy_that_is_known(kind: str) -> None:
    table, validation, fresh = solvable(0), solvable(1, 60), solvable(2, 100)
    options = replace(SMALL, encoder=EncoderOptions(kind, 32))
    learned = learn(table, validation, 3, TrainingLength(0, 240_000), options)
    best = -fresh.returns_of(fresh.best(Weights()), Weights()).mean()
    assert mean_cost(scores(learned.network, fresh), fresh) < best + 0.25, "hours; half a point of the grid"


def test_ppo_finds_a_policy_that_is_known() -> None:
    table, validation, fresh = solvable(0), solvable(1, 60), solvable(2, 100)
    learned = learn(table, validation, 3, TrainingLength(0, 120_000), PPO)
    best = -fresh.returns_of(fresh.best(Weights()), Weights()).mean()
    assert mean_cost(scores(learned.network, fresh), fresh) < best + 0.25


@pytest.mark.parametrize("options", [SMALL, PPO], ids=["reinforce", "ppo"])
def test_the_same_seed_gives_the_same_network_and_another_one_another(options: PolicyOptions) -> None:
    table, validation = solvable(0, 70), solvable(1, 20)
    one, same, other = (
        scores(learn(table, validation, seed, TrainingLength(1, 6 * 64 * POINTS), options).network, validation)
        for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)


def test_in_charge_it_holds_to_what_every_predictor_must(tmp_path) -> None:
    def learn_so(table, validation, seed, course):
        return learn(table, validation, seed, course, SMALL)

    teaching, choosing = (with_vectors(learnable(seed, 40), USUAL) for seed in (0, 1))
    trainer = ScoreTrainer("policy-gradient", "0.1.0", learn_so, TrainingLength(2, 20_000), Weights(), members=2)
    folder = trainer.train(teaching, choosing, 0, tmp_path / "model")
    built = predictor(str(folder))
    assert built.name == f"policy-gradient:{folder}"
    check_predictor(built, [USUAL])


def test_a_wrong_use_says_what_to_do(tmp_path) -> None:
    with pytest.raises(ValueError, match="mirage train policy-gradient"):
        predictor("")
    with pytest.raises(ConfigError, match="later validation handovers"):
        mlp_trainer().train(solvable(0, 5), solvable(0, 5).between(0, 0), 0, tmp_path / "model")
    with pytest.raises(ConfigError, match="later validation handovers"):
        ppo_trainer().train(solvable(0, 5), solvable(0, 5).between(0, 0), 0, tmp_path / "model")
    with pytest.raises(ConfigError, match="choose from ppo, reinforce"):
        learn(solvable(0, 5), None, 0, TrainingLength(0, 1), PolicyOptions(algorithm="sarsa"))
