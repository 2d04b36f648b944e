"""Predictors: which there are, what they do here, how good they have been; and the trained models kept."""

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
    """Real starts against what was promised at one level."""

    level: float
    """Of the promise: 0.9 is P90."""
    share: float
    """Of real starts no later than predicted at the level; as much as the level is right."""
    forecasts: int
    """That gave this level."""


class PredictorDocument(Described):
    """One predictor that decides, watches or could be asked."""

    name: str
    """As the configuration or a chain names it."""
    in_charge: bool
    """It times the links of chains that name nobody."""
    shadow: bool
    """It is asked at each decision and decides nothing."""
    fallback: bool
    """It answers where another cannot."""
    chains: int
    """Chains, not over, whose links it times."""
    past: PastError | None
    """On the handovers of the last 30 days in all partitions together; ``null``: it was never asked at one.

    ``/predictors/shadow`` has each partition by itself.
    """
    calibration: list[CalibrationPoint]
    """On the same forecasts, at every level that one gave, ascending."""


class ModelVersion(Described):
    """One version of a trained model."""

    name: str
    """Of the predictor."""
    version: str
    """Names it among those of the same predictor."""
    current: bool
    """Whether it is the one in use where the predictor is named without a version."""
    shadow: bool
    """Whether the daemon itself has put it in shadow, to compare it with the active predictor."""
    damage: str
    """Why it cannot be used; empty: it can."""
    cluster: str
    """On which it was trained."""
    first: str | None
    """The first handover that it has learned from; of traces without a calendar, in their own time."""
    last: str | None
    """The last one, in the same time."""
    handovers: int
    """How many it has learned from."""
    metrics: dict[str, float]
    """How it did on the handovers kept for validation, as its training says."""
    manifest: dict[str, Any]
    """All that its training has written down."""


class PredictorList(Described):
    """All of it."""

    installed: list[str]
    """Every name that a configuration, a chain or a question may use, some with a parameter: ``fixed:6h``."""
    predictors: list[PredictorDocument]
    """Those at work."""
    models: list[ModelVersion]
    """Trained models that are kept."""


class ShadowResult(Described):
    """One predictor over a partition's handovers, in hours, as ``mirage models shadow`` shows them."""

    predictor: str
    """As the configuration or a chain names it."""
    partition: str
    """Of whose handovers; empty: of those of which it is not known."""
    in_charge: bool
    """Of at least one of the handovers."""
    forecasts: int
    """Made as links were really submitted."""
    error: float | None
    """Median of real start less predicted median: above 0, jobs start later than predicted."""
    absolute_error: float | None
    """Mean."""
    pinball: float | None
    """Mean quantile loss over levels and handovers."""
    coverage: float | None
    """Share of real starts within P10 to P90; 0.8 is right."""
    handovers: int
    """Those of which its own handover can be estimated."""
    interruption: float | None
    """Estimated mean of its own handovers."""
    overlap: float | None
    """Estimated mean of its own handovers."""
    cost: float | None
    """Estimated, in weighted hours a handover."""
    gain: float | None
    """By how much that is less than of the predictor in charge, on the same handovers."""
    gain_error: float | None
    """Standard error of the gain."""
    calibration: list[CalibrationPoint]
    """At every level that a forecast gave, ascending."""


class ShadowResults(Described):
    """Predictors in charge and in shadow, compared in each partition."""

    predictors: list[ShadowResult]
    """By partition; there those in charge first, then by gain."""


class Promotion(SentDocument):
    """Which version to put in use."""

    version: Annotated[str, Field(max_length=128), SHOWN]
    """As the list of models names it."""
    force: bool = False
    """Also where it did worse in shadow."""


class ModelAnswer(Described):
    """What came of it."""

    sentence: str
    """What came of it, for people."""
    model: ModelVersion
    """The one in use now."""


def predictor_documents(
    at_work: tuple[str, tuple[str, ...], str],
    chains: Mapping[str, int],
    past: Mapping[str, Measured],
) -> list[PredictorDocument]:
    """Those that the configuration names, then those that only chains do; ``chains`` by name, empty: none."""
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
    """How promises at one level were kept."""
    return CalibrationPoint(level=kept.level, share=kept.share, forecasts=kept.forecasts)


def model_version(version: Version, in_shadow: Container[str], damage: str) -> ModelVersion:
    """One version that is kept; ``in_shadow``: those that the daemon itself compares, as ``NAME:VERSION``."""
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
    """Numbers that are not known are ``null``."""
    known = {
        name: None if isinstance(value, float) and math.isnan(value) else value
        for name, value in asdict(measured).items()
    }
    return ShadowResult.model_validate(known)


def _measured(name: str, past: Mapping[str, Measured]) -> Measured | None:
    """Trained models are measured by the directories of their versions: ``xgboost:/path/xgboost``."""
    found = past.get(name) or next(
        (each for key, each in past.items() if key.startswith(f"{name}:") and key.endswith(f"/{name}")), None
    )
    return found if found is not None and found.forecasts else None
