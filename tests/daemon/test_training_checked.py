"""`[training]`: what cannot be trained is an error as the daemon starts."""

from __future__ import annotations

import pytest

from mirage.bootstrap.cluster import ClusterInfo
from mirage.config.model import Config, TrainingSection
from mirage.daemon.chores import check_training
from mirage.domain.errors import ConfigError


def test_predictor_without_a_trainer_is_named() -> None:
    config = Config(training=TrainingSection(every="1d", predictor="zz"))
    with pytest.raises(ConfigError) as raised:
        check_training(config, ClusterInfo())
    assert raised.value.where == "training.predictor"
    assert "zz" in str(raised.value)
    check_training(Config(training=TrainingSection(every=0, predictor="zz")), ClusterInfo())
    check_training(Config(), ClusterInfo())
