"""The environments: Gymnasium's own check, each against the other, and the best policy by dynamic programming."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given
from hypothesis import strategies as st
from made_tables import PLAN, made_up, played
from small_trace import CLUSTER, HOUR, trace

from mirage.domain.objective import Weights
from mirage.features.schema import schema
from mirage.training.environment import HOLD, SUBMIT, HandoverEnv, HandoverVectorEnv, SimulatedEnv

if TYPE_CHECKING:
    from mirage.features.table import Table

SHORT = replace(PLAN, end=PLAN.start + 18 * HOUR, nodes=(2,))
PRICES = Weights(interruption=1, overlap=0.5)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    return played(tmp_path_factory.mktemp("environment"), plan=SHORT)


@pytest.fixture(scope="module")
def simulated() -> SimulatedEnv:
    return SimulatedEnv(trace(), CLUSTER, SHORT, schema("v2"), PRICES)


def test_gymnasium_finds_nothing_wrong(table: Table, simulated: SimulatedEnv) -> None:
    check_env(HandoverEnv(table), skip_render_check=True)
    check_env(simulated, skip_render_check=True)


def test_the_table_and_the_simulator_are_one_environment(table: Table, simulated: SimulatedEnv) -> None:
    looked_up = HandoverEnv(table, PRICES)
    for episode in range(len(table)):
        for holds in (0, 2, 6):
            named = {"episode": episode}
            seen = [env.reset(options=named) for env in (looked_up, simulated)]
            steps = 0
            while True:
                assert np.array_equal(seen[0][0], seen[1][0])
                assert seen[0][1:] == seen[1][1:]
                if len(seen[0]) == 5 and seen[0][2]:
                    break
                action = HOLD if steps < holds else SUBMIT
                seen = [env.step(action) for env in (looked_up, simulated)]
                steps += 1


def by_dynamic_programming(env: HandoverEnv | SimulatedEnv, episode: int, points: int) -> tuple[int, float]:
    """The best point and its value, from the end backwards, by nothing but steps of the environment."""
    best, value = points - 1, -np.inf
    for index in reversed(range(points)):
        env.reset(options={"episode": episode})
        for _ in range(min(index, points - 2)):
            env.step(HOLD)
        _, reward, over, _, _ = env.step(SUBMIT if index < points - 1 else HOLD)
        assert over
        if reward >= value:  # the earliest of equals, as the table has it
            best, value = index, float(reward)
    return best, value


def test_the_best_policy_is_the_tables_oracle(table: Table, simulated: SimulatedEnv) -> None:
    oracle, returns = table.best(PRICES), table.returns(PRICES)
    for episode in range(len(table)):
        for env in (HandoverEnv(table, PRICES), simulated):
            best, value = by_dynamic_programming(env, episode, table.submit.shape[1])
            assert best == oracle[episode]
            assert value == pytest.approx(returns[episode].max(), abs=1e-9)


@given(st.integers(0, 500), st.integers(1, 6), st.floats(0, 1))
def test_many_at_once_are_each_one(seed: int, count: int, eagerness: float) -> None:
    """Every step of the vector environment is the step that a single one would have made."""
    table, rng = made_up(seed), np.random.default_rng(seed)
    many, alone = HandoverVectorEnv(table, count, PRICES), HandoverEnv(table, PRICES)
    observations, _ = many.reset(seed=seed)
    points = table.submit.shape[1]
    for _ in range(15):
        before = observations[:, 0].astype(int)
        actions = (rng.random(count) < eagerness).astype(np.int64)
        observations, rewards, over, truncated, infos = many.step(actions)
        assert not truncated.any()
        for k in range(count):
            alone.reset(options={"episode": before[k] // points})
            for _ in range(before[k] % points):
                alone.step(HOLD)
            seen, reward, ended, _, info = alone.step(actions[k])
            assert (reward, ended) == (rewards[k], over[k])
            if ended:
                assert np.array_equal(infos["final_obs"][k], seen)
                assert {name: infos[name][k] for name in info} == info
                assert all(infos[f"_{name}"][k] for name in ("final_obs", *info))
                assert observations[k, 0] % points == 0
            else:
                assert np.array_equal(observations[k], seen)


def test_the_same_seed_draws_the_same_episodes_and_all_of_them() -> None:
    table = made_up(3)
    points = table.submit.shape[1]
    begun = []
    for _ in range(2):
        env = HandoverVectorEnv(table, 4)
        first, _ = env.reset(seed=11)
        drawn = [first[:, 0], *(env.step(np.ones(4, dtype=np.int64))[0][:, 0] for _ in range(50))]
        begun.append(np.concatenate(drawn) // points)
    assert np.array_equal(*begun)
    assert set(begun[0]) == set(range(len(table)))


def test_named_episodes_begin_at_their_first_point() -> None:
    env = HandoverVectorEnv(made_up(3), 3)
    observations, _ = env.reset(options={"episode": [4, 0, 2]})
    assert observations[:, 0].tolist() == [28, 0, 14]


def test_a_learner_may_change_what_it_got(table: Table) -> None:
    env, many = HandoverEnv(table), HandoverVectorEnv(table, 2)
    kept = table.features.copy()
    env.reset(options={"episode": 0})[0][:] = -1
    many.reset(options={"episode": [0, 0]})[0][:] = -1
    assert np.array_equal(table.features, kept)


def test_an_empty_table_is_no_environment() -> None:
    empty = made_up(0).take(np.zeros(0, dtype=np.int64))
    for make in (HandoverEnv, lambda table: HandoverVectorEnv(table, 2)):
        with pytest.raises(ValueError, match="no handover"):
            make(empty)
