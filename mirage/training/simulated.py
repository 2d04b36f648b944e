"""The environment of ``environment.HandoverEnv`` on the simulator itself: any time, no table, far slower."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium.spaces import Discrete, Space
from numpy.typing import NDArray

from mirage.domain.objective import Weights, objective
from mirage.domain.outcome import Outcome
from mirage.replay.opening import PATIENCE, Background
from mirage.training.environment import EQUAL_WEIGHTS, HOLD, observation_space
from mirage.training.handover import Handover

if TYPE_CHECKING:
    from mirage.domain.jobtable import JobTable
    from mirage.features.layout import FeatureSchema
    from mirage.simulator.cluster import ClusterConfig
    from mirage.training.tables import TablePlan

Float32 = NDArray[np.float32]
Int64 = NDArray[np.int64]


class SimulatedEnv(gymnasium.Env[Float32, np.int64]):
    """One handover at a time of those that a table of this plan would have, in its order.

    Going back in time simulates the trace again, so episodes should be taken in order. A wait of the successor of
    more than a month counts as a month.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 (Gymnasium's own declaration)

    def __init__(
        self,
        trace: JobTable,
        cluster: ClusterConfig,
        plan: TablePlan,
        schema: FeatureSchema,
        weights: Weights = EQUAL_WEIGHTS,
    ) -> None:
        """Raises ``ConfigError`` for a plan that does not fit the trace."""
        plan.check(trace)
        self._trace, self._cluster, self._plan = trace, cluster, plan
        self._schema, self._weights = schema, weights
        self._episodes = [(start, chain) for start in plan.starts() for chain in plan.chains()]
        self._background = self._new_background()
        self._episode, self._index = 0, 0
        self._handover: Handover | None = None
        self._times: Int64 = np.empty(0, dtype=np.int64)
        self.observation_space: Space[Float32] = observation_space(schema)
        self.action_space: Space[np.int64] = Discrete(2)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Float32, dict[str, Any]]:
        """Begin an episode as its first link starts; ``options={"episode": k}`` names one.

        Raises ``ValueError`` for one whose first link does not start within a month.
        """
        super().reset(seed=seed)
        drawn = int(self.np_random.integers(len(self._episodes)))
        self._episode, self._index = int((options or {}).get("episode", drawn)), 0
        self._handover = self._opened(self._episode)
        self._times = self._handover.submit_times(self._plan.grid)
        return self._handover.features(), {"episode": self._episode}

    def step(self, action: np.int64 | int) -> tuple[Float32, float, bool, bool, dict[str, Any]]:
        """Hold until the next grid point, or submit. Raises ``ValueError`` before the first ``reset``."""
        handover = self._handover
        if handover is None:
            raise ValueError("reset first")
        if action == HOLD:
            self._index += 1
            handover.advance(int(self._times[self._index]))
        info: dict[str, Any] = {"episode": self._episode}
        if action == HOLD and self._index < len(self._times) - 1:
            return handover.features(), 0.0, False, False, info
        outcome = self._submitted(handover)
        info |= {"index": self._index, "x": outcome.x}
        return handover.features(), objective(outcome, self._weights) / 3_600, True, False, info

    def _submitted(self, handover: Handover) -> Outcome:
        time = self._times[self._index]
        (start,) = handover.starts(np.array([time]))
        return Outcome(handover.end, min(int(start), int(time) + PATIENCE))

    def _opened(self, episode: int) -> Handover:
        start, chain = self._episodes[episode]
        if self._background.simulation.now > start:
            self._background = self._new_background()
        self._background.run_until(start)
        opening = self._background.open(chain)
        if opening is None:
            raise ValueError(
                f"episode {episode}: submitted at {start}, its first link does not start within a month"
            )
        return Handover(opening, chain, self._schema)

    def _new_background(self) -> Background:
        return Background(self._trace, self._cluster, watched=self._schema.wants.window)
