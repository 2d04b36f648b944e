"""Parts that the learners share: environments that step as Gymnasium's, networks, exact judging, export."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from mirage_encoders.networks import EncoderOptions, Layout, Mixture, encoder, moments, policy_arguments
from mirage_encoders.selection import Leads, Pretraining, first_submission, mean_cost, pretrain, scores
from mirage_encoders.trainer import Council, best_margin, exported
from mirage_encoders.vector import HOURS, TableVecEnv
from solvable import POINTS, SCHEMA, solvable

from mirage.features.schema import schema
from mirage.plugin import ConfigError, Weights
from mirage.training.environment import HandoverEnv

KINDS = [EncoderOptions("mlp", 16), EncoderOptions("transformer", 16), EncoderOptions("moe", 16, experts=3)]
KINDS.append(EncoderOptions("moe", 16, experts=2, expert="transformer"))


def network(options: EncoderOptions, layout: Layout, seed: int = 0) -> torch.nn.Module:
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    size = layout.size
    mean, spread = rng.normal(size=size).astype(np.float32), rng.uniform(1, 2, size).astype(np.float32)
    return torch.nn.Sequential(encoder(layout, options, mean, spread), torch.nn.Linear(options.width, 2)).eval()


@pytest.mark.parametrize("random_starts", [False, True])
def test_steps_are_those_of_the_environment_of_gymnasium(random_starts: bool) -> None:
    table = solvable(0, 5)
    ours, theirs = TableVecEnv(table, 3, 1, random_starts=random_starts), HandoverEnv(table)
    rng = np.random.default_rng(2)
    seen = ours.reset()
    plain = None
    for _ in range(300):
        actions = (rng.random(3) < 0.1).astype(np.int64)
        before = seen
        seen, rewards, over, infos = ours.step(actions)
        row = infos[0]["row"]
        np.testing.assert_array_equal(before[0], table.features.reshape(-1, SCHEMA.size)[row])
        if plain is None:
            plain, _ = theirs.reset(options={"episode": row // POINTS})
            for _ in range(row % POINTS):
                plain, *_ = theirs.step(0)
        np.testing.assert_array_equal(before[0], plain)
        plain, reward, ended, _, _ = theirs.step(int(actions[0]))
        assert ended == over[0]
        assert rewards[0] == pytest.approx(reward / HOURS, abs=1e-6)
        if ended:
            np.testing.assert_array_equal(infos[0]["terminal_observation"], plain)
            plain = None
        else:
            np.testing.assert_array_equal(seen[0], plain)


def test_a_policy_is_judged_as_one_who_plays_it_step_by_step() -> None:
    table, rng = solvable(3, 30), np.random.default_rng(0)
    said = rng.normal(size=(30, POINTS, 2)).astype(np.float32) + np.array([2, 0], dtype=np.float32)
    env, costs = HandoverEnv(table), []
    for episode in range(30):
        env.reset(options={"episode": episode})
        for point in range(POINTS):
            _, reward, over, _, _ = env.step(int(said[episode, point, 1] >= said[episode, point, 0]))
            if over:
                break
        costs.append(-reward)
    assert mean_cost(said, table) == pytest.approx(np.mean(costs))


def test_leads_bound_when_a_policy_submits() -> None:
    table = solvable(4, 10)
    always, never = np.zeros((10, POINTS, 2)), np.zeros((10, POINTS, 2))
    always[..., 1], never[..., 0] = 1, 1
    lead = table.end[:, None] - table.submit
    early = np.take_along_axis(lead, first_submission(always, table, Leads(0, 14_400))[:, None], 1)
    late = np.take_along_axis(lead, first_submission(never, table, Leads(7_200, 14_400))[:, None], 1)
    assert set(early.ravel()) == {14_400}
    assert set(late.ravel()) == {7_200}


@pytest.mark.parametrize("options", KINDS, ids=lambda o: f"{o.kind}-{o.expert}")
@pytest.mark.parametrize("layout", [Layout(6, 4, 9), Layout(7, 3, 0)], ids=["statics", "sequence"])
def test_what_is_exported_answers_as_the_network(options: EncoderOptions, layout: Layout) -> None:
    sample = np.random.default_rng(0).normal(0, 3, (64, layout.size)).astype(np.float32)
    net = network(options, layout)
    import onnxruntime

    session = onnxruntime.InferenceSession(exported(net, sample))
    with torch.no_grad():
        wanted = net(torch.from_numpy(sample[:1])).numpy()
    np.testing.assert_allclose(session.run(None, {"features": sample[:1]})[0], wanted, 1e-5, 1e-5)


@pytest.mark.parametrize("name", ["v2", "paper-v1"])
@pytest.mark.parametrize("kind", ["mlp", "transformer", "moe"])
def test_every_encoder_takes_every_schema(name: str, kind: str) -> None:
    chosen = schema(name)
    layout = Layout(chosen.steps, len(chosen.sequence), len(chosen.static))
    raw = 1e5 * np.random.default_rng(0).random((3, chosen.size)).astype(np.float32)
    with torch.no_grad():
        scored = network(EncoderOptions(kind, 16), layout)(torch.from_numpy(raw))
    assert scored.shape == (3, 2)
    assert torch.isfinite(scored).all()


def test_a_gate_weighs_experts_so_that_the_weights_add_up_to_one() -> None:
    layout = Layout(2, 3, 4)
    mixture = Mixture(layout, EncoderOptions("moe", 8, experts=5))
    seen = torch.randn(7, layout.size)
    weights = mixture.weights(seen)
    torch.testing.assert_close(weights.sum(dim=1), torch.ones(7))
    by_hand = sum(weights[:, [k]] * expert(seen) for k, expert in enumerate(mixture.experts))
    torch.testing.assert_close(mixture(seen), by_hand)


def test_a_transformer_sees_the_order_of_the_steps() -> None:
    layout = Layout(4, 2, 3)
    net = network(EncoderOptions("transformer", 16), layout)
    seen = torch.randn(5, layout.size)
    turned = torch.cat([seen[:, :8].unflatten(1, (4, 2)).flip(1).flatten(1), seen[:, 8:]], dim=1)
    with torch.no_grad():
        assert not torch.allclose(net(seen), net(turned), atol=1e-4)


def test_pretraining_learns_waits_that_are_told_and_keeps_its_best_epoch() -> None:
    table, validation = solvable(0), solvable(1, 50)
    arguments = policy_arguments(table, EncoderOptions("mlp", 32))["features_extractor_kwargs"]
    torch.manual_seed(0)
    net = encoder(arguments["layout"], arguments["options"], *arguments["moments"])
    best, curves = pretrain(net, (table, validation), 12, 0, Pretraining(rate=3e-3))
    losses = curves["pretraining_validation"]
    assert best == int(np.argmin(losses)) + 1
    assert min(losses) < 0.15, "hours; the spread of what is foretold is some hours"


def test_features_that_never_change_are_harmless_and_numbers_that_are_none_are_named() -> None:
    table = solvable(0, 5)
    mean, spread = moments(table)
    assert spread[-1] == 1
    assert mean[-1] == 1
    broken = table.features.copy()
    broken[2, 3, -2] = np.nan
    with pytest.raises(ValueError, match="remaining is not finite"):
        moments(replace(table, features=broken))


def test_a_network_that_does_not_exist_is_refused() -> None:
    for options in (EncoderOptions("rnn"), EncoderOptions(expert="rnn"), EncoderOptions(width=30)):
        with pytest.raises(ConfigError, match="encoder"):
            options.check()


def test_an_empty_table_has_no_environment() -> None:
    with pytest.raises(ValueError, match="no handover"):
        TableVecEnv(solvable(0, 5).take(np.array([], dtype=int)), 2, 0)


def test_a_council_says_the_mean_of_its_members_and_its_margin() -> None:
    members = [network(EncoderOptions("mlp", 8), Layout(1, 2, 3), seed) for seed in (0, 1, 2)]
    seen = torch.randn(9, 5)
    with torch.no_grad():
        by_hand = sum(member(seen) for member in members) / 3 + torch.tensor([0.0, 0.25])
        torch.testing.assert_close(Council(members, 0.25)(seen), by_hand)


def test_the_margin_is_the_one_that_costs_least() -> None:
    table, rng = solvable(6, 40), np.random.default_rng(0)
    # Submits when the wait is an hour longer than the time left: always an hour late, but for the noise.
    late = (table.wait - (table.end[:, None] - table.submit)) / 3_600 - 1
    said = np.stack([np.zeros_like(late), late + rng.normal(0, 0.05, late.shape)], axis=-1).astype(np.float32)
    margin = best_margin(said, table, Weights())
    costs = [mean_cost(said + np.array([0, m], dtype=np.float32), table) for m in np.arange(-3, 3, 0.05)]
    assert margin == pytest.approx(1, abs=0.4)
    assert mean_cost(said + np.array([0, margin], dtype=np.float32), table) <= min(costs) + 0.05


def test_scores_are_those_of_each_point() -> None:
    table = solvable(5, 4)
    net = network(EncoderOptions("mlp", 16), Layout(3, 2, 2))
    with torch.no_grad():
        one = net(torch.from_numpy(table.features[2, 7][None])).numpy()[0]
    np.testing.assert_allclose(scores(net, table)[2, 7], one, 1e-5, 1e-5)
