"""Rewards and advantages against their definitions; a training that continues where it was cut off."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch")
pytest.importorskip("onnx", reason="agents are exported by onnx")

from test_das_policies import simulated  # noqa: E402

from mirage.domain.errors import ConfigError  # noqa: E402
from mirage.training.das import rollouts  # noqa: E402
from mirage.training.das.agents import Agents  # noqa: E402
from mirage.training.das.course import DasCourse, DasTraining, shape_of  # noqa: E402
from mirage.training.das.networks import DasShape, OrderingNet  # noqa: E402
from mirage.training.das.rollouts import play  # noqa: E402

if TYPE_CHECKING:
    from pathlib import Path

MIX = 'count = 12\nclasses = [{ sizes = [1, 2, 4] }]\narrival = "poisson"\n'


def test_charges_add_up_to_the_mean_completion_time() -> None:
    (episode,) = play([simulated(0)], Agents(DasShape(), np.zeros(3, np.int32)), torch.Generator().manual_seed(0))
    outcome = episode.outcome
    unit = 1000.0
    reward = rollouts.rewards(episode, unit)
    held = outcome.served / outcome.tasks.work
    bonus = outcome.tasks.work / np.maximum(outcome.jct, outcome.tasks.work) / np.maximum(held, 1.0)
    wanted = rollouts.BONUS * bonus.mean() - outcome.jct.mean() / unit
    assert reward.sum() == pytest.approx(wanted)


def test_advantages_are_returns_less_values_without_smoothing_away() -> None:
    rng = np.random.default_rng(0)
    reward, value = rng.normal(size=6), rng.normal(size=6)
    found, wanted = rollouts.advantages(reward, value, 1.0)
    returns = np.cumsum(reward[::-1])[::-1]
    np.testing.assert_allclose(found, returns - value)
    np.testing.assert_allclose(wanted, returns)
    short, _ = rollouts.advantages(reward, value, 0.0)
    np.testing.assert_allclose(short, reward + np.append(value[1:], 0) - value)


def test_scores_follow_their_tasks_but_for_the_place_in_the_list() -> None:
    torch.manual_seed(0)
    network = OrderingNet(DasShape())
    with torch.no_grad():
        for weight in network.parameters():
            weight.add_(0.2 * torch.randn(weight.shape))
    base, task, node = torch.randn(1, 6, 4), torch.randn(1, 6, 16), torch.randn(1, 4, 7)
    mask, order = torch.ones(1, 6), torch.tensor([3, 1, 5, 0, 2, 4])
    here = network(base, task, node, mask)
    there = network(base[:, order], task[:, order], node, mask)
    assert not torch.allclose(there, here[:, order], atol=1e-5)
    network.places = torch.nn.Identity()
    here = network(base, task, node, mask)
    torch.testing.assert_close(network(base[:, order], task[:, order], node, mask), here[:, order])
    torch.testing.assert_close(network(base, task, node[:, [2, 0, 3, 1]], mask), here)


def test_padding_changes_no_score() -> None:
    torch.manual_seed(1)
    network = OrderingNet(DasShape())
    base, task, node = torch.randn(1, 5, 4), torch.randn(1, 5, 16), torch.randn(1, 4, 7)
    short = network(base, task, node, torch.ones(1, 5))
    padded = [torch.cat([part, torch.randn_like(part)], dim=1) for part in (base, task)]
    mask = torch.cat([torch.ones(1, 5), torch.zeros(1, 5)], dim=1)
    torch.testing.assert_close(network(*padded, node, mask)[:, :5], short)


def course(folder: Path, rounds: int) -> DasCourse:
    mix = folder / "mix.toml"
    mix.write_text(MIX)
    return DasCourse((str(mix),), "2x4", "", rounds=rounds, sets=2, copies=2, tasks=8, every=1, validated=1)


def test_a_training_goes_on_as_if_it_had_not_been_cut_off(tmp_path: Path) -> None:
    whole = DasTraining(course(tmp_path, 3))
    told = [report.measured["jct"] for report in whole.rounds()]
    first = DasTraining(course(tmp_path, 2))
    before = [report.measured["jct"] for report in first.rounds()]
    first.save(tmp_path / "state")
    second = DasTraining(course(tmp_path, 3))
    second.resume(tmp_path / "state")
    after = [report.measured["jct"] for report in second.rounds()]
    assert before + after == told
    for here, there in zip(whole.agents.parameters(), second.agents.parameters(), strict=True):
        torch.testing.assert_close(here, there)
    assert whole.write(tmp_path / "das").is_dir()


def test_a_state_of_another_course_is_refused(tmp_path: Path) -> None:
    training = DasTraining(course(tmp_path, 1))
    training.save(tmp_path / "state")
    (tmp_path / "broken").write_bytes(b"nothing")
    other = DasTraining(DasCourse((str(tmp_path / "mix.toml"),), "2x4", "", seed=1, validated=1))
    with pytest.raises(ConfigError, match="another configuration"):
        other.resume(tmp_path / "state")
    with pytest.raises(ConfigError, match="not the state"):
        other.resume(tmp_path / "broken")


def test_a_round_moves_the_agents(tmp_path: Path) -> None:
    training = DasTraining(course(tmp_path, 1))
    before = [weight.clone() for weight in training.agents.ordering.parameters()]
    (report,) = training.rounds()
    assert report.measured["lessons"] > 0
    assert report.validation is not None
    assert all(torch.isfinite(weight).all() for weight in training.agents.parameters())
    moved = zip(before, training.agents.ordering.parameters(), strict=True)
    assert any(not torch.equal(old, new) for old, new in moved)


def test_parts_that_do_not_exist_cannot_be_left_out() -> None:
    assert shape_of(["walks"]) == DasShape(walks=False)
    with pytest.raises(ConfigError, match="choose from communication, walks"):
        shape_of(["attention"])
