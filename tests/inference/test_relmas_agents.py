"""The agents in use: what is seen, what networks may depend on, files, and one decision path for all."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch")
pytest.importorskip("onnx", reason="agents are exported by onnx")

from relmas_looks import random_look  # noqa: E402

from mirage.allocation.graph import Graph  # noqa: E402
from mirage.allocation.inference.kernel.seeing import PAIR, PIECE, STATE  # noqa: E402
from mirage.allocation.inference.registry import request_policy  # noqa: E402
from mirage.allocation.inference.relmas.artifact import ACTOR, Matching, read_agent, write_agent  # noqa: E402
from mirage.allocation.inference.relmas.policies import LearnedPolicy, act  # noqa: E402
from mirage.allocation.inference.relmas.sight import sight_of  # noqa: E402
from mirage.allocation.inference.relmas.timing import CORE_WATTS, seconds_of  # noqa: E402
from mirage.allocation.inference.rules import Costly  # noqa: E402
from mirage.allocation.inference.workload.scenariofile import find_scenario  # noqa: E402
from mirage.allocation.inference.workload.stage import set_stage  # noqa: E402
from mirage.artifact import MANIFEST  # noqa: E402
from mirage.domain.errors import ArtifactMismatch, ConfigError  # noqa: E402
from mirage.training.relmas.batches import seen_of  # noqa: E402
from mirage.training.relmas.export import graph_of  # noqa: E402
from mirage.training.relmas.networks import FAVOUR, Actor, Critic, Shape  # noqa: E402

if TYPE_CHECKING:
    from pathlib import Path

    from mirage.domain.units import Dispatch, SystemView

PERIOD = 0.1


def disturbed_actor(seed: int = 0) -> Actor:
    """One whose every weight says something."""
    torch.manual_seed(seed)
    actor = Actor(Shape())
    with torch.no_grad():
        for weight in actor.parameters():
            weight.add_(0.2 * torch.randn(weight.shape))
    return actor


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("agents") / "relmas"
    return write_agent(made, "relmas", graph_of(disturbed_actor()), Matching(), {"seed": 0}, {"gained": 0.1}, 1e-4)


def test_features_are_finite_and_in_the_order_of_deadlines() -> None:
    for seed in range(30):
        look, now = random_look(seed, ready=9)
        sight = sight_of(look, now, 9, PERIOD)
        assert sorted(sight.order) == list(range(9))
        late = look.deadline[sight.order] - now < look.least[look.piece[sight.order]]
        keys = list(zip(late, look.deadline[sight.order], strict=True))
        assert keys == sorted(keys)
        for part in (sight.piece, sight.pair, sight.state):
            assert np.isfinite(part).all()
            assert np.abs(part).max() < 20


def test_a_hand_made_instant() -> None:
    look, _ = random_look(0, ready=1, units=2, kinds=1, pieces=1)
    now = 7.0
    look = look._replace(
        running=np.array([-1, 1]),
        free_at=np.array([0.0, 8.0]),
        drawn=np.array([0.0, 1.0]),
        kind=np.zeros(2, np.int32),
    )
    look.seconds[:] = look.remaining[:] = 2.0
    look.least[:] = 2.0
    look.arrival[0], look.deadline[0], look.served[0] = 5.0, 13.0, 2.0
    sight = sight_of(look, now, 1, 2.0)
    piece = dict(zip(PIECE, sight.piece[0].tolist(), strict=True))
    assert piece["slack"] == pytest.approx(2.0 / 3.0)  # 4 s of slack for 2 s of work: x = 2
    assert piece["age"] == pytest.approx(2.0 / 8.0)
    assert piece["done"] == pytest.approx(0.5)
    assert piece["left"] == piece["hopeless"] == piece["place"] == 0.0
    busy = dict(zip(PAIR, sight.pair[0, 1].tolist(), strict=True))
    assert busy["wait"] == pytest.approx(1.0 / 3.0)  # 1 s for 2 s of work
    assert busy["margin"] == pytest.approx(0.6)  # 13 - 7 - 1 - 2 = 3 s for 2 s of work: x = 1.5
    assert busy["free"] == 0.0
    assert sight.pair[0, 0, PAIR.index("free")] == 1.0
    assert sight.state[STATE.index("drawn")] == pytest.approx(1.0 / 3.0)  # 1 of 2 bytes a second


def test_no_more_than_the_most_are_seen() -> None:
    look, now = random_look(1, ready=200)
    assert len(sight_of(look, now, 200, PERIOD).order) == 64
    assert len(sight_of(look, now, 0, PERIOD).order) == 0


def test_padding_changes_nothing() -> None:
    actor, critic = disturbed_actor(), Critic(Shape())
    short, long = (sight_of(*random_look(2, ready=n), n, PERIOD) for n in (3, 11))
    alone, both = seen_of([short]), seen_of([short, long])
    with torch.no_grad():
        priority, affinity = actor(*alone)
        padded = actor(*both)
        torch.testing.assert_close(padded[0][:1, :3], priority)
        torch.testing.assert_close(padded[1][:1, :3], affinity)
        mask = both.mask.unsqueeze(-1)
        value = critic(both, padded[0] * both.mask, padded[1] * mask)
        torch.testing.assert_close(value[:1], critic(alone, priority, affinity))


def test_units_have_no_order() -> None:
    actor = disturbed_actor()
    seen = seen_of([sight_of(*random_look(3, ready=6, units=5), 6, PERIOD)])
    order = torch.tensor([3, 1, 4, 0, 2])
    with torch.no_grad():
        priority, affinity = actor(*seen)
        there = actor(*seen._replace(pair=seen.pair[:, :, order]))
    torch.testing.assert_close(there[0], priority)
    torch.testing.assert_close(there[1], affinity[:, :, order])


def test_an_earlier_deadline_is_remembered_at_later_ones() -> None:
    actor = disturbed_actor()
    seen = seen_of([sight_of(*random_look(4, ready=6), 6, PERIOD)])
    piece = seen.piece.clone()
    piece[0, 0, 0] += 1.0
    with torch.no_grad():
        before, after = actor.reader(*seen)[0], actor.reader(*seen._replace(piece=piece))[0]
    assert not torch.allclose(before[0, 5], after[0, 5])


def test_actions_are_bounded_and_nothing_at_first() -> None:
    seen = seen_of([sight_of(*random_look(5, ready=6), 6, PERIOD)])
    with torch.no_grad():
        assert all(not part.any() for part in Actor(Shape())(*seen))
        priority, affinity = disturbed_actor()(*seen)
    assert priority.abs().max() <= 1
    assert affinity.abs().max() <= FAVOUR


def test_the_graph_answers_as_the_network(tmp_path: Path) -> None:
    actor = disturbed_actor()
    graph = Graph(graph_of(actor), tmp_path)
    for ready, units in ((1, 1), (9, 8), (64, 8)):
        sight = sight_of(*random_look(6, ready=ready, units=units), ready, PERIOD)
        with torch.no_grad():
            priority, affinity = actor(*seen_of([sight]))
        found = act(graph, sight)
        np.testing.assert_allclose(found[:, 0], priority[0].numpy(), atol=1e-5)
        np.testing.assert_allclose(found[:, 1:], affinity[0].numpy(), atol=1e-5)


def test_the_manifest_says_what_it_is(folder: Path) -> None:
    manifest, actor = read_agent(folder, "relmas")
    assert manifest.matching == Matching()
    assert set(manifest.files) == {ACTOR}
    assert actor


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"format": 99}, "update mirage"),
        ({"schema_hash": "0" * 64}, "train the agents again"),
        ({"more": 1}, "again"),
        ({"plugin": "odra"}, "odra:"),
    ],
)
def test_other_manifests_are_refused(folder: Path, tmp_path: Path, change: dict[str, object], told: str) -> None:
    document = json.loads((folder / MANIFEST).read_text())
    (tmp_path / MANIFEST).write_text(json.dumps(document | change))
    with pytest.raises(ArtifactMismatch, match=told):
        request_policy(f"relmas:{tmp_path}")


def test_an_agent_is_not_written_over(folder: Path) -> None:
    with pytest.raises(ConfigError, match="is there already"):
        write_agent(folder, "relmas", b"", Matching(), {}, {}, 0.0)


class Asked:
    """A scored policy that is only ever asked as the gateway asks."""

    period = 0.0
    """At arrivals and ends alone."""

    def __init__(self, policy: LearnedPolicy) -> None:
        self.name, self._policy = policy.name, policy

    def begin(self) -> None:
        self._policy.begin()

    def decide(self, view: SystemView) -> Dispatch:
        return self._policy.decide(view)


def test_the_gateways_way_is_the_simulators() -> None:
    stage = set_stage(find_scenario("synthetic"))
    policy = LearnedPolicy("listed", Matching(), None)
    system = stage.simulated(0)
    there = stage.simulated(0).play(policy)
    system.play(Asked(policy))
    np.testing.assert_array_equal(system.outcome().end, there.end)


def test_deciding_costs_time_and_energy(folder: Path) -> None:
    policy = request_policy(f"relmas:{folder}")
    assert isinstance(policy, Costly)
    assert policy.decision_seconds == 1e-4
    assert policy.decision_joules == pytest.approx(1e-4 * CORE_WATTS)
    assert not request_policy("listed").decision_seconds  # type: ignore[attr-defined]
    stage = set_stage(find_scenario("synthetic"))
    assert seconds_of(policy, stage.costs, stage.system) > 0  # type: ignore[arg-type]


def test_agents_are_played_by_name(folder: Path) -> None:
    stage = set_stage(find_scenario("synthetic"))
    first, second = (stage.simulated(0).play(request_policy(f"relmas:{folder}")) for _ in range(2))
    assert np.isfinite(first.end).all()
    np.testing.assert_array_equal(first.end, second.end)
    listed = stage.simulated(0).play(request_policy("listed"))
    assert not np.array_equal(first.end, listed.end)
