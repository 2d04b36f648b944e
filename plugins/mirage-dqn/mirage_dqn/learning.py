"""A deep Q-network (Mnih et al., Nature 518, 2015) that decides when to submit.

Its replay buffer is over a counterfactual table: an action does not change the queue, so at a visited point the
reward of submitting is a look-up, and so is the next observation after holding. The buffer stores rows of the
table and returns for each a transition of either action. Targets of holding follow the target network's own
policy along the recorded path for up to ``horizon`` points and take the return where it submits: n-step targets
whose steps are all on policy, so that no correction is needed (compare Munos et al., NeurIPS 2016; with a
horizon that reaches the end these are the targets of Longstaff & Schwartz, Rev. Financ. Stud. 14, 2001). A
horizon of 1 is the plain target of Mnih et al.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from mirage_encoders.networks import EncoderOptions, policy_arguments
from mirage_encoders.selection import (
    Pretraining,
    SelectionCallback,
    StateJudge,
    ValidationSchedule,
    pretrain,
    scores,
    silence,
)
from mirage_encoders.trainer import LearnedScores, ScoreTrainer, TrainingLength
from mirage_encoders.vector import HOURS, SUBMIT, TableVecEnv
from numpy.typing import NDArray
from stable_baselines3 import DQN
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.callbacks import BaseCallback, CallbackList
from stable_baselines3.common.type_aliases import ReplayBufferSamples

from mirage.plugin import Weights
from mirage_dqn import NAME, VERSION

if TYPE_CHECKING:
    from gymnasium.spaces import Space
    from stable_baselines3.common.vec_env import VecNormalize

    from mirage.plugin import Table

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


@dataclass(frozen=True, slots=True)
class DqnOptions:
    """Hyperparameters. Steps are those of the environment, summed over all parallel handovers."""

    encoder: EncoderOptions = field(default_factory=EncoderOptions)
    pretraining: Pretraining = field(default_factory=Pretraining)
    envs: int = 64
    memory: int = 200_000
    """Rows in the replay buffer."""
    batch: int = 512
    rate: float = 3e-4
    decay: float = 0.1
    updates: int = 1
    """Gradient steps for each step of all environments."""
    tau: float = 0.02
    """Share by which the target network follows the network at each step of all environments."""
    follow_every: int = 6_400
    """Steps between updates of the policy of the target network, which targets follow."""
    horizon: int = 96
    """Points of the grid that the targets of holding look ahead; see ``CounterfactualBuffer``."""
    patience: ValidationSchedule = field(default_factory=lambda: ValidationSchedule(every=6_400, looks=8))
    weights: Weights = field(default_factory=Weights)


def learn(
    table: Table, validation: Table | None, seed: int, course: TrainingLength, options: DqnOptions
) -> LearnedScores:
    """Train on ``table``, choose the state by ``validation``; without it, train for the length of ``course``.

    The result is the target network: the mean of the network over its last updates (Polyak & Juditsky, 1992).
    """
    model = _model(table, seed, options)
    model.set_logger(silence())
    encoding = model.q_net.features_extractor
    epochs, before = pretrain(encoding, (table, validation), course.epochs, seed, options.pretraining)
    model.q_net_target.load_state_dict(model.q_net.state_dict())
    judge = StateJudge(model.q_net_target, (table, validation), options.weights, options.patience)
    model.learn(course.steps, CallbackList([_Following(table, options.follow_every), SelectionCallback(judge)]))
    steps = judge.restore(course.steps)
    return LearnedScores(model.q_net_target, TrainingLength(epochs, steps), before | judge.curves)


def _model(table: Table, seed: int, options: DqnOptions) -> DQN:
    envs = TableVecEnv(table, options.envs, seed, random_starts=True, weights=options.weights)
    memory = {"table": table, "weights": options.weights, "horizon": options.horizon, "seed": seed}
    optimiser = {"optimizer_class": torch.optim.AdamW, "optimizer_kwargs": {"weight_decay": options.decay}}
    return DQN(
        "MlpPolicy",
        envs,
        learning_rate=options.rate,
        buffer_size=options.memory,
        learning_starts=4 * options.batch,
        batch_size=options.batch,
        tau=options.tau,
        gamma=1.0,
        train_freq=1,
        gradient_steps=options.updates,
        # After every step of all environments: sb3 counts each of them.
        target_update_interval=options.envs,
        replay_buffer_class=CounterfactualBuffer,
        replay_buffer_kwargs=memory,
        exploration_initial_eps=0.5,
        exploration_final_eps=0.1,
        policy_kwargs=policy_arguments(table, options.encoder) | {"net_arch": [64]} | optimiser,
        seed=seed,
    )


class _Following(BaseCallback):
    """Updates the replay buffer periodically with the target network's policy."""

    def __init__(self, table: Table, every: int) -> None:
        super().__init__()
        self._table, self._every = table, every

    def _on_training_start(self) -> None:
        self._tell()

    def _on_step(self) -> bool:
        # Of all handovers, so not at every step.
        if self.n_calls % max(self._every // self.training_env.num_envs, 1) == 0:
            self._tell()
        return True

    def _tell(self) -> None:
        assert isinstance(self.model, DQN)
        assert isinstance(self.model.replay_buffer, CounterfactualBuffer)
        said = scores(self.model.q_net_target, self._table)
        self.model.replay_buffer.follow(said[..., 1] >= said[..., 0])


def trainer(kind: str) -> ScoreTrainer:
    """The trainer with an encoder of this kind. Raises ``ConfigError`` for one that does not exist."""
    options = DqnOptions(encoder=EncoderOptions(kind))
    options.encoder.check()
    course = TrainingLength(epochs=10, steps=150_000)

    return ScoreTrainer(NAME, VERSION, partial(learn, options=options), course, options.weights)
