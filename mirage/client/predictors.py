"""Predictors and trained models of a daemon, as dataclasses.

Times are aware ``datetime``s, ``None`` means unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from mirage.client.documents import PastError
from mirage.client.records import Records


@dataclass(frozen=True, slots=True)
class PredictorUse:
    """A predictor that is active, in shadow, the fallback or available."""

    name: str
    in_charge: bool = False
    shadow: bool = False
    fallback: bool = False
    """It decides if another predictor fails."""
    chains: int = 0
    """Number of active chains whose links it schedules."""
    past: PastError | None = None


@dataclass(frozen=True, slots=True)
class ModelVersion:
    """One registered version of a trained model."""

    name: str
    version: str
    current: bool = False
    cluster: str = ""
    first: datetime | None = None
    """First handover of its training set."""
    last: datetime | None = None
    handovers: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)
    shadow: bool = False
    """Whether it runs as a shadow predictor."""
    damage: str = ""
    """Why it cannot be used; empty: it can."""


@dataclass(frozen=True, slots=True)
class Predictors:
    """All predictors of a daemon and its model registry."""

    installed: tuple[str, ...]
    """All names that a configuration, a chain or a request may use."""
    predictors: Records[PredictorUse]
    """Active, shadow and fallback predictors, and those named by chains."""
    models: Records[ModelVersion] = field(default_factory=Records)


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """Result of a promotion or a rollback."""

    sentence: str
    model: ModelVersion
    """The active version now."""


@dataclass(frozen=True, slots=True)
class ShadowResult:
    """Results of one predictor on the handovers in one partition, in hours."""

    predictor: str
    partition: str = ""
    """Empty: handovers in an unknown partition."""
    in_charge: bool = False
    """Whether it decided at least one of the handovers."""
    forecasts: int = 0
    """Number of forecasts at real submissions."""
    error: float | None = None
    """Median of real start minus predicted median."""
    absolute_error: float | None = None
    """Mean absolute error."""
    pinball: float | None = None
    """Mean quantile loss."""
    coverage: float | None = None
    """Share of real starts between P10 and P90; ideal: 0.8."""
    handovers: int = 0
    """Number of handovers with an estimated result."""
    interruption: float | None = None
    """Estimated mean interruption."""
    overlap: float | None = None
    """Estimated mean overlap."""
    cost: float | None = None
    """Estimated, in weighted hours per handover."""
    gain: float | None = None
    """Cost of the active predictor minus its cost, on the same handovers."""
    gain_error: float | None = None
    """Standard error of the gain."""


@dataclass(frozen=True, slots=True)
class ShadowResults:
    """Active and shadow predictors compared by partition."""

    predictors: Records[ShadowResult]
    """By partition, active ones first, then by gain."""
