"""Rewards against their definitions, the environment's contract, learners that find the known optimum."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch")
pytest.importorskip("onnx", reason="agents are exported by onnx")
pytest.importorskip("gymnasium", reason="the environment is Gymnasium's")

from gymnasium.utils.env_checker import check_env  # noqa: E402
from system_cases import request_table, unit_system  # noqa: E402

from mirage.allocation.inference.compiled_policies import read_costs  # noqa: E402
from mirage.allocation.inference.registry import request_policy  # noqa: E402
from mirage.allocation.inference.relmas import Matching, parameters_of  # noqa: E402
from mirage.allocation.inference.scores import RequestScores  # noqa: E402
from mirage.allocation.inference.simulation import SharingRules, SimulatedSystem  # noqa: E402
from mirage.allocation.inference.workload.scenario import find_scenario  # noqa: E402
from mirage.allocation.inference.workload.stage import set_stage  # noqa: E402
from mirage.domain.errors import ConfigError  # noqa: E402
from mirage.domain.inference import CostTable  # noqa: E402
from mirage.training.relmas.constants import (  # noqa: E402
    Evolution,
    examples_of,
    imitate,
    search,
)
from mirage.training.relmas.course import RelmasCourse, RelmasTraining, course_of  # noqa: E402
from mirage.training.relmas.ddpg import (  # noqa: E402
    DdpgLearner,
    DdpgSettings,
    RelmasShape,
    ReplayMemory,
    seen_of,
)
from mirage.training.relmas.environment import RequestsEnv  # noqa: E402
from mirage.training.relmas.rollouts import (  # noqa: E402  # noqa: E402
    PeriodCounts,
    PeriodRollout,
    explore,
    odra_reward,
    play,
    relmas_reward,
    tally,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

COSTS = CostTable(
    models=("filler", "anywhere", "picky"),
    first=np.array([0, 1, 2, 3], np.int32),
    pieces=("only", "only", "only"),
    kinds=("k0", "k1"),
    seconds=np.array([[0.5, 0.5], [1.0, 1.0], [1.0, 3.0]]),
    compute_seconds=np.array([[0.5, 0.5], [1.0, 1.0], [1.0, 3.0]]),
    joules=np.array([[1.0, 1.0], [2.0, 1.0], [2.0, 1.0]]),
    dram_bytes=np.zeros((3, 2)),
)
MATCHING = Matching(period=0.1, density=1.0, thrift=0.0, margin=0.0, leaving=np.inf)
NOTHING = np.zeros((3, 5))
"""Scores of each model."""


def dilemma(seed: int, groups: int = 20) -> SimulatedSystem:
    """Two units, both busy for a while; then one request that can run anywhere, and one for the first unit alone.

    The first has the earlier deadline, and takes the first unit without a better action: three of four are in
    time. All are where it takes the second, or lets the other pass.
    """
    rng = np.random.default_rng(seed)
    begins = np.cumsum(rng.uniform(3.0, 3.5, groups))
    arrival = (begins[:, None] + np.array([0.0, 0.0, 0.1, 0.2])).ravel()
    bounds = np.tile([0.6, 0.6, 1.65, 1.6], groups)
    requests = request_table(arrival.tolist(), [0, 0, 1, 2] * groups, deadline=(arrival + bounds).tolist())
    return SimulatedSystem(requests, unit_system([0, 1]), COSTS, SharingRules())


def satisfaction(bout: PeriodRollout) -> float:
    return bout.outcome().figures.all.satisfaction


@pytest.mark.parametrize("likelihood", [0.0, 0.5])
def test_a_unit_is_left_to_whom_it_alone_can_serve(likelihood: float) -> None:
    torch.manual_seed(0)
    plugin = "odra" if likelihood else "relmas"
    alone = PeriodRollout(dilemma(5), MATCHING, plugin)
    alone.finish()
    assert satisfaction(alone) == pytest.approx(0.75, abs=0.02)
    learner, replay = DdpgLearner(RelmasShape(), DdpgSettings(likelihood=likelihood)), ReplayMemory(3000)
    rng, drawn = torch.Generator().manual_seed(0), np.random.default_rng(0)
    best, bouts = 0.0, []
    for number in range(120):
        if number % 20 == 0:
            bouts = [PeriodRollout(dilemma(1_000_000 + number + row), MATCHING, plugin) for row in range(8)]
            for bout in bouts:
                bout.skip(float(drawn.uniform(0, 3)))
        for lesson in explore(bouts, learner.actor, 10, 0.95, (0.3, 0.05), rng):
            replay.add(lesson)
        for _ in range(4 if len(replay) >= 48 else 0):
            learner.learn(replay.draw(48, drawn))
        if number % 10 == 9:
            bout = PeriodRollout(dilemma(5), MATCHING, plugin)
            play([bout], learner.actor)
            best = max(best, satisfaction(bout))
            if best > 0.97:
                return
    pytest.fail(f"it came to {best:.3f} only")


def test_gains_are_none_for_who_does_nothing() -> None:
    bout = PeriodRollout(dilemma(0), MATCHING, "relmas")
    bout.pair()
    while not bout.over:
        sight = bout.sight()
        assert bout.step(sight.scores(np.zeros((len(sight.order), 5)))) == 0.0


def test_rewards_add_up_to_what_was_kept_less_what_was_lost() -> None:
    bout = PeriodRollout(dilemma(1), MATCHING, "relmas")
    total = 0.0
    while not bout.over:
        sight = bout.sight()
        total += bout.step(sight.scores(np.zeros((len(sight.order), 5))))
    kept = bout.outcome().kept
    assert total == pytest.approx(kept.sum() - (~kept).sum())


def test_who_cannot_be_in_time_is_lost_before_the_deadline() -> None:
    system = dilemma(2, groups=1)
    begin = float(system.requests.arrival[0])
    counted = standing(system, begin + 0.45)
    assert counted.kept.tolist() == counted.lost.tolist() == [0.0]
    assert counted.hurry == pytest.approx(2 / 0.6 + 1 / 1.65 + 1 / 1.6)
    counted = standing(system, begin + 0.7)
    assert counted.kept.tolist() == [2.0]  # the fillers
    assert counted.lost.tolist() == [1.0]  # has begun on the unit on which it takes until 3.5
    assert counted.hurry == pytest.approx(1 / 1.65)


def standing(system: SimulatedSystem, until: float) -> PeriodCounts:
    system.follow(RequestScores(np.zeros(0, np.int32), NOTHING[:0], NOTHING), parameters_of(MATCHING), until)
    return tally(system.view(), system.requests, read_costs(COSTS))


def test_rewards_by_hand() -> None:
    before = PeriodCounts(np.array([3.0, 0.0]), np.array([0.0, 3.0]), 0.0, 0.0)
    after = PeriodCounts(np.array([4.0, 1.0]), np.array([0.0, 4.0]), 1.5, 2.0)
    assert relmas_reward(before, after, 2.0, 0.1) == pytest.approx(2 - 1 + 0.05 * 2.0 * (1.0 - 0.5))
    # Shares 4/4 and 1/4, of all 4/7: the second tenant's gains count for more, but it gained nothing on the whole.
    assert odra_reward(before, after, 2.0, 0.1) == pytest.approx((1 + 2 * (4 / 7 - 1)) * 1 - 0.25 * 0.1 * 2.0)


@pytest.mark.filterwarnings("ignore:.*not within the observation space:UserWarning")
def test_the_environment_keeps_gymnasiums_contract() -> None:
    stage = set_stage(find_scenario("synthetic"))
    env = RequestsEnv(stage, compared=True)
    check_env(env, skip_render_check=True)
    first = env.reset(seed=3)[1]
    assert env.reset(seed=3)[1] == first
    assert first["workload"] >= 1_000_000


def course(rounds: int, refined: int = 0) -> RelmasCourse:
    short = {"bouts": 2, "every": 2, "seconds": 0.1, "validated": 1, "stretch": 4, "generation": 4}
    short |= {"searched": 1, "shown": 1, "imitated": 5}
    return RelmasCourse("relmas", ("mixed-heavy",), rounds=rounds, refined=refined, **short)


def test_a_training_can_be_cut_off(tmp_path: Path) -> None:
    first = RelmasTraining(course(2))
    list(first.find_constants())
    first.imitate()
    list(first.rounds())
    first.save(tmp_path / "state")
    second = RelmasTraining(course(4))
    second.resume(tmp_path / "state")
    assert second.constants.keys() == first.constants.keys() == {"mixed-heavy"}
    assert second.imitated
    assert [report.number for report in second.rounds()] == [3, 4]
    made = second.write(tmp_path / "agent")
    assert request_policy(f"relmas:{made}").period == second.matching.period


def test_equal_seeds_learn_the_same() -> None:
    first, second = RelmasTraining(course(3, refined=2)), RelmasTraining(course(3, refined=2))
    assert [report.gained for report in first.rounds()] == [report.gained for report in second.rounds()]
    for here, there in zip(first.learner.actor.parameters(), second.learner.actor.parameters(), strict=True):
        torch.testing.assert_close(here, there)


def test_constants_are_found_where_they_are_best() -> None:
    best = np.array([[0.0, 0.0, 0.0], [0.5, 0.9, -0.3], [-0.7, 0.3, 0.2]])

    def worths(tried: Sequence[np.ndarray], seeds: range) -> list[float]:
        assert seeds.start >= 7
        return [-float(((constants - best) ** 2).sum()) for constants in tried]

    found = search(worths, np.array([1, 2]), (3, 3), 60, 7)
    np.testing.assert_allclose(found, best, atol=0.05)


def test_constants_are_zero_where_nothing_is_to_be_won() -> None:
    def paid(tried: Sequence[np.ndarray], seeds: range) -> list[float]:
        return [-float(np.abs(constants).sum()) for constants in tried]

    assert not search(lambda tried, _: [0.999 for _ in tried], np.array([0]), (2, 3), 5, 0).any()
    assert not search(paid, np.array([0]), (2, 3), 5, 0).any()


def test_an_actor_learns_to_say_what_constants_say() -> None:
    torch.manual_seed(0)
    constants = np.zeros((3, 5))
    constants[1, :3], constants[2, :3] = [0.5, 0.9, -0.3], [-0.5, 0.3, 0.5]
    bouts = [PeriodRollout(dilemma(1_000_000 + row, groups=5), MATCHING, "relmas", constants) for row in range(4)]
    examples = examples_of(bouts, 100)
    actor = DdpgLearner(RelmasShape(), DdpgSettings()).actor
    assert imitate(actor, examples, 500, np.random.default_rng(0)) < 0.02
    sight, told = examples[-1]
    with torch.no_grad():
        np.testing.assert_allclose(actor(*seen_of([sight]))[0].numpy(), told, atol=0.25)


def test_evolution_goes_where_it_was_better() -> None:
    torch.manual_seed(0)
    actor = DdpgLearner(RelmasShape(), DdpgSettings()).actor
    rng, best = torch.Generator().manual_seed(0), 0.0
    evolution = Evolution(actor, 0.3, 0.02)
    for number in range(12):
        bouts = [
            PeriodRollout(dilemma(1_000_000 + 8 * number + row, groups=3), MATCHING, "relmas") for row in range(8)
        ]
        evolution.improve(bouts, 60, rng)
        bout = PeriodRollout(dilemma(5), MATCHING, "relmas")
        play([bout], actor)
        best = max(best, satisfaction(bout))
        if best > 0.97:
            return
    pytest.fail(f"it came to {best:.3f} only")


def test_a_state_of_another_course_is_refused(tmp_path: Path) -> None:
    RelmasTraining(course(1)).save(tmp_path / "state")
    (tmp_path / "broken").write_bytes(b"nothing")
    other = RelmasTraining(course_of("odra", ("heavy",), 1, 1, 0.002))
    with pytest.raises(ConfigError, match="another configuration"):
        other.resume(tmp_path / "state")
    with pytest.raises(ConfigError, match="not the state"):
        other.resume(tmp_path / "broken")


def test_a_course_says_what_is_wrong_with_it() -> None:
    with pytest.raises(ConfigError, match="name at least one"):
        RelmasTraining(course_of("relmas", (), 0, 1, 0.002))
    with pytest.raises(ConfigError, match="unknown agent"):
        RelmasTraining(course_of("other", ("heavy",), 0, 1, 0.002))
