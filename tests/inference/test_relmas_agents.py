"""The agents in use: observations, what networks may depend on, files, and one decision path for all."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch")
pytest.importorskip("onnx", reason="agents are exported by onnx")

from relmas_looks import random_look  # noqa: E402

from mirage.allocation.graph import Graph  # noqa: E402
from mirage.allocation.inference.kernel.scored import KINDS  # noqa: E402
from mirage.allocation.inference.kernel.seeing import PAIR, PIECE, STATE  # noqa: E402
from mirage.allocation.inference.registry import request_policy  # noqa: E402
from mirage.allocation.inference.relmas import (  # noqa: E402  # noqa: E402  # noqa: E402
    ACTOR,
    LearnedPolicy,
    Matching,
    RelmasEncoder,
    RelmasObservation,
    act,
    policy_name,
    read_agent,
    write_agent,
)
from mirage.allocation.inference.rules import Costly  # noqa: E402
from mirage.allocation.inference.scores import CORE_WATTS, seconds_of  # noqa: E402
from mirage.allocation.inference.workload.scenario import find_scenario  # noqa: E402
from mirage.allocation.inference.workload.stage import set_stage  # noqa: E402
from mirage.artifact import MANIFEST  # noqa: E402
from mirage.bench import requests  # noqa: E402
from mirage.domain.errors import ArtifactMismatch, ConfigError  # noqa: E402
from mirage.training.relmas.ddpg import (  # noqa: E402
    Actor,
    Critic,
    RelmasShape,
    bounds,
    graph_of,
    seen_of,
)

if TYPE_CHECKING:
    from pathlib import Path

    from mirage.allocation.inference.kernel.layout import Look
    from mirage.domain.inference import Dispatch, SystemView

PERIOD = 0.1


def seen_now(look: Look, now: float, ready: int, period: float = PERIOD) -> RelmasObservation:
    """By an agent without earlier observations."""
    return RelmasEncoder(look.first, look.dram_bytes).look(look, now, ready, period)


def disturbed_actor(seed: int = 0) -> Actor:
    """One whose every weight says something."""
    torch.manual_seed(seed)
    actor = Actor(RelmasShape())
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
        sight = seen_now(look, now, 9)
        assert set(range(9)) <= set(sight.order)
        ready = sight.order[(sight.order >= 0) & (sight.order < 9)]
        late = look.deadline[ready] - now < look.least[look.piece[ready]]
        keys = list(zip(late, look.deadline[ready], strict=True))
        assert keys == sorted(keys)
        for part in (sight.piece, sight.pair, sight.state):
            assert np.isfinite(part).all()
            assert np.abs(part).max() < 20


def test_what_runs_and_what_is_to_come_is_seen_too() -> None:
    for seed in range(30):
        look, now = random_look(seed, ready=9)
        sight = seen_now(look, now, 9)
        going = [s for s in look.running if s >= 0 and look.piece[s] + 1 < look.first[look.model[s] + 1]]
        assert set(sight.order[sight.order >= 9]) == set(going)
        assert set(-1 - sight.order[sight.order < 0]) == set(look.model[:9].tolist())
        np.testing.assert_array_equal(sight.piece[:, PIECE.index("comes")], sight.order < 0)
        np.testing.assert_array_equal(sight.piece[:, PIECE.index("runs")], sight.order >= 9)


def test_scores_come_to_whom_they_are_meant_for() -> None:
    look, now = random_look(3, ready=9)
    sight = seen_now(look, now, 9)
    told = np.arange(len(sight.order))[:, None] + np.zeros(KINDS + 2)
    scores = sight.scores(told)
    assert (scores.rows >= 0).all()
    for row, kept in zip(scores.rows, scores.kept[:, 0], strict=True):
        assert sight.order[int(kept)] == row
    for model, begins in enumerate(scores.coming[:, 0]):
        assert begins == (sight.order.tolist().index(-1 - model) if model in look.model[:9] else 0.0)


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
    look.least[:] = look.dram_bytes[:] = 2.0
    look.arrival[0], look.deadline[0], look.served[0] = 5.0, 13.0, 2.0
    sight = seen_now(look, now, 1, 2.0)
    assert sight.order.tolist() == [0, -1 - look.model[0]]
    piece = dict(zip(PIECE, sight.piece[0].tolist(), strict=True))
    assert piece["slack"] == pytest.approx(2.0 / 3.0)  # 4 s of slack for 2 s of work: x = 2
    assert piece["age"] == pytest.approx(2.0 / 8.0)
    assert piece["done"] == pytest.approx(0.5)
    assert piece["bytes"] == pytest.approx(0.5)  # 1 of 2 bytes a second for each of two units: x = 1
    assert piece["allowed"] == pytest.approx(np.log(4.0) / 2.0)  # 8 s for 2 s of work
    assert piece["left"] == piece["hopeless"] == piece["place"] == 0.0
    pair = dict(zip(PAIR, sight.pair[0, 0].tolist(), strict=True))
    assert pair["wait"] == 0.0
    assert pair["margin"] == pytest.approx(2.0 / 3.0)
    assert pair["free"] == 0.5
    assert pair["many"] == 1.0
    assert sight.state[STATE.index("drawn")] == pytest.approx(1.0 / 3.0)  # 1 of 2 bytes a second
    assert sight.state[STATE.index("busy")] == 0.5
    assert sight.state[STATE.index("scarce")] == pytest.approx(0.0)  # a second of bandwidth by one of the units


def test_no_more_than_the_most_are_seen() -> None:
    look, now = random_look(1, ready=200)
    order = seen_now(look, now, 200).order
    assert ((order >= 0) & (order < 200)).sum() == 64
    assert not (seen_now(look, now, 0).order < 0).any()


def test_padding_changes_nothing() -> None:
    actor, critic = disturbed_actor(), Critic(RelmasShape())
    short, long = (seen_now(*random_look(2, ready=n), n) for n in (3, 11))
    alone, both = seen_of([short]), seen_of([short, long])
    with torch.no_grad():
        action = actor(*alone)
        padded = actor(*both)
        torch.testing.assert_close(padded[:1, : action.shape[1]], action)
        value = critic(both, padded * both.mask.unsqueeze(-1))
        torch.testing.assert_close(value[:1], critic(alone, action))


def test_kinds_have_no_order() -> None:
    actor = disturbed_actor()
    seen = seen_of([seen_now(*random_look(3, ready=6, kinds=3), 6)])
    order = torch.tensor([2, 0, 1])
    with torch.no_grad():
        action = actor(*seen)
        there = actor(*seen._replace(pair=seen.pair[:, :, order]))
    torch.testing.assert_close(there[..., :KINDS], action[..., :KINDS])
    torch.testing.assert_close(there[..., KINDS:], action[..., KINDS:][..., order])


def test_an_earlier_deadline_is_remembered_at_later_ones() -> None:
    actor = disturbed_actor()
    seen = seen_of([seen_now(*random_look(4, ready=6), 6)])
    piece = seen.piece.clone()
    piece[0, 0, 0] += 1.0
    with torch.no_grad():
        before, after = actor.reader(*seen)[0], actor.reader(*seen._replace(piece=piece))[0]
    assert not torch.allclose(before[0, 5], after[0, 5])


def test_actions_are_bounded_and_nothing_at_first() -> None:
    seen = seen_of([seen_now(*random_look(5, ready=6), 6)])
    with torch.no_grad():
        assert not Actor(RelmasShape())(*seen).any()
        assert (disturbed_actor()(*seen).abs() <= bounds(2)).all()


def test_the_graph_answers_as_the_network(tmp_path: Path) -> None:
    actor = disturbed_actor()
    graph = Graph(graph_of(actor), tmp_path)
    for ready, units, kinds in ((1, 1, 1), (9, 8, 2), (64, 8, 3)):
        sight = seen_now(*random_look(6, ready=ready, units=units, kinds=kinds), ready)
        with torch.no_grad():
            action = actor(*seen_of([sight]))
        np.testing.assert_allclose(act(graph, sight), action[0].numpy(), atol=1e-5)


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


@pytest.mark.parametrize("kind", ["relmas", "odra"])
def test_the_bench_measures_the_agent_of_a_folder_whatever_its_kind(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = write_agent(tmp_path / "agent", kind, graph_of(disturbed_actor()), Matching(), {}, {}, 1e-4)
    assert policy_name(made) == f"{kind}:{made}"
    for name, few in (("SECONDS", 0.05), ("REPEATS", 1), ("DECISIONS", 2), ("PLAYED", ())):
        monkeypatch.setattr(requests, name, few)
    decisions = requests.measure_requests(made, lambda step: None)[-1]
    assert f"{kind}:{made}" in [label for label, _ in decisions.rows]


def test_a_folder_that_holds_no_agent_has_no_name(tmp_path: Path) -> None:
    with pytest.raises(ArtifactMismatch, match="name the directory of a trained model"):
        policy_name(tmp_path)


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
    stage = set_stage(replace(find_scenario("synthetic"), duration=0.5))
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
