"""``/api/v1/predictors``: predictors with their roles and past errors, and the trained models."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from pydantic import Field
from starlette.exceptions import HTTPException

from mirage.api.access.auditing import note
from mirage.api.access.dependencies import Admin, Reader
from mirage.api.conventions.documents import SHOWN, Described, SentDocument, instant
from mirage.api.conventions.threads import QueryRoute
from mirage.api.routes.predictions import PastErrorDocument, inquiries_of, past_error
from mirage.domain.errors import StoreUnavailable
from mirage.replay.shadows import SPAN

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from mirage.api.port import ApiService, Models
    from mirage.predictors.model_registry import Version
    from mirage.replay.shadows import Calibrated, ShadowScore


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
    past: PastErrorDocument | None
    """Error on the handovers of the last 30 days in all partitions; ``null``: no forecasts.

    ``/predictors/shadow`` has the errors per partition.
    """
    calibration: list[CalibrationPoint]
    """Calibration of the same forecasts, by ascending level."""


class ModelVersionDocument(Described):
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
    models: list[ModelVersionDocument]
    """Trained models in the registry."""


class ShadowResultDocument(Described):
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


class ShadowResultsDocument(Described):
    """Active and shadow predictors, compared per partition."""

    predictors: list[ShadowResultDocument]
    """Sorted by partition; active predictors first, then by gain."""


class Promotion(SentDocument):
    """The version to promote."""

    version: Annotated[str, Field(max_length=128), SHOWN]
    """Version, as in the list of models."""
    force: bool = False
    """Promote even if it performed worse in shadow."""


class ModelAnswerDocument(Described):
    """Result of a promotion or rollback."""

    sentence: str
    """Result in words."""
    model: ModelVersionDocument
    """The version in use now."""


def predictor_documents(
    at_work: tuple[str, tuple[str, ...], str],
    chains: Mapping[str, int],
    past: Mapping[str, ShadowScore],
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


def model_version(version: Version, in_shadow: Container[str], damage: str) -> ModelVersionDocument:
    """Return one model version; ``in_shadow``: those that the daemon runs in shadow, as ``NAME:VERSION``."""
    manifest = version.manifest
    return ModelVersionDocument(
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


def shadow_result(measured: ShadowScore) -> ShadowResultDocument:
    """Return the result document, NaN as ``null``."""
    known = {
        name: None if isinstance(value, float) and math.isnan(value) else value
        for name, value in asdict(measured).items()
    }
    return ShadowResultDocument.model_validate(known)


def _measured(name: str, past: Mapping[str, ShadowScore]) -> ShadowScore | None:
    """Results of trained models are keyed by their directory: ``xgboost:/path/xgboost``."""
    found = past.get(name) or next(
        (each for key, each in past.items() if key.startswith(f"{name}:") and key.endswith(f"/{name}")), None
    )
    return found if found is not None and found.forecasts else None


Name = Annotated[str, Path(pattern="^[a-z0-9][a-z0-9_-]{0,39}$")]
Span = Annotated[int, Query(ge=0, le=SPAN, description="Period of the handovers, in seconds.")]


def predictor_routes(service: ApiService) -> APIRouter:
    """Return the routes of predictors."""
    routes = APIRouter(route_class=QueryRoute, prefix="/predictors", tags=["predictors"])

    @routes.get("", summary="Predictors and trained models")
    def list_predictors(caller: Reader) -> PredictorList:
        """List installed, active and shadow predictors, and trained models."""
        del caller
        models = _models(service)
        lasting = Counter(record.chain.predictor for record in service.status().chains if not record.over)
        past = {each.predictor: each for each in inquiries_of(service).measured(None)}
        return PredictorList(
            installed=list(models.installed()),
            predictors=predictor_documents(models.at_work(), lasting, past),
            models=[_document(models, version) for version in models.versions()],
        )

    @routes.get("/shadow", summary="Comparison of predictors on past handovers")
    def list_shadow_results(caller: Reader, span: Span = SPAN) -> ShadowResultsDocument:
        """Compare active and shadow predictors on the handovers of the last 30 days, or of a shorter `span`.

        At most the last 300 handovers count.
        """
        del caller
        return ShadowResultsDocument(
            predictors=[shadow_result(each) for each in inquiries_of(service).compared(span)]
        )

    @routes.post("/{name}/promote", summary="Promote a trained model")
    def promote_model(caller: Admin, request: Request, name: Name, promotion: Promotion) -> ModelAnswerDocument:
        """Promote a stored version; the daemon uses it from its next cycle on.

        Rejected (409) if its cost in shadow exceeded that of the active predictor, unless `force`.
        """
        del caller
        models = _models(service)
        _find(models, name, promotion.version)
        note(request.scope, f"promote {name} {promotion.version}{' by force' if promotion.force else ''}")
        return _answer(models, models.promote(name, promotion.version, force=promotion.force))

    @routes.post("/{name}/rollback", summary="Roll back a trained model")
    def roll_back_model(caller: Admin, request: Request, name: Name) -> ModelAnswerDocument:
        """Return to the version before the last promotion; the daemon uses it from its next cycle on."""
        del caller
        models = _models(service)
        _find(models, name)
        note(request.scope, f"roll back {name}")
        return _answer(models, models.rollback(name))

    return routes


def _models(service: ApiService) -> Models:
    if service.models is None:
        raise StoreUnavailable("this daemon has no model registry")
    return service.models


def _find(models: Models, name: str, version: str | None = None) -> None:
    kept = [each.version for each in models.versions() if each.name == name]
    if not kept:
        raise HTTPException(404, f"the registry has no model of {name}; /predictors lists its models")
    if version is not None and version not in kept:
        raise HTTPException(
            404, f"the registry has no version {version[:40]} of {name}; there are {', '.join(kept)}"
        )


def _answer(models: Models, version: Version) -> ModelAnswerDocument:
    charge, shadows, _ = models.at_work()
    named = [role for role, names in (("decides", (charge,)), ("watches", shadows)) if version.name in names]
    effect = f"it {named[0]} from the next cycle on" if named else "the configuration names another predictor"
    return ModelAnswerDocument(
        sentence=f"{version.name} {version.version} is in use; {effect}", model=_document(models, version)
    )


def _document(models: Models, version: Version) -> ModelVersionDocument:
    return model_version(version, models.in_shadow(), models.damage(version))
