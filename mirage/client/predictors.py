"""Predictors and trained models of a daemon, as dataclasses.

Times are aware ``datetime``s, ``None`` is not known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from mirage.client.documents import PastError
from mirage.client.records import Records


@dataclass(frozen=True, slots=True)
class PredictorUse:
    """One predictor that decides, watches or could be asked."""

    name: str
    in_charge: bool = False
    shadow: bool = False
    fallback: bool = False
    """It answers where another cannot."""
    chains: int = 0
    """Chains, not over, whose links it times."""
    past: PastError | None = None


@dataclass(frozen=True, slots=True)
class ModelVersion:
    """One version of a trained model that the daemon keeps."""

    name: str
    version: str
    current: bool = False
    cluster: str = ""
    first: datetime | None = None
    """The first handover that it was trained on."""
    last: datetime | None = None
    handovers: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)
    shadow: bool = False
    """Whether the daemon compares it with the active predictor, and it decides nothing."""
    damage: str = ""
    """Why it cannot be used; empty: it can."""


@dataclass(frozen=True, slots=True)
class Predictors:
    """All predictors of a daemon, and the trained models that it keeps."""

    installed: tuple[str, ...]
    """Every name that a configuration, a chain or a prediction may name."""
    predictors: Records[PredictorUse]
    """Active, in shadow, for fallback, or named by chains."""
    models: Records[ModelVersion] = field(default_factory=Records)


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """Result of a promotion or a rollback."""

    sentence: str
    model: ModelVersion
    """The one in use now."""


@dataclass(frozen=True, slots=True)
class ShadowResult:
    """One predictor over the handovers in one partition; hours."""

    predictor: str
    partition: str = ""
    """Empty: of handovers whose partition is not known."""
    in_charge: bool = False
    """Of at least one of the handovers."""
    forecasts: int = 0
    """Made as links were really submitted."""
    error: float | None = None
    """Median of real start less predicted median."""
    absolute_error: float | None = None
    """Mean."""
    pinball: float | None = None
    """Mean quantile loss."""
    coverage: float | None = None
    """Share of real starts within P10 to P90; 0.8 is right."""
    handovers: int = 0
    """Those for which its handover can be estimated."""
    interruption: float | None = None
    """Estimated mean of its handovers."""
    overlap: float | None = None
    """Estimated mean of its handovers."""
    cost: float | None = None
    """Estimated, in weighted hours per handover."""
    gain: float | None = None
    """By how much that is less than of the active predictor, on the same handovers."""
    gain_error: float | None = None
    """Standard error of the gain."""


@dataclass(frozen=True, slots=True)
class ShadowResults:
    """Active predictors and those in shadow, compared in each partition."""

    predictors: Records[ShadowResult]
    """By partition; there active ones first, then by gain."""
