"""Trained models as a daemon keeps them, made up; and measurements of predictors."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from mirage.domain.errors import ConfigError
from mirage.predictors.model_manifest import ClusterMark, ModelManifest, Scores, TrainingMark
from mirage.predictors.model_registry import Version
from mirage.replay.shadows import Calibrated, ShadowScore

MANIFEST = ModelManifest(
    "xgboost",
    "1",
    "v2",
    "hash",
    ClusterMark("site", "print", (4, 8)),
    TrainingMark("trace", "print", 1_600_000_000, 1_600_000_100, 1_600_000_200, 50),
    (1,),
    Scores(),
    {"absolute_x": 1.5},
    {},
    {},
)
KEPT = (Calibrated(0.1, 0.25, 12), Calibrated(0.9, 0.75, 12))
OLD, NEW = "0123456789ab", "ba9876543210"


@dataclass
class ModelDesk:
    """Two versions of one model; the new one did badly in shadow."""

    in_use: str = OLD
    asked: list[str] = field(default_factory=list)

    def installed(self) -> tuple[str, ...]:
        return ("reactive", "quantile", "xgboost")

    def at_work(self) -> tuple[str, tuple[str, ...], str]:
        return "xgboost", ("average",), "quantile"

    def versions(self) -> tuple[Version, ...]:
        return tuple(Version("xgboost", each, each == self.in_use, MANIFEST) for each in (OLD, NEW))

    def in_shadow(self) -> tuple[str, ...]:
        return (f"xgboost:{NEW}",)

    def damage(self, version: Version) -> str:
        return "model.onnx: cannot be read" if version.version == NEW else ""

    def promote(self, name: str, version: str, *, force: bool) -> Version:
        if not force:
            raise ConfigError(name, "in shadow it would have cost more")
        self.in_use = version
        return Version(name, version, True, MANIFEST)

    def rollback(self, name: str) -> Version:
        self.in_use = OLD
        return Version(name, OLD, True, MANIFEST)


def measured(name: str, in_charge: bool) -> ShadowScore:
    unknown = (math.nan,) * 5
    return ShadowScore(name, in_charge, 12, 0.5, 1.0, 0.25, 0.8, 0, *unknown, KEPT if in_charge else ())
