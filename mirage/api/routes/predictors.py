"""``/api/v1/predictors``: which there are and how good they have been; which trained model is in use."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Path, Query, Request
from starlette.exceptions import HTTPException

from mirage.api.access.auditing import note
from mirage.api.access.dependencies import Admin, Reader
from mirage.api.conventions.threads import QueryRoute
from mirage.api.documents.predictors import (
    ModelAnswer,
    ModelVersion,
    PredictorList,
    Promotion,
    ShadowResults,
    model_version,
    predictor_documents,
    shadow_result,
)
from mirage.api.routes.inquirer import inquiries_of
from mirage.domain.errors import StoreUnavailable
from mirage.replay.watched import SPAN

if TYPE_CHECKING:
    from mirage.api.port import ApiService, Models
    from mirage.predictors.artifacts.shelf import Version

Name = Annotated[str, Path(pattern="^[a-z0-9][a-z0-9_-]{0,39}$")]
Span = Annotated[int, Query(ge=0, le=SPAN, description="How far back handovers count, in seconds.")]


def predictor_routes(service: ApiService) -> APIRouter:
    """The addresses of predictors."""
    routes = APIRouter(route_class=QueryRoute, prefix="/predictors", tags=["predictors"])

    @routes.get("", summary="Predictors and trained models")
    def list_predictors(caller: Reader) -> PredictorList:
        """What is installed, what decides and what watches here, and the models that are kept."""
        del caller
        models = _models(service)
        lasting = Counter(record.chain.predictor for record in service.status().chains if not record.over)
        past = {each.predictor: each for each in inquiries_of(service).measured(None)}
        return PredictorList(
            installed=list(models.installed()),
            predictors=predictor_documents(models.at_work(), lasting, past),
            models=[_document(models, version) for version in models.versions()],
        )

    @routes.get("/shadow", summary="Predictors compared on real handovers")
    def list_shadow_results(caller: Reader, span: Span = SPAN) -> ShadowResults:
        """Every predictor, active or in shadow, over the handovers of the last 30 days, or of fewer (`span`).

        At most the last 300 handovers count.
        """
        del caller
        return ShadowResults(predictors=[shadow_result(each) for each in inquiries_of(service).compared(span)])

    @routes.post("/{name}/promote", summary="Put a trained model in use")
    def promote_model(caller: Admin, request: Request, name: Name, promotion: Promotion) -> ModelAnswer:
        """A version that is kept already; the daemon takes it before its next cycle.

        Rejected (409) where it has cost more in shadow than the predictor in charge, unless `force`.
        """
        del caller
        models = _models(service)
        _find(models, name, promotion.version)
        note(request.scope, f"promote {name} {promotion.version}{' by force' if promotion.force else ''}")
        return _answer(models, models.promote(name, promotion.version, force=promotion.force))

    @routes.post("/{name}/rollback", summary="Go back to the model before")
    def roll_back_model(caller: Admin, request: Request, name: Name) -> ModelAnswer:
        """The version that was in use before the last promotion; the daemon takes it before its next cycle."""
        del caller
        models = _models(service)
        _find(models, name)
        note(request.scope, f"roll back {name}")
        return _answer(models, models.rollback(name))

    return routes


def _models(service: ApiService) -> Models:
    if service.models is None:
        raise StoreUnavailable("this daemon keeps no models")
    return service.models


def _find(models: Models, name: str, version: str | None = None) -> None:
    kept = [each.version for each in models.versions() if each.name == name]
    if not kept:
        raise HTTPException(404, f"no model of {name} is kept; /predictors lists those that are")
    if version is not None and version not in kept:
        raise HTTPException(404, f"no version {version[:40]} of {name} is kept; there are {', '.join(kept)}")


def _answer(models: Models, version: Version) -> ModelAnswer:
    charge, shadows, _ = models.at_work()
    named = [role for role, names in (("decides", (charge,)), ("watches", shadows)) if version.name in names]
    effect = f"it {named[0]} from the next cycle on" if named else "the configuration names another predictor"
    return ModelAnswer(
        sentence=f"{version.name} {version.version} is in use; {effect}", model=_document(models, version)
    )


def _document(models: Models, version: Version) -> ModelVersion:
    return model_version(version, models.in_shadow(), models.damage(version))
