"""Everything in a request has a bound: every parameter, and every field of every body."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from api_world import definition
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from hypothesis import given
from hypothesis import strategies as st

import mirage.api
from mirage.api.access.caller import Caller, Scope
from mirage.api.app import create_app
from mirage.api.conventions.problems import BadDocument
from mirage.api.port import ApiService
from mirage.api.routes.chaindefinition import read_chain
from mirage.control.status import Status
from mirage.domain.bounds import CHAIN, Data, Many, Number, Text
from mirage.domain.snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from starlette.routing import BaseRoute

Schema = dict[str, Any]
ADA = Caller("ada", Scope.OPERATE)
READ_THEMSELVES = {
    "chains.py": "mirage.domain.bounds.CHAIN, see tests/domain/test_bounds.py",
    "agents.py": "numbers by mirage.backends.agent_requests, texts by the length of the body",
    "account.py": "a token and a target, by the length of the body",
}
"""Modules that read bodies themselves, and what bounds what is in them."""


def leaves(routes: Sequence[BaseRoute]) -> Iterator[APIRoute]:
    for route in routes:
        if isinstance(route, APIRoute):
            yield route
        elif within := getattr(route, "original_router", None):
            yield from leaves(within.routes)


def operations() -> Iterator[tuple[str, Schema, Schema]]:
    """Every one, those of the pages too: its name, what it takes, and the schemas that this refers to."""
    nobody = ApiService(
        status=lambda: Status(0, "", Snapshot.unseen(0)), ask=lambda command: None, entries=lambda chain, limit: ()
    )
    for route in leaves(create_app(nobody).routes):
        route.include_in_schema = True
        document = get_openapi(title="one", version="1", routes=[route])
        for path, methods in document["paths"].items():
            for method, operation in methods.items():
                yield f"{method} {path}", operation, document.get("components", {}).get("schemas", {})


def unbounded(schema: Schema, place: str, names: Schema) -> Iterator[str]:
    """Where a value that fits the schema may be as large as it likes."""
    if "$ref" in schema:
        yield from unbounded(names[schema["$ref"].rpartition("/")[2]], place, names)
    for choice in (*schema.get("anyOf", ()), *schema.get("allOf", ()), *schema.get("oneOf", ())):
        yield from unbounded(choice, place, names)
    if "enum" in schema or "const" in schema:
        return
    lower, upper = schema.keys() & {"minimum", "exclusiveMinimum"}, schema.keys() & {"maximum", "exclusiveMaximum"}
    match schema.get("type"):
        case "integer" | "number":
            if not (lower and upper):
                yield place
        case "string":
            if "maxLength" not in schema and not schema.get("pattern", "").endswith("$"):
                yield place
        case "array":
            if "maxItems" not in schema:
                yield place
            for item in (schema.get("items", {}), *schema.get("prefixItems", ())):
                yield from unbounded(item, f"{place}.*", names)
        case "object":
            if schema.get("additionalProperties") is not False:
                yield place
            for name, inner in schema.get("properties", {}).items():
                yield from unbounded(inner, f"{place}.{name}", names)


def test_request_every_parameter_and_field_has_a_bound() -> None:
    found, count = [], 0
    for where, operation, names in operations():
        count += 1
        for parameter in operation.get("parameters", ()):
            found += unbounded(parameter["schema"], f"{where} ?{parameter['name']}", names)
        for content in operation.get("requestBody", {}).get("content", {}).values():
            found += unbounded(content["schema"], f"{where} body", names)
    assert count > 50
    assert found == []


def test_request_body_read_by_hand_is_one_that_is_bounded() -> None:
    reads = re.compile(r"read_body\(request|request\.(body|json|form|stream)\(")
    routes = Path(mirage.api.__file__).parent
    assert {path.name for path in routes.rglob("*.py") if reads.search(path.read_text())} == {
        *READ_THEMSELVES,
        "dependencies.py",
        "idempotency.py",
    }


NEEDED = {"failures": {"recovery": "retry"}, "aim": {"kind": "cheapest"}, "request.warn": {"name": "USR1"}}
"""Fields that another field requires."""


def posted(place: str, value: Any) -> bytes:
    """A chain with one field replaced, as a client would send it."""
    document = definition()
    *path, last = place.split(".")
    within = document
    for name in path:
        within = within.setdefault(name, {})
    for name, needed in (("recovery", "retry"), ("kind", "cheapest"), ("name", "TERM")):
        if (
            path
            and {"failures": "recovery", "aim": "kind", "signal": "name"}.get(path[0 if name != "name" else -1])
            == name
        ):
            within.setdefault(name, needed)
    within[last] = value
    return json.dumps(document).encode()


HOSTILE_NUMBERS = [10**30, -1, -(10**30), 2**63, 10**4_000]
HOSTILE_TEXTS = ["\x1b]0;PWN\x07", "a\rb", "a\nb", "\x9b31m", "\u202egnp", "\u2066", "\ud800", "x" * 200_000]
NUMBERS = [place for place, bound in CHAIN.fields.items() if isinstance(bound, Number)]
TEXTS = [place for place, bound in CHAIN.fields.items() if isinstance(bound, Text)]
NOT_THE_USERS = ("request.user", "request.tag")
"""Replaced by the daemon's own."""


