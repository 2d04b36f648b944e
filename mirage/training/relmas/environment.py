"""Requests of tenants on a simulated system as a Gymnasium environment: a step is one period.

An action has a row for each observed request, in their order: its scores, each divided by its maximum; further
rows are not read. The reward is that of ``rewards``, less that of the matcher alone
where ``compared``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Space
from numpy.typing import NDArray

from mirage.allocation.inference.kernel.seeing import PAIR, PIECE, STATE
from mirage.allocation.inference.relmas import MOST, Matching, RelmasObservation
from mirage.training.relmas.ddpg import bounds
from mirage.training.relmas.rollouts import PeriodRollout

if TYPE_CHECKING:
    from mirage.allocation.inference.workload.stage import PreparedScenario

Float32 = NDArray[np.float32]
Observation = dict[str, Float32]

SEEDS = range(1_000_000, 2_000_000)
"""Seeds of training workloads."""
BOUND = 1e3
"""Bound of every feature."""


class RequestsEnv(gymnasium.Env[Observation, Float32]):
    """``reset(options={"workload": n})`` names the seed of the requests; else one is drawn from ``SEEDS``."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 (Gymnasium's own declaration)

    def __init__(
        self,
        stage: PreparedScenario,
        plugin: str = "relmas",
        matching: Matching | None = None,
        *,
        compared: bool = False,
    ) -> None:
        kinds = len(stage.costs.kinds)
        self._stage, self._plugin, self._compared = stage, plugin, compared
        self._matching = matching or Matching()
        self._bounds = bounds(kinds).numpy()
        rows = MOST + len(stage.system.names) + len(stage.costs.models)
        self._bout: PeriodRollout | None = None
        self._sight: RelmasObservation | None = None
        self.observation_space: Space[Observation] = Dict(
            {
                "piece": Box(-BOUND, BOUND, (rows, len(PIECE)), np.float32),
                "pair": Box(-BOUND, BOUND, (rows, kinds, len(PAIR)), np.float32),
                "state": Box(-BOUND, BOUND, (len(STATE),), np.float32),
                "mask": Box(0.0, 1.0, (rows,), np.float32),
            }
        )  # type: ignore[assignment]  # Gymnasium says dict[str, Any]
        self.action_space: Space[Float32] = Box(-1.0, 1.0, (rows, len(self._bounds)), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start with requests of another seed, from the first arrival on."""
        super().reset(seed=seed)
        drawn = int(self.np_random.integers(SEEDS.start, SEEDS.stop))
        workload = int((options or {}).get("workload", drawn))
        self._bout = PeriodRollout(self._stage.simulated(workload), self._matching, self._plugin)
        if self._compared:
            self._bout.pair()
        return self._look(self._bout), {"workload": workload}

    def step(self, action: Float32) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Run a period. ``info`` has the share of requests answered in time, at the end."""
        if self._bout is None or self._sight is None:
            raise RuntimeError("reset the environment first")
        reward = self._bout.step(self._sight.scores(action * self._bounds))
        over = self._bout.over
        info = {"satisfaction": self._bout.outcome().figures.all.satisfaction} if over else {}
        return self._look(self._bout), reward, over, False, info

    def _look(self, bout: PeriodRollout) -> Observation:
        self._sight = sight = bout.sight()
        assert self.action_space.shape is not None
        count, rows = len(sight.order), self.action_space.shape[0]
        seen = {
            "piece": np.zeros((rows, len(PIECE)), np.float32),
            "pair": np.zeros((rows, *sight.pair.shape[1:]), np.float32),
            "state": sight.state,
            "mask": (np.arange(rows) < count).astype(np.float32),
        }
        seen["piece"][:count], seen["pair"][:count] = sight.piece, sight.pair
        return seen
