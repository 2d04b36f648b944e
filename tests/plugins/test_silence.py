"""Training leaves nothing behind but what it was asked for."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from typing import TYPE_CHECKING

import mirage_dqn.learning as dqn
import mirage_policy_gradient.learning as policy_gradient
import pytest
from mirage_encoders.networks import EncoderOptions
from mirage_encoders.trainer import TrainingLength
from solvable import solvable

if TYPE_CHECKING:
    from pathlib import Path

ENCODER = EncoderOptions("mlp", 16)
DQN = dqn.DqnOptions(ENCODER, batch=64)
PPO = replace(policy_gradient.PolicyOptions("ppo", ENCODER), rollout=24, batch=512)


@pytest.mark.parametrize(("module", "options"), [(dqn, DQN), (policy_gradient, PPO)])
def test_no_folder_of_logs_is_left(module, options, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delenv("SB3_LOGDIR", raising=False)
    learned = module.learn(solvable(0, 20), None, 0, TrainingLength(0, 64 * 24), options)
    assert learned.course.steps == 64 * 24
    assert list(tmp_path.glob("SB3-*")) == []
