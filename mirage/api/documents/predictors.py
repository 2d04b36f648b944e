"""Predictors with their roles and past errors, and the trained models."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from mirage.api.conventions.described import Described, SentDocument
from mirage.api.conventions.parameters import SHOWN
from mirage.api.documents.instants import instant
from mirage.api.documents.predictions import PastError, past_error

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from mirage.predictors.artifacts.shelf import Version
    from mirage.replay.shadows import Calibrated, Measured


class CalibrationPoint(Described):
    """Actual starts compared with the forecasts of one level."""

    level: float
    """Forecast level; 0.9 is P90."""
    share: float
    """Share of starts no later than predicted; ideal: equal to the level."""
    forecasts: int
    """Number of forecasts with this level."""


class PredictorDocument(Described):
    """A configured predictor, or one that a chain uses."""

    name: str
    """Name in the configuration or in a chain."""
    in_charge: bool
    """Whether it is the active predictor, used for chains without one."""
    shadow: bool
    """Whether it is a shadow predictor: queried at each decision without deciding."""
    fallback: bool
    """Whether it is the fallback of failed predictors."""
    chains: int
    """Number of unfinished chains that it decides for."""
    past: PastError | None
    """Error on the handovers of the last 30 days in all partitions; ``null``: no forecasts.

    ``/predictors/shadow`` has the errors per partition.
    """
    calibration: list[CalibrationPoint]
    """Calibration of the same forecasts, by ascending level."""


class ModelVersion(Described):
    """One version of a trained model."""

    name: str
    """Predictor name."""
    version: str
    """Version, unique for the predictor."""
    current: bool
    """Whether it is in use: the version of a predictor named without one."""
    shadow: bool
    """Whether the daemon runs it in shadow, to compare it with the active predictor."""
    damage: str
    """Why it cannot be used; empty: usable."""
    cluster: str
    """Cluster of its training data."""
    first: str | None
    """First handover of its training data; in trace time for traces without a calendar."""
    last: str | None
    """Last handover of its training data."""
    handovers: int
    """Number of handovers in its training data."""
    metrics: dict[str, float]
    """Results on the validation set, as recorded by the training."""
    manifest: dict[str, Any]
    """Manifest written by the training."""


class PredictorList(Described):
    """Installed predictors, those in use, and trained models."""

    installed: list[str]
    """Names that configuration, chains and requests may use, some with a parameter: ``fixed:6h``."""
    predictors: list[PredictorDocument]
    """Predictors that the configuration or a chain uses."""
    models: list[ModelVersion]
    """Trained models in the registry."""


class ShadowResult(Described):
    """Results of one predictor on the handovers of one partition, in hours, as in ``mirage models shadow``."""

    predictor: str
    """Name in the configuration or in a chain."""
    partition: str
    """Partition of the handovers; empty: unknown."""
    in_charge: bool
    """Whether it was the active predictor of at least one of the handovers."""
    forecasts: int
    """Number of forecasts made at submissions of links."""
    error: float | None
    """Median of actual start minus predicted median; above 0: jobs start later than predicted."""
    absolute_error: float | None
    """Mean absolute error of the median."""
    pinball: float | None
    """Mean quantile loss over levels and handovers."""
    coverage: float | None
    """Share of starts between P10 and P90; ideal: 0.8."""
    handovers: int
    """Number of handovers for which its decision can be evaluated."""
    interruption: float | None
    """Estimated mean interruption of its decisions."""
    overlap: float | None
    """Estimated mean overlap of its decisions."""
    cost: float | None
    """Estimated cost, in weighted hours per handover."""
    gain: float | None
    """Cost of the active predictor minus its cost, on the same handovers."""
    gain_error: float | None
    """Standard error of the gain."""
    calibration: list[CalibrationPoint]
    """Calibration, by ascending level."""


class ShadowResults(Described):
    """Active and shadow predictors, compared per partition."""

    predictors: list[ShadowResult]
    """Sorted by partition; active predictors first, then by gain."""


class Promotion(SentDocument):
    """The version to promote."""

    version: Annotated[str, Field(max_length=128), SHOWN]
    """Version, as in the list of models."""
    force: bool = False
    """Promote even if it performed worse in shadow."""


class ModelAnswer(Described):
    """Result of a promotion or rollback."""

    sentence: str
    """Result in words."""
    model: ModelVersion
    """The version in use now."""


def predictor_documents(
    at_work: tuple[str, tuple[str, ...], str],
    chains: Mapping[str, int],
    past: Mapping[str, Measured],
) -> list[PredictorDocument]:
    """Return configured predictors, then those that only chains use.

    ``at_work``: active, shadow and fallback predictors; ``chains``: number of chains by predictor, '' for the
    default.
    """
    charge, shadows, fallback = at_work
    names = dict.fromkeys((charge, *shadows, fallback, *filter(None, chains)))
    return [
        PredictorDocument(
            name=name,
            in_charge=name == charge,
            shadow=name in shadows,
            fallback=name == fallback,
            chains=chains.get(name, 0) + (chains.get("", 0) if name == charge else 0),
            past=past_error(found) if found is not None else None,
            calibration=[calibration_point(each) for each in found.calibration] if found is not None else [],
        )
        for name, found in ((name, _measured(name, past)) for name in names)
    ]


def calibration_point(kept: Calibrated) -> CalibrationPoint:
    """Return the calibration of one level."""
    return CalibrationPoint(level=kept.level, share=kept.share, forecasts=kept.forecasts)


def model_version(version: Version, in_shadow: Container[str], damage: str) -> ModelVersion:
    """Return one model version; ``in_shadow``: those that the daemon runs in shadow, as ``NAME:VERSION``."""
    manifest = version.manifest
    return ModelVersion(
        name=version.name,
        version=version.version,
        current=version.current,
        shadow=f"{version.name}:{version.version}" in in_shadow,
        damage=damage,
        cluster=manifest.cluster.name,
        first=instant(manifest.training.first),
        last=instant(manifest.training.known),
        handovers=manifest.training.handovers,
        metrics=manifest.metrics,
        manifest=asdict(manifest),
    )


def shadow_result(measured: Measured) -> ShadowResult:
    """Return the result document, NaN as ``null``."""
    known = {
        name: None if isinstance(value, float) and math.isnan(value) else value
        for name, value in asdict(measured).items()
    }
    return ShadowResult.model_validate(known)


def _measured(name: str, past: Mapping[str, Measured]) -> Measured | None:
    """Results of trained models are keyed by their directory: ``xgboost:/path/xgboost``."""
    found = past.get(name) or next(
        (each for key, each in past.items() if key.startswith(f"{name}:") and key.endswith(f"/{name}")), None
    )
    return found if found is not None and found.forecasts else None
