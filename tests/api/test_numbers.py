"""``true`` is no number, wherever a caller sends one."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pytest
from api_world import World, definition

from mirage.api.access.caller import Caller, Scope
from mirage.api.conventions.documents import SentDocument
from mirage.api.conventions.problems import BadDocument
from mirage.api.openapi import description
from mirage.api.routes.chaindefinition import read_chain

if TYPE_CHECKING:
    from collections.abc import Iterator

IN_QUERIES = {"PredictionQuery"}
READ_OTHERWISE = {"Chain", "AgentResponse"}
"""A chain's reader is asked above; an agent's answer is read by the exact type of each value."""
ADA = Caller("ada", Scope.OPERATE)


def read(**changes: Any) -> Any:
    return read_chain(json.dumps(definition(**changes)).encode(), ADA, {})


def numbers_of(document: dict[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Where a chain has numbers."""
    for name, value in document.items():
        if isinstance(value, dict):
            yield from numbers_of(value, (*above, name))
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield (*above, name)


@pytest.mark.parametrize("value", [True, False])
@pytest.mark.parametrize("path", list(numbers_of(asdict(read()))), ids=".".join)
def test_chain_with_a_boolean_for_a_number_is_rejected(path: tuple[str, ...], value: bool) -> None:
    document = definition(failures={kind: {"recovery": "retry"} for kind in ("exit", "node", "cancelled")})
    at = document
    for name in path[:-1]:
        at = at.setdefault(name, {})
    at[path[-1]] = value
    with pytest.raises(BadDocument, match=f"{'.'.join(path)}: expected a number, not {str(value).lower()}"):
        read(**document)


def test_limit_that_is_a_boolean_is_a_problem_that_names_it(world: World) -> None:
    request = definition()["request"] | {"limit": True}
    status, problem = world.call("POST", "/api/v1/chains", definition(request=request))
    assert (status, problem["detail"]) == (422, "request.limit: expected a number, not true")


def test_token_whose_lifetime_is_a_boolean_is_rejected(world: World) -> None:
    status, problem = world.call("POST", "/api/v1/tokens", {"label": "a", "lifetime": True})
    assert (status, "lifetime" in problem["detail"]) == (422, True)


def test_every_document_that_is_sent_reads_booleans_as_no_numbers() -> None:
    paths = json.loads(description())["paths"]
    operations = [operation for path in paths.values() for operation in path.values()]
    bodies = [
        each["requestBody"]["content"]["application/json"]["schema"]
        for each in operations
        if "requestBody" in each
    ]
    names = {body["$ref"].rpartition("/")[2] for body in bodies}
    assert names == {body.__name__ for body in SentDocument.__subclasses__()} - IN_QUERIES | READ_OTHERWISE
