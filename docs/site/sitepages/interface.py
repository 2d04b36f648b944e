"""The reference of the REST API, from its OpenAPI description."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

from sitepages.markdown import code, page, plain, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_REFERENCE = "#/components/schemas/"
_ABOUT = """\
Generated from [openapi.json](../openapi.json), from which clients can be generated too. [REST API](../rest.md) is
sorted by subject and has examples."""


def interface_page(description: Mapping[str, Any]) -> str:
    """Every endpoint with its parameters and answers, then every document."""
    return page(
        "# REST API: all endpoints",
        _ABOUT,
        plain(description["info"]["description"]),
        *(block for tag, group in groupby(_operations(description), _tag) for block in _tagged(tag, group)),
        "## Documents",
        *(
            block
            for name, schema in sorted(description["components"]["schemas"].items())
            for block in _document(name, schema)
        ),
    )


def _operations(description: Mapping[str, Any]) -> list[tuple[str, str, Mapping[str, Any]]]:
    found = [
        (method.upper(), path, about)
        for path, methods in description["paths"].items()
        for method, about in methods.items()
    ]
    return sorted(found, key=_tag)


def _tag(operation: tuple[str, str, Mapping[str, Any]]) -> str:
    return str(operation[2]["tags"][0])


def _tagged(tag: str, operations: Iterator[tuple[str, str, Mapping[str, Any]]]) -> Iterator[str]:
    yield f"## {tag.capitalize()}"
    for method, path, about in operations:
        yield f"### {method} {plain(path)}"
        yield from (plain(part) for part in about.get("description", "").split("\n\n"))
        if parameters := about.get("parameters"):
            yield table(("parameter", "in", "type", "meaning"), map(_parameter, parameters))
        if body := about.get("requestBody"):
            yield f"Body: {_kinds(body)}"
        yield table(("status", "answer", "when"), (_answer(*each) for each in about["responses"].items()))


def _parameter(about: Mapping[str, Any]) -> tuple[str, str, str, str]:
    name = code(about["name"]) + (" (required)" if about.get("required") else "")
    return name, about["in"], _kind(about["schema"]), plain(about.get("description", ""))


def _answer(status: str, about: Mapping[str, Any]) -> tuple[str, str, str]:
    return status, _kinds(about), plain(about["description"].removesuffix("Successful Response"))


def _kinds(body: Mapping[str, Any]) -> str:
    return ", ".join(_kind(each.get("schema", {})) for each in body.get("content", {}).values())


def _document(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    yield f"### {name}"
    yield plain(schema.get("description", "").replace("\n", " "))
    if words := schema.get("enum"):
        yield "One of: " + ", ".join(code(str(word)) for word in words) + "."
    if properties := schema.get("properties"):
        required = schema.get("required", ())
        yield table(
            ("field", "type", "meaning"),
            (_field(key, each, key in required) for key, each in properties.items()),
        )


def _field(name: str, about: Mapping[str, Any], required: bool) -> tuple[str, str, str]:
    return code(name) + ("" if required else " (optional)"), _kind(about), plain(about.get("description", ""))


def _kind(schema: Mapping[str, Any]) -> str:
    """The type in words, with links to documents."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(_REFERENCE)
        return f"[{name}](#{name.lower()})"
    if choices := schema.get("anyOf"):
        return " or ".join(_kind(each) for each in choices)
    if "const" in schema:
        return code(repr(schema["const"]))
    kind = str(schema.get("type", "any"))
    if kind == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"map of {_kind(schema['additionalProperties'])}"
    if "enum" in schema:
        return " or ".join(code(str(each)) for each in schema["enum"])
    return kind
