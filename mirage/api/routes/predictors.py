"""``/api/v1/predictors``: predictors with their past errors, and trained models."""

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
    def list_shadow_results(caller: Reader, span: Span = SPAN) -> ShadowResults:
        """Compare active and shadow predictors on the handovers of the last 30 days, or of a shorter `span`.

        At most the last 300 handovers count.
        """
        del caller
        return ShadowResults(predictors=[shadow_result(each) for each in inquiries_of(service).compared(span)])

    @routes.post("/{name}/promote", summary="Promote a trained model")
    def promote_model(caller: Admin, request: Request, name: Name, promotion: Promotion) -> ModelAnswer:
        """Promote a stored version; the daemon uses it from its next cycle on.

        Rejected (409) if its cost in shadow exceeded that of the active predictor, unless `force`.
        """
        del caller
        models = _models(service)
        _find(models, name, promotion.version)
        note(request.scope, f"promote {name} {promotion.version}{' by force' if promotion.force else ''}")
        return _answer(models, models.promote(name, promotion.version, force=promotion.force))

    @routes.post("/{name}/rollback", summary="Roll back a trained model")
    def roll_back_model(caller: Admin, request: Request, name: Name) -> ModelAnswer:
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


def _answer(models: Models, version: Version) -> ModelAnswer:
    charge, shadows, _ = models.at_work()
    named = [role for role, names in (("decides", (charge,)), ("watches", shadows)) if version.name in names]
    effect = f"it {named[0]} from the next cycle on" if named else "the configuration names another predictor"
    return ModelAnswer(
        sentence=f"{version.name} {version.version} is in use; {effect}", model=_document(models, version)
    )


def _document(models: Models, version: Version) -> ModelVersion:
    return model_version(version, models.in_shadow(), models.damage(version))
