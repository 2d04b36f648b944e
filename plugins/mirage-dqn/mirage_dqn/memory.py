"""A replay buffer over a counterfactual table: at every visited point the results of both actions are known.

An action does not change the queue: at a visited point the reward of submitting is a look-up, and so is the next
observation after holding. The buffer stores rows of the table and returns for each a transition of either action.
Targets of holding follow the target network's own policy along the recorded path for up to ``horizon``
points and take the return where it submits: n-step targets whose steps are all on policy, so that no correction
is needed (compare Munos et al., NeurIPS 2016; with a horizon that reaches the end these are the targets of
Longstaff & Schwartz, Rev. Financ. Stud. 14, 2001). A horizon of 1 is the plain target of Mnih et al. (Nature
518, 2015).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from mirage_encoders.vector import HOURS, SUBMIT
from numpy.typing import NDArray
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.type_aliases import ReplayBufferSamples

if TYPE_CHECKING:
    import torch
    from gymnasium.spaces import Space
    from stable_baselines3.common.vec_env import VecNormalize

    from mirage.plugin import Table, Weights

Float32 = NDArray[np.float32]
Int64 = NDArray[np.int64]
Bool = NDArray[np.bool_]


class CounterfactualBuffer(ReplayBuffer):
    """``buffer_size`` visited rows; half of what is drawn are holds, half submissions."""

    def __init__(  # noqa: PLR0913 (the parent's own, by which stable-baselines3 calls it)
        self,
        buffer_size: int,
        observation_space: Space[Any],
        action_space: Space[Any],
        device: torch.device | str = "auto",
        n_envs: int = 1,
        optimize_memory_usage: bool = False,
        handle_timeout_termination: bool = True,
        *,
        table: Table,
        weights: Weights,
        horizon: int,
        seed: int,
    ) -> None:
        # The parent's own columns stay one row long: rows of the table stand for observations here.
        super().__init__(n_envs, observation_space, action_space, device, n_envs, False, False)
        del optimize_memory_usage, handle_timeout_termination
        self.buffer_size = max(buffer_size // n_envs, 1)
        self._visited = np.zeros((self.buffer_size, n_envs), dtype=np.int64)
        self._points = table.submit.shape[1]
        self._features = table.features.reshape(-1, table.schema.size)
        self._rewards = (table.returns(weights) / HOURS).ravel().astype(np.float32)
        self._horizon = horizon
        self._random = np.random.default_rng(seed)
        self._landing = self._landings(np.zeros(len(self._rewards), dtype=np.bool_))

    def follow(self, submits: Bool) -> None:
        """Let targets follow a policy that submits at these points, shape (E, G)."""
        self._landing = self._landings(submits.ravel())

    def add(
        self,
        obs: Float32,
        next_obs: Float32,
        action: Int64,
        reward: Float32,
        done: Bool,
        infos: list[dict[str, Any]],
    ) -> None:
        """Remember the rows that the environments' ``infos`` name; the table knows the rest."""
        del obs, next_obs, action, reward, done
        self._visited[self.pos] = [info["row"] for info in infos]
        self.pos += 1
        if self.pos == self.buffer_size:
            self.full, self.pos = True, 0

    def sample(self, batch_size: int, env: VecNormalize | None = None) -> ReplayBufferSamples:
        """Transitions of visited rows."""
        assert env is None, "networks standardise what they see themselves"
        filled = self.buffer_size if self.full else self.pos
        rows = self._visited[:filled].ravel()[self._random.integers(filled * self.n_envs, size=batch_size)]
        actions = self._random.integers(2, size=batch_size)
        return self._transitions(rows, actions)

    def _transitions(self, rows: Int64, actions: Int64) -> ReplayBufferSamples:
        landing, over = self._landing
        submit = actions == SUBMIT
        after = np.where(submit, rows, landing[rows])
        done = submit | over[rows]
        rewards = np.where(done, self._rewards[after], np.float32(0))
        columns = (self._features[rows], actions[:, None], self._features[after], done[:, None], rewards[:, None])
        observations, chosen, later, dones, gained = (self.to_torch(column) for column in columns)
        return ReplayBufferSamples(observations, chosen, later, dones.float(), gained)

    def _landings(self, submits: Bool) -> tuple[Int64, Bool]:
        """For a hold at each row: the row where the target is taken, and whether it is a return there.

        That is the first later point at which the policy submits (at the last it must), if within the horizon;
        else the point at the horizon, whose value is the target network's.
        """
        index = np.arange(self._points)
        stops = np.where(submits.reshape(-1, self._points), index, self._points - 1)
        first = np.minimum.accumulate(stops[:, ::-1], axis=1)[:, ::-1]
        later = np.concatenate([first[:, 1:], np.full((len(first), 1), self._points - 1)], axis=1)
        reached = np.minimum(index + self._horizon, self._points - 1)
        over = later <= reached if self._horizon > 1 else np.broadcast_to(reached == self._points - 1, later.shape)
        landing = np.where(over, later if self._horizon > 1 else reached, reached)
        base = np.arange(len(first))[:, None] * self._points
        return (base + landing).ravel(), np.array(over).ravel()