MAY_BE_NEGATIVE = ("request.batch.process_nice",)


@pytest.mark.parametrize(
    ("place", "number"),
    [
        (place, number)
        for place in NUMBERS
        for number in HOSTILE_NUMBERS
        if number != -1 or place not in MAY_BE_NEGATIVE
    ],
    ids=lambda part: part if isinstance(part, str) else f"{len(str(part))} digits",
)
def test_chain_with_a_hostile_number_is_refused(place: str, number: int) -> None:
    with pytest.raises(BadDocument, match=place.replace(".", r"\.")):
        read_chain(posted(place, number), ADA, {})


@pytest.mark.parametrize("place", [place for place in TEXTS if place not in NOT_THE_USERS])
@pytest.mark.parametrize("text", HOSTILE_TEXTS, ids=lambda text: ascii(text[:10]))
def test_chain_with_a_hostile_text_is_refused(place: str, text: str) -> None:
    with pytest.raises(BadDocument) as refused:
        read_chain(posted(place, text), ADA, {})
    assert str(refused.value).startswith(place)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 500


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e400"])
def test_chain_with_a_number_that_is_not_finite_is_refused(number: str) -> None:
    body = posted("aim.value", 0.5).replace(b"0.5", number.encode())
    with pytest.raises(BadDocument, match="finite"):
        read_chain(body, ADA, {})


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("request.batch.text", "#!/bin/sh\n\ud800"),
        ("request.batch.text", "#!/bin/sh\n\0"),
        ("request.batch.text", "#!/bin/sh\n" + "x" * (4 << 20)),
        ("request.batch.text", "#!/bin/sh\n#SBATCH" + " -H" * 5_000),
        ("request.batch.text", "#!/bin/sh\n" + "#SBATCH -H\n" * 2_000),
        ("request.batch.text", "#!/bin/sh\n#SBATCH -J" + "x" * 70_000),
        ("request.batch.text", "#!/bin/sh\n#SBATCH --hold\ntrue\n"),
        ("request.batch.text", "#!/bin/sh\n#SBATCH -a 1-9\ntrue\n"),
        ("request.batch.text", "#!/bin/sh a" + " " * 300 + "x\ntrue\n"),
        ("request.batch.environment", [["A", "x" * 200_000]]),
        ("request.batch.environment", [[f"A{n}", "x" * 100_000] for n in range(30)]),
        ("request.batch.environment", [["A", "\ud800"]]),
        ("request.batch.environment", [["A", "b\0c"]]),
        ("request.batch.environment", [["A=B", "c"]]),
        ("request.batch.environment", [["", "c"]]),
        ("request.batch.arguments", ["x" * 131_072]),
        ("request.batch.arguments", ["x" * 100_000] * 6),
        ("request.batch.arguments", ["\ud800"]),
        ("request.batch.arguments", ["\0"]),
        ("request.batch.resource_limits", [["NOFILE", -2]]),
        ("request.batch.resource_limits", [["NOFILE", 1]] * 20),
        ("request.batch.options", ["--mail-user=a\x1b[31m"]),
        ("request.batch.options", ["--mail-type=END"] * 1_000),
        ("request.features", ["f"] * 1_000),
        ("request.features", ["f\x1b"]),
        ("request.gres_per_node", [["gpu\x07", 1]]),
        ("request.gres_per_node", [["gpu", 10**30]]),
        ("request.dependencies", [{"kind": 1, "job_id": 10**30}]),
        ("request.dependencies", [{"kind": 1, "job_id": 1}] * 2_000),
    ],
    ids=lambda value: str(value)[:30],
)
def test_chain_with_hostile_bytes_or_lists_is_refused(place: str, value: Any) -> None:
    with pytest.raises(BadDocument) as refused:
        read_chain(posted(place, value), ADA, {})
    assert str(refused.value).startswith(place)
    assert str(refused.value).isprintable()


def test_chain_script_may_hold_bytes_that_are_no_unicode() -> None:
    chain = read_chain(posted("request.batch.text", "#!/bin/sh\necho \udcff\x1b[0m"), ADA, {})
    assert chain.request.batch is not None
    assert "\udcff" in chain.request.batch.text


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)


@given(place=st.sampled_from(sorted(CHAIN.fields)), value=VALUES)
def test_chain_document_is_a_chain_within_bounds_or_refused(place: str, value: Any) -> None:
    with suppress(BadDocument):
        assert CHAIN.problem(read_chain(posted(place, value), ADA, {})) == ""


def test_table_has_all_three_kinds() -> None:
    assert NUMBERS
    assert TEXTS
    assert {type(bound) for bound in CHAIN.fields.values()} == {Number, Text, Data, Many}
