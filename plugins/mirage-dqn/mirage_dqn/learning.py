"""A deep Q-network (Mnih et al., Nature 518, 2015) that decides when to submit."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import torch
from mirage_encoders.course import Course, Learned
from mirage_encoders.extractor import policy_arguments
from mirage_encoders.judging import scores
from mirage_encoders.networks import EncoderOptions
from mirage_encoders.pretraining import Pretraining, pretrain
from mirage_encoders.selection import Judge, Patience, Selection
from mirage_encoders.silence import silence
from mirage_encoders.trainer import ScoreTrainer
from mirage_encoders.vector import TableVecEnv
from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import BaseCallback, CallbackList

from mirage.plugin import Weights
from mirage_dqn import NAME, VERSION
from mirage_dqn.memory import CounterfactualBuffer

if TYPE_CHECKING:
    from mirage.plugin import Table


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
    patience: Patience = field(default_factory=lambda: Patience(every=6_400, looks=8))
    weights: Weights = field(default_factory=Weights)


def learn(table: Table, validation: Table | None, seed: int, course: Course, options: DqnOptions) -> Learned:
    """Train on ``table``, choose the state by ``validation``; without it, train for the length of ``course``.

    The result is the target network: the mean of the network over its last updates (Polyak & Juditsky, 1992).
    """
    model = _model(table, seed, options)
    model.set_logger(silence())
    encoding = model.q_net.features_extractor
    epochs, before = pretrain(encoding, (table, validation), course.epochs, seed, options.pretraining)
    model.q_net_target.load_state_dict(model.q_net.state_dict())
    judge = Judge(model.q_net_target, (table, validation), options.weights, options.patience)
    model.learn(course.steps, CallbackList([_Following(table, options.follow_every), Selection(judge)]))
    steps = judge.restore(course.steps)
    return Learned(model.q_net_target, Course(epochs, steps), before | judge.curves)


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
    course = Course(epochs=10, steps=150_000)

    return ScoreTrainer(NAME, VERSION, partial(learn, options=options), course, options.weights)
