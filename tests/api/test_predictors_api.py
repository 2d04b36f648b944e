"""Predictors, trained models and the configuration over the API."""

from __future__ import annotations

import os
from concurrent.futures import Future
from typing import TYPE_CHECKING

import pytest
from kept_models import NEW, OLD, ModelDesk, measured
from serving import serving

from mirage.api.port import EffectiveSetting, Inquiries

if TYPE_CHECKING:
    from collections.abc import Iterator

    from api_world import World

PATH = "/api/v1/predictors"
CALIBRATION = [
    {"level": 0.1, "share": 0.25, "forecasts": 12},
    {"level": 0.9, "share": 0.75, "forecasts": 12},
]
DAY = 86_400


@pytest.fixture
def modelled(world: World) -> Iterator[World]:
    past = (measured("xgboost:/state/models/xgboost", True), measured("average", False))
    inquiries = Inquiries(
        lambda question: Future(), lambda name: None, lambda alike: past, lambda span: past if span > DAY else ()
    )
    settings = [
        EffectiveSetting("loop.interval", 60, "default"),
        EffectiveSetting("api.admins", ("bin",), "/etc/m.toml:3"),
    ]
    with serving(world, models=ModelDesk(), inquiries=inquiries, configuration=lambda: settings) as served:
        yield served


def test_what_is_installed_at_work_and_kept(modelled: World) -> None:
    status, found = modelled.call("GET", PATH)
    assert status == 200, found
    assert found["installed"] == ["reactive", "quantile", "xgboost"]
    assert [
        (each["name"], each["in_charge"], each["shadow"], each["fallback"]) for each in found["predictors"]
    ] == [
        ("xgboost", True, False, False),
        ("average", False, True, False),
        ("quantile", False, False, True),
    ]
    assert found["predictors"][0]["past"]["absolute_error"] == 3_600
    assert found["predictors"][2]["past"] is None
    assert found["predictors"][0]["calibration"] == CALIBRATION
    assert [each["calibration"] for each in found["predictors"][1:]] == [[], []]
    assert [(model["version"], model["current"]) for model in found["models"]] == [(OLD, True), (NEW, False)]
    assert [(model["shadow"], model["damage"]) for model in found["models"]] == [
        (False, ""),
        (True, "model.onnx: cannot be read"),
    ]
    assert found["models"][0]["first"] == "2020-09-13T12:26:40Z"
    assert found["models"][0]["manifest"]["cluster"]["nodes"] == [4, 8]


def test_shadows_are_compared(modelled: World) -> None:
    status, found = modelled.call("GET", f"{PATH}/shadow")
    assert status == 200
    assert [(each["in_charge"], each["absolute_error"], each["gain"]) for each in found["predictors"]] == [
        (True, 1.0, None),
        (False, 1.0, None),
    ]
    assert [each["calibration"] for each in found["predictors"]] == [CALIBRATION, []]


@pytest.mark.parametrize(
    ("query", "expected", "found"),
    [
        (f"span={DAY}", 200, 0),
        (f"span={30 * DAY}", 200, 2),
        (f"span={30 * DAY + 1}", 422, 0),
        ("span=-1", 422, 0),
        ("span=1d", 422, 0),
        (f"span={'9' * 5_000}", 422, 0),
    ],
)
def test_shadows_are_compared_over_a_bounded_span(modelled: World, query: str, expected: int, found: int) -> None:
    status, document = modelled.call("GET", f"{PATH}/shadow?{query}")
    assert status == expected, document
    assert len(document.get("predictors", ())) == found


def test_a_model_is_promoted_by_force_only_and_rolled_back(modelled: World) -> None:
    status, problem = modelled.call("POST", f"{PATH}/xgboost/promote", {"version": NEW})
    assert status == 409
    assert "would have cost more" in problem["detail"]
    status, answer = modelled.call("POST", f"{PATH}/xgboost/promote", {"version": NEW, "force": True})
    assert status == 200
    assert answer["sentence"] == f"xgboost {NEW} is in use; it decides from the next cycle on"
    assert modelled.call("GET", PATH)[1]["models"][1]["current"]
    status, answer = modelled.call("POST", f"{PATH}/xgboost/rollback")
    assert (status, answer["model"]["version"]) == (200, OLD)


@pytest.mark.parametrize(
    ("path", "body", "expected", "words"),
    [
        ("xgboost/promote", {"version": "nix"}, 404, "no version nix"),
        ("dqn/promote", {"version": NEW}, 404, "no model of dqn"),
        ("dqn/rollback", None, 404, "no model of dqn"),
        ("xgboost/promote", {}, 422, "version"),
        ("xgboost/promote", {"version": NEW, "colour": 1}, 422, "colour"),
        ("..%2Fetc/rollback", None, 404, ""),
        ("Xgboost/rollback", None, 422, "name"),
    ],
)
def test_mistakes_are_problems(modelled: World, path: str, body: object, expected: int, words: str) -> None:
    status, problem = modelled.call("POST", f"{PATH}/{path}", body)
    assert status == expected, problem
    assert words in problem["detail"]


def test_the_configuration_is_for_administrators(modelled: World) -> None:
    status, found = modelled.call("GET", "/api/v1/configuration")
    assert status == 200
    assert found["settings"] == [
        {"key": "loop.interval", "value": 60, "source": "default"},
        {"key": "api.admins", "value": ["bin"], "source": "/etc/m.toml:3"},
    ]
    if os.getuid() != 0:
        pytest.skip("speaking as another user needs root")
    assert modelled.call("GET", "/api/v1/configuration", user="nobody")[0] == 403
    assert modelled.call("POST", f"{PATH}/xgboost/rollback", user="nobody")[0] == 403
    assert modelled.call("GET", PATH, user="nobody")[0] == 200
