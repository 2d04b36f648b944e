"""Hostile requests for predictors, queues, models and replays: none makes them fail."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from kept_models import ModelDesk
from shown_queues import NOW, columns, snapshot
from test_predictions_api import Desk

from mirage.api.access.caller import Caller, Scope
from mirage.api.access.dependencies import caller_of
from mirage.api.app import create_app
from mirage.api.port import Inquiries
from mirage.control.status import Status
from mirage.replay.runs import ReplayRuns
from mirage.store.opening import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from api_world import World
    from fastapi import FastAPI

MINE = (
    "cluster",
    "queue",
    "predictions",
    "predictors",
    "jobs",
    "replays",
    "configuration",
    "chains/{chain_id}/timeline",
)
SNAPSHOT = snapshot(columns({"job_id": 12}, {"job_id": 13, "nodes": 3}), columns({"job_id": 3, "start": NOW - 9}))


@pytest.fixture
def app(world: World, tmp_path: Path) -> Iterator[FastAPI]:
    store = open_store(f"sqlite:///{tmp_path}/mirage.db")
    runs = ReplayRuns(tmp_path / "replays", None, lambda wish, folder: ["true"], lambda: NOW, 2)
    desk = Desk()
    made = create_app(
        replace(
            world.service,
            status=lambda: Status(NOW, "", SNAPSHOT, cycles=1),
            journal=store.journal,
            inquiries=Inquiries(desk.ask, desk.named, desk.measured),
            models=ModelDesk(),
            replays=runs,
        )
    )
    made.dependency_overrides[caller_of] = lambda: Caller("alice", Scope.ADMIN)
    yield made
    runs.close()
    store.close()


def test_no_question_makes_the_interface_fail(app: FastAPI) -> None:
    schema = schemathesis.openapi.from_asgi("/openapi.json", app)
    operations = [found.ok() for found in schema.get_all_operations()]
    mine = [each for each in operations if each.path.removeprefix("/api/v1/").startswith(MINE)]
    assert len(mine) >= 14
    for operation in mine:
        _ask(operation)


def _ask(operation: Any) -> None:
    @settings(
        max_examples=15,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(
        case=operation.as_strategy() | operation.as_strategy(generation_mode=schemathesis.GenerationMode.NEGATIVE)
    )
    def check(case: Any) -> None:
        response = case.call()
        assert response.status_code < 500, (case, response.text)
        if response.status_code >= 400:
            assert response.headers["content-type"] == ["application/problem+json"], (case, response.text)

    check()
