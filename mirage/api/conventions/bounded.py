"""Bounds of fields in the API description."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mirage.domain.bounds import Data, Many, Number, Pair, Record, Text

if TYPE_CHECKING:
    from mirage.domain.bounds import Bound

Document = dict[str, Any]


def add_bounds(schema: Document, bound: Bound, schemas: Document) -> None:
    """Write ``bound`` into a JSON schema and into those of ``schemas`` that it refers to.

    A schema used by fields with different bounds gets the widest. Further fields are excluded: the API rejects
    them.
    """
    for choice in schema.get("anyOf", ()):
        add_bounds(choice, bound, schemas)
    if "$ref" in schema:
        add_bounds(schemas[schema["$ref"].rpartition("/")[2]], bound, schemas)
        return
    kind = schema.get("type")
    match bound:
        case Number() if kind in ("integer", "number"):
            schema["minimum"] = min(schema.get("minimum", bound.least), bound.least)
            schema["maximum"] = max(schema.get("maximum", bound.most), bound.most)
        case Text() | Data() if kind == "string" and "enum" not in schema:
            schema["maxLength"] = max(schema.get("maxLength", 0), bound.longest)
            if isinstance(bound, Text) and bound.visible:
                schema["minLength"] = 1
        case Many() if kind == "array":
            schema["maxItems"] = bound.most
            add_bounds(schema["items"], bound.each, schemas)
        case Pair() if kind == "array":
            for part, of_it in zip(schema["prefixItems"], (bound.first, bound.second), strict=True):
                add_bounds(part, of_it, schemas)
        case Record() if kind == "object":
            for place, of_it in bound.fields.items():
                _add_at(schema, place, of_it, schemas)
            close(schema, schemas)


def close(schema: Document, schemas: Document) -> None:
    """Exclude further fields of an object and of those within it."""
    for choice in schema.get("anyOf", ()):
        close(choice, schemas)
    if "$ref" in schema:
        close(schemas[schema["$ref"].rpartition("/")[2]], schemas)
    if schema.get("type") == "array":
        close(schema.get("items", {}), schemas)
    if schema.get("type") == "object":
        schema["additionalProperties"] = False
        for inner in schema.get("properties", {}).values():
            close(inner, schemas)


def _add_at(schema: Document, place: str, bound: Bound, schemas: Document) -> None:
    """Add the bound to the field with this dotted name."""
    for choice in schema.get("anyOf", ()):
        _add_at(choice, place, bound, schemas)
    if "$ref" in schema:
        _add_at(schemas[schema["$ref"].rpartition("/")[2]], place, bound, schemas)
        return
    first, _, rest = place.partition(".")
    if (inner := schema.get("properties", {}).get(first)) is None:
        return
    if rest:
        _add_at(inner, rest, bound, schemas)
    else:
        add_bounds(inner, bound, schemas)
