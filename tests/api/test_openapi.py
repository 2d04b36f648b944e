"""The description that clients are generated from: committed, whole, and with names that stay."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from test_bounded_requests import unbounded

from mirage.api.openapi import description
from mirage.domain import bounds

if TYPE_CHECKING:
    from collections.abc import Iterator

COMMITTED = Path(__file__).parents[2] / "docs/openapi.json"


@pytest.fixture(scope="module")
def described() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(description())
    return document


def operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def test_the_committed_description_is_that_of_this_code() -> None:
    assert COMMITTED.read_text(encoding="utf-8") == description(), "the API has changed: run `make openapi`"


def test_every_operation_has_a_name_a_tag_and_words(described: dict[str, Any]) -> None:
    names = Counter(operation["operationId"] for _, operation in operations(described))
    assert [name for name, count in names.items() if count > 1] == []
    for where, operation in operations(described):
        assert re.fullmatch("[a-z][a-z_]*", operation["operationId"]), where
        assert operation["tags"], where
        assert operation["summary"], where
        assert operation["description"], where


def test_every_field_and_every_parameter_says_what_it_is(described: dict[str, Any]) -> None:
    fields = {
        f"{name}.{field}": schema
        for name, document in described["components"]["schemas"].items()
        for field, schema in document.get("properties", {}).items()
    }
    assert len(fields) > 300
    assert [field for field, schema in fields.items() if not schema.get("description")] == []
    assert [
        f"{where} {parameter['name']}"
        for where, operation in operations(described)
        for parameter in operation.get("parameters", ())
        if not parameter.get("description")
    ] == []


def test_every_answer_has_a_form_and_every_problem_is_one(described: dict[str, Any]) -> None:
    for where, operation in operations(described):
        for code, answer in operation["responses"].items():
            kinds = answer.get("content", {})
            if code == "200":
                assert kinds, where
            if code[0] in "45" and "/readyz" not in where:
                assert list(kinds) == ["application/problem+json"], f"{where} {code}"
        if where.startswith(("GET /api", "POST /api", "DELETE /api")):
            assert {"401", "403", "429", "503"} <= operation["responses"].keys(), where


def test_what_is_referred_to_is_there(described: dict[str, Any]) -> None:
    schemas = described["components"]["schemas"]
    referred = set(re.findall('"#/components/schemas/([^"]+)"', json.dumps(described)))
    assert referred <= schemas.keys()
    assert "HTTPValidationError" not in schemas
    chain = schemas["Chain"]
    assert {"chain_id", "name", "request"} <= set(chain["required"])
    assert "owner" not in chain["required"]


def test_the_guide_names_every_address(described: dict[str, Any]) -> None:
    guide = (COMMITTED.parent / "rest.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:GET|POST|PUT|PATCH|DELETE) /[^` ]*)`", guide))
    there = {where for where, _ in operations(described)}
    assert there <= named, "docs/rest.md lacks some"
    assert named <= there | {"GET /metrics"}, "docs/rest.md names endpoints that do not exist"


def test_every_field_and_parameter_of_requests_shows_its_bound(described: dict[str, Any]) -> None:
    names, found = described["components"]["schemas"], []
    for where, operation in operations(described):
        for parameter in operation.get("parameters", ()):
            found += unbounded(parameter["schema"], f"{where} ?{parameter['name']}", names)
        for content in operation.get("requestBody", {}).get("content", {}).values():
            found += unbounded(content["schema"], f"{where} body", names)
    assert found == []


def test_chain_shows_the_bounds_that_are_checked(described: dict[str, Any]) -> None:
    schemas = described["components"]["schemas"]
    assert schemas["JobRequest"]["properties"]["nodes"]["maximum"] == bounds.MOST_NODES
    assert schemas["BatchScript"]["properties"]["text"]["maxLength"] == bounds.LARGEST_SCRIPT
    assert schemas["JobRequest"]["properties"]["features"]["maxItems"] == 64
