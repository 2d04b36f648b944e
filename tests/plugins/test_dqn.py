"""``dqn``: its targets are those of plain recursions, it finds a policy that is known, and its artifact holds."""

from __future__ import annotations

import json

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from learnable import USUAL, learnable, with_vectors
from mirage_dqn import _trainer, mlp_trainer, predictor
from mirage_dqn.learning import CounterfactualBuffer, DqnOptions, learn
from mirage_encoders.networks import EncoderOptions
from mirage_encoders.selection import ValidationSchedule, mean_cost, scores
from mirage_encoders.trainer import ScoreTrainer, TrainingLength
from mirage_encoders.vector import HOLD, HOURS, SUBMIT
from solvable import POINTS, SCHEMA, solvable
from stable_baselines3.common.buffers import ReplayBuffer

from mirage.plugin import ConfigError, Weights, check_predictor, load_artifact

SMALL = DqnOptions(
    encoder=EncoderOptions("mlp", 32),
    rate=2e-3,
    batch=256,
    tau=0.05,
    follow_every=1_600,
    patience=ValidationSchedule(3_200, 8),
)


def buffer(table, horizon: int) -> CounterfactualBuffer:
    space = Box(-1e9, 1e9, (SCHEMA.size,), np.float32)
    made = CounterfactualBuffer(
        10_000, space, Discrete(2), "cpu", 4, table=table, weights=Weights(), horizon=horizon, seed=0
    )
    assert isinstance(made, ReplayBuffer)
    return made


def visit(memory: CounterfactualBuffer, rows: np.ndarray) -> None:
    nothing = np.zeros(0)
    for four in rows.reshape(-1, 4):
        memory.add(nothing, nothing, nothing, nothing, nothing, [{"row": int(row)} for row in four])


def row_of(table, vector: np.ndarray) -> tuple[int, int]:
    (found,) = np.flatnonzero((table.features.reshape(-1, SCHEMA.size) == vector).all(axis=1))
    return int(found) // POINTS, int(found) % POINTS


@pytest.mark.parametrize("horizon", [1, 3, 100])
def test_targets_are_what_following_the_policy_step_by_step_gives(horizon: int) -> None:
    table, rng = solvable(0, 4), np.random.default_rng(1)
    submits = rng.random((4, POINTS)) < 0.15
    memory = buffer(table, horizon)
    decided = np.arange(4 * POINTS).reshape(4, POINTS)[:, :-1].ravel()
    visit(memory, decided)
    memory.follow(submits)
    returns = table.returns(Weights()) / HOURS
    seen = set()
    drawn = memory.sample(2_000)
    for before, action, after, done, reward in zip(
        drawn.observations.numpy(), drawn.actions.numpy()[:, 0], drawn.next_observations.numpy(),
        drawn.dones.numpy()[:, 0], drawn.rewards.numpy()[:, 0], strict=True,
    ):  # fmt: skip
        episode, point = row_of(table, before)
        seen.add((episode, point, int(action)))
        if action == SUBMIT:
            assert done
            assert reward == pytest.approx(returns[episode, point], abs=1e-6)
            continue
        reached = point + 1
        while reached < point + horizon and reached < POINTS - 1 and not submits[episode, reached]:
            reached += 1
        over = reached == POINTS - 1 or (horizon > 1 and submits[episode, reached])
        assert done == over
        assert row_of(table, after) == (episode, reached)
        assert reward == pytest.approx(returns[episode, reached] if over else 0, abs=1e-6)
    assert seen == {(row // POINTS, row % POINTS, action) for row in decided for action in (HOLD, SUBMIT)}


def test_only_rows_that_were_visited_are_drawn_and_old_ones_are_forgotten() -> None:
    table = solvable(0, 4)
    memory = buffer(table, 3)
    memory.buffer_size = 2
    visit(memory, np.array([0, 1, 2, 3, 30, 31, 32, 33, 60, 61, 62, 63]))
    points = {row_of(table, vector) for vector in memory.sample(500).observations.numpy()}
    assert points == {divmod(row, POINTS) for row in (30, 31, 32, 33, 60, 61, 62, 63)}


@pytest.mark.parametrize(
    ("kind", "steps"),
    [("mlp", 45_000), ("transformer", 25_000), ("moe", 45_000)],
    ids=["mlp", "transformer", "moe"],
)
def test_it_finds_a_policy_that_is_known(kind: str, steps: int) -> None:
    table, validation, fresh = solvable(0), solvable(1, 60), solvable(2, 100)
    options = DqnOptions(
        encoder=EncoderOptions(kind, 32), rate=2e-3, batch=256, tau=0.05, follow_every=1_600,
        patience=ValidationSchedule(3_200, 8),
    )  # fmt: skip
    learned = learn(table, validation, 3, TrainingLength(0, steps), options)
    best = -fresh.returns_of(fresh.best(Weights()), Weights()).mean()
    assert mean_cost(scores(learned.network, fresh), fresh) < best + 0.25, "hours; half a point of the grid"
    assert learned.course.steps in learned.curves["steps"]


def test_the_plain_target_finds_it_too() -> None:
    table, validation, fresh = solvable(0), solvable(1, 60), solvable(2, 100)
    options = DqnOptions(
        encoder=EncoderOptions("mlp", 32),
        rate=2e-3,
        batch=256,
        tau=0.05,
        horizon=1,
        patience=ValidationSchedule(3_200, 12),
    )
    learned = learn(table, validation, 3, TrainingLength(0, 80_000), options)
    best = -fresh.returns_of(fresh.best(Weights()), Weights()).mean()
    assert mean_cost(scores(learned.network, fresh), fresh) < best + 0.35


def test_the_same_seed_gives_the_same_network_and_another_one_another() -> None:
    table, validation = solvable(0, 50), solvable(1, 20)
    one, same, other = (
        scores(learn(table, validation, seed, TrainingLength(1, 6_400), SMALL).network, validation)
        for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)


def test_without_a_validation_it_learns_as_long_as_it_is_told() -> None:
    learned = learn(solvable(0, 50), None, 0, TrainingLength(2, 6_400), SMALL)
    assert learned.course == TrainingLength(2, 6_400)
    assert learned.curves["steps"] == []


def quick_trainer() -> ScoreTrainer:
    def learn_so(table, validation, seed, course):
        return learn(table, validation, seed, course, SMALL)

    return ScoreTrainer("dqn", "0.1.0", learn_so, TrainingLength(2, 6_400), Weights(), members=2)


def test_in_charge_it_holds_to_what_every_predictor_must(tmp_path) -> None:
    teaching, choosing = (with_vectors(learnable(seed, 40), USUAL) for seed in (0, 1))
    folder = quick_trainer().train(teaching, choosing, 0, tmp_path / "model")
    built = predictor(str(folder))
    assert built.name == f"dqn:{folder}"
    check_predictor(built, [USUAL])
    manifest = load_artifact(folder).manifest
    assert manifest.answers.kind == "action-scores"
    curves = json.loads((folder / "curves.json").read_text())
    assert len(manifest.seeds) == 3, "the seed, and those of two members"
    assert all(curves[f"course_{k}"][1] in curves[f"steps_{k}"] for k in (0, 1))


def test_a_wrong_use_says_what_to_do(tmp_path) -> None:
    with pytest.raises(ValueError, match="mirage train dqn"):
        predictor("")
    with pytest.raises(ConfigError, match="later validation handovers"):
        mlp_trainer().train(solvable(0, 5), solvable(0, 5).between(0, 0), 0, tmp_path / "model")
    with pytest.raises(ConfigError, match="none of mlp, transformer, moe"):
        _trainer("rnn")
