"""Handovers of a counterfactual table as environments of stable-baselines3: many in parallel, in numpy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray
from stable_baselines3.common.vec_env.base_vec_env import VecEnv

from mirage.plugin import Weights

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mirage.plugin import Table

Float32 = NDArray[np.float32]
Int64 = NDArray[np.int64]
Bool = NDArray[np.bool_]

HOLD, SUBMIT = 0, 1
BOUND = 1e9
EQUAL_WEIGHTS = Weights()

HOURS = 12.0
"""Rewards are divided by this number of hours, to be near 1, as learners need. The best policy stays the same."""


class TableVecEnv(VecEnv):
    """The steps of ``HandoverVectorEnv`` behind stable-baselines3's interface, with starts of two kinds.

    A handover begins at the first point of the grid or, with ``random_starts``, at any: otherwise a policy that
    submits early would see no late state. ``infos`` have the table's ``row`` (episode * points + index) at which
    the action was taken, for replay buffers that know the table.
    """

    def __init__(
        self,
        table: Table,
        num_envs: int,
        seed: int,
        *,
        random_starts: bool = False,
        weights: Weights = EQUAL_WEIGHTS,
    ) -> None:
        """Raises ``ValueError`` for a table without episodes."""
        if not len(table):
            raise ValueError("the table has no handovers")
        self._random = np.random.default_rng(seed)
        self._random_starts = random_starts
        self._points = table.submit.shape[1]
        self._features = table.features.reshape(-1, table.schema.size)
        self._rewards = (table.returns(weights) / HOURS).ravel().astype(np.float32)
        self._rows = np.zeros(num_envs, dtype=np.int64)
        self._chosen = np.zeros(num_envs, dtype=np.int64)
        super().__init__(num_envs, Box(-BOUND, BOUND, (table.schema.size,), np.float32), Discrete(2))

    def reset(self) -> Float32:
        """Begin all episodes."""
        self._rows = self._drawn(self.num_envs)
        return self._features[self._rows]

    def step_async(self, actions: Int64) -> None:
        """Store the actions for ``step_wait``."""
        self._chosen = np.asarray(actions)

    def step_wait(self) -> tuple[Float32, Float32, Bool, list[dict[str, Any]]]:
        """Apply hold or submit to each; one that ends begins again in the same step."""
        hold = self._chosen == HOLD
        infos: list[dict[str, Any]] = [{"row": row} for row in self._rows.tolist()]
        rows = self._rows + hold
        over = ~hold | (rows % self._points == self._points - 1)
        rewards = np.where(over, self._rewards[rows], np.float32(0))
        ended = np.flatnonzero(over)
        for place in ended.tolist():
            infos[place]["terminal_observation"] = self._features[rows[place]]
        rows[ended] = self._drawn(len(ended))
        self._rows = rows
        return self._features[rows], rewards, over, infos

    def _drawn(self, count: int) -> Int64:
        episodes = self._random.integers(len(self._features) // self._points, size=count)
        first = self._random.integers(self._points - 1, size=count) if self._random_starts else 0
        return np.asarray(episodes * self._points + first)

    # Methods that stable-baselines3 requires of environments in separate processes.

    def close(self) -> None:
        """Do nothing: no resource is open."""

    def get_attr(self, attr_name: str, indices: int | Iterable[int] | None = None) -> list[Any]:
        """The attribute, once for each."""
        return [getattr(self, attr_name, None) for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: int | Iterable[int] | None = None) -> None:
        """Do nothing: there is no attribute to set."""
        raise AttributeError(attr_name)

    def env_method(
        self, method_name: str, *method_args: Any, indices: int | Iterable[int] | None = None, **method_kwargs: Any
    ) -> list[Any]:
        """Do nothing: there is no method to call."""
        raise AttributeError(method_name)

    def env_is_wrapped(self, wrapper_class: type, indices: int | Iterable[int] | None = None) -> list[bool]:
        """Return ``False``: no environment is wrapped."""
        return [False for _ in self._get_indices(indices)]

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Draw with another seed from now on."""
        if seed is not None:
            self._random = np.random.default_rng(seed)
        return [seed] * self.num_envs
