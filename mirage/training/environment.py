"""Gymnasium environments for the submit time: on a counterfactual table, and on the simulator itself.

On a table steps are look-ups, and returns are exact. On the simulator any time is allowed without a table, far
slower. At each point of the grid action 0 waits and action 1 submits; an agent that waits until the predecessor's
end submits there. The reward is the objective in hours, given once, at the end; the discount is 1. Observations
are the table's features. Episodes are drawn at random, each as likely as any other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete, Space
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from mirage.domain.objective import Outcome, Weights, objective
from mirage.replay.episodes import PATIENCE, Background
from mirage.training.tables import SimulatedHandover

if TYPE_CHECKING:
    from mirage.domain.jobtable import JobTable
    from mirage.features.table import FeatureSchema, Table
    from mirage.simulator.cluster import ClusterConfig
    from mirage.training.tables import TablePlan

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]
Bool = NDArray[np.bool_]

HOLD, SUBMIT = 0, 1

BOUND = 1e9
"""Bound of every feature of any schema; learners need the same finite box for every table."""

EQUAL_WEIGHTS = Weights()


def observation_space(schema: FeatureSchema) -> Space[Float32]:
    """Vectors of a schema."""
    return Box(-BOUND, BOUND, (schema.size,), np.float32)


class HandoverEnv(gymnasium.Env[Float32, np.int64]):
    """One handover at a time; ``reset(options={"episode": k})`` names which.

    ``info`` has the ``episode`` and, at the end, the grid's ``index`` of submission and ``x``, the signed gap in
    seconds.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 (Gymnasium's own declaration)

    def __init__(self, table: Table, weights: Weights = EQUAL_WEIGHTS) -> None:
        """Raises ``ValueError`` for a table without episodes."""
        self._table = _usable(table)
        self._returns = table.returns(weights)
        self._episode, self._index = 0, 0
        self.observation_space: Space[Float32] = observation_space(table.schema)
        self.action_space: Space[np.int64] = Discrete(2)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Float32, dict[str, Any]]:
        """Begin an episode at its first grid point."""
        super().reset(seed=seed)
        drawn = int(self.np_random.integers(len(self._table)))
        self._episode, self._index = int((options or {}).get("episode", drawn)), 0
        return self._seen(), {"episode": self._episode}

    def step(self, action: np.int64 | int) -> tuple[Float32, float, bool, bool, dict[str, Any]]:
        """Hold or submit."""
        last = self._returns.shape[1] - 1
        self._index += action == HOLD
        info: dict[str, Any] = {"episode": self._episode}
        if action == HOLD and self._index < last:
            return self._seen(), 0.0, False, False, info
        info |= {"index": self._index, "x": int(self._table.x[self._episode, self._index])}
        return self._seen(), float(self._returns[self._episode, self._index]), True, False, info

    def _seen(self) -> Float32:
        return np.array(self._table.features[self._episode, self._index])


class HandoverVectorEnv(VectorEnv[Float32, Int64, NDArray[Any]]):
    """``num_envs`` handovers next to each other, in numpy; one that ends is replaced in the same step.

    ``infos`` of a step in which some end: ``final_obs`` (an object array), ``episode``, ``index`` and ``x`` of
    those that ended, each with its mask ``_...`` as Gymnasium wants it.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012 (Gymnasium's own declaration)
        "render_modes": [],
        "autoreset_mode": AutoresetMode.SAME_STEP,
    }

    def __init__(self, table: Table, num_envs: int, weights: Weights = EQUAL_WEIGHTS) -> None:
        """Raises ``ValueError`` for a table without episodes."""
        self.num_envs = num_envs
        self.single_observation_space = observation_space(table.schema)
        self.single_action_space = Discrete(2)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        episodes, self._points = _usable(table).submit.shape
        self._features = table.features.reshape(episodes * self._points, -1)
        self._returns = table.returns(weights).ravel()
        self._x = table.x.ravel()
        self._at = np.zeros(num_envs, dtype=np.int64)
        """Position of each handover: episode * points + index."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Float32, dict[str, Any]]:
        """Begin ``num_envs`` episodes; ``options={"episode": ...}`` names them, an array of that length."""
        super().reset(seed=seed)
        named = (options or {}).get("episode")
        if named is not None:
            self._at = np.asarray(named, dtype=np.int64) * self._points
            assert self._at.shape == (self.num_envs,), "one episode for each environment"
        else:
            self._at = self._drawn(self.num_envs)
        return self._features[self._at], {}

    def step(self, actions: Int64) -> tuple[Float32, Float64, Bool, Bool, dict[str, Any]]:
        """Apply an action, hold or submit, to each handover."""
        hold = np.asarray(actions) == HOLD
        at = self._at + hold
        over = ~hold | (at % self._points == self._points - 1)
        rewards = np.where(over, self._returns[at], 0.0)
        infos: dict[str, Any] = {}
        ended = np.flatnonzero(over)
        self._at = at
        if len(ended):
            infos = self._infos(at[ended], ended, over)
            self._at[ended] = self._drawn(len(ended))
        return self._features[self._at], rewards, over, np.zeros(self.num_envs, dtype=np.bool_), infos

    def _drawn(self, count: int) -> Int64:
        episodes = self.np_random.integers(len(self._returns) // self._points, size=count)
        return np.asarray(episodes * self._points)

    def _infos(self, at: Int64, ended: Int64, over: Bool) -> dict[str, Any]:
        seen = np.empty(self.num_envs, dtype=object)
        for place, row in zip(ended, self._features[at], strict=True):
            seen[place] = row
        infos: dict[str, Any] = {"final_obs": seen}
        for name, values in (("episode", at // self._points), ("index", at % self._points), ("x", self._x[at])):
            infos[name] = np.zeros(self.num_envs, dtype=np.int64)
            infos[name][ended] = values
        return infos | {f"_{name}": over for name in infos}


def _usable(table: Table) -> Table:
    if not len(table):
        raise ValueError("the table has no handovers")
    return table


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
        self._handover: SimulatedHandover | None = None
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

    def _submitted(self, handover: SimulatedHandover) -> Outcome:
        time = self._times[self._index]
        (start,) = handover.starts(np.array([time]))
        return Outcome(handover.end, min(int(start), int(time) + PATIENCE))

    def _opened(self, episode: int) -> SimulatedHandover:
        start, chain = self._episodes[episode]
        if self._background.simulation.now > start:
            self._background = self._new_background()
        self._background.run_until(start)
        opening = self._background.open(chain)
        if opening is None:
            raise ValueError(
                f"episode {episode}: submitted at {start}, its first link does not start within a month"
            )
        return SimulatedHandover(opening, chain, self._schema)

    def _new_background(self) -> Background:
        return Background(self._trace, self._cluster, watched=self._schema.wants.window)
