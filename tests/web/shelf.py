"""Predictors and trained models made manually."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from instants import HOUR, NOW

from mirage.api.port import EffectiveSetting
from mirage.domain.errors import ConfigError
from mirage.predictors.model_manifest import ClusterMark, ModelManifest, TrainingMark, WaitQuantiles
from mirage.predictors.model_registry import Version

SETTINGS = (
    EffectiveSetting("cluster.backend", "cli", "default"),
    EffectiveSetting("cluster.slurm_conf", "/etc/slurm/slurm.conf", "/etc/mirage/mirage.toml:12"),
    EffectiveSetting("loop.interval", 60, "default"),
    EffectiveSetting("loop.predictor", "lookahead", "/etc/mirage/mirage.toml:20"),
    EffectiveSetting("loop.shadows", ["xgboost", "dqn"], "/etc/mirage/mirage.toml:21"),
    EffectiveSetting("loop.level", None, "default"),
    EffectiveSetting("store.url", "postgresql://mirage:***@db.example.org/mirage", "MIRAGE_STORE__URL"),
)


def manifest(handovers: int, loss: float) -> ModelManifest:
    training = TrainingMark("store", "0" * 8, NOW - 2_160 * HOUR, NOW - 2 * HOUR, NOW - HOUR, handovers)
    return ModelManifest(
        plugin="xgboost",
        plugin_version="0.1.0",
        schema="relative",
        schema_hash="0" * 8,
        cluster=ClusterMark("hpc1", "0" * 8, (1, 8)),
        training=training,
        seeds=(1,),
        answers=WaitQuantiles((0.1, 0.5, 0.9)),
        metrics={"cost": loss, "coverage": 0.78},
        libraries={"xgboost": "3.2.0"},
        files={},
    )


@dataclass
class Shelf:
    """Two versions of one model; the older one is in use until another is promoted."""

    in_use: str = "20261014-a1b2c3"
    kept: list[Version] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.kept = [
            Version("xgboost", "20261014-a1b2c3", False, manifest(812, 1.31)),
            Version("xgboost", "20261114-d4e5f6", False, manifest(1_044, 1.24)),
        ]

    def installed(self) -> tuple[str, ...]:
        return ("average", "dqn", "fixed:6h", "lookahead", "quantile", "reactive", "slurm", "xgboost")

    def at_work(self) -> tuple[str, tuple[str, ...], str]:
        return "lookahead", ("xgboost", "dqn"), "quantile"

    def versions(self) -> tuple[Version, ...]:
        return tuple(replace(each, current=each.version == self.in_use) for each in self.kept)

    def in_shadow(self) -> tuple[str, ...]:
        return ()

    def damage(self, version: Version) -> str:
        return ""

    def promote(self, name: str, version: str, *, force: bool) -> Version:
        self.in_use = version
        return next(each for each in self.versions() if each.version == version)

    def rollback(self, name: str) -> Version:
        raise ConfigError(name, "no version was in use before this one")
