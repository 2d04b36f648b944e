"""Documents that others wrote: pydantic's readers of them, and what it finds wrong, in words for their authors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import TypeAdapter, ValidationError

T = TypeVar("T")

MOST_FAULTS = 1_000
"""Errors of one document that are listed one by one; each takes a kilobyte."""
_CONTAINERS = frozenset({"dict", "frozenset", "list", "set", "tuple"})
_NUMBERS = frozenset({"int", "float"})
_NO_SCHEMAS = frozenset({"default", "expected", "metadata", "serialization"})
"""Keys of a schema whose values are the model's own."""
_PLAIN = {"tuple_type": "expected a list", "list_type": "expected a list"}
"""Instead of words that only readers of Python know."""
_PREFIX = "Value error, "
"""Before what a validator of ours says."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One error in a document: its place, its kind and its text."""

    path: tuple[str | int, ...]
    """Keys, and places in lists from 0 on; empty: the document as a whole."""
    kind: str
    """Pydantic's, such as ``extra_forbidden`` or ``missing``."""
    said: str

    @property
    def key(self) -> str:
        """``tenant.0.rate``; empty: the document as a whole."""
        return ".".join(map(str, self.path))

    def __str__(self) -> str:
        """Format the error with its key in front."""
        return f"{self.key}: {self.said}" if self.path else self.said


def reader_of(
    kind: type[T], names: Mapping[str, Any] | None = None, *, booleans_are_numbers: bool = True
) -> TypeAdapter[T]:
    """A reader that stops within each list and mapping at the first error.

    Pydantic keeps an object for each error: a small file of wrong values would take gigabytes.
    ``names``: types that the module of ``kind`` imports for type checkers only. ``booleans_are_numbers``: ``true``
    is read as 1 where a number belongs, as pydantic does.
    """
    from pydantic import TypeAdapter
    from pydantic_core import SchemaValidator

    adapter = TypeAdapter(kind)
    if names:
        adapter.rebuild(_types_namespace=dict(names))
    # Validators that models have already were made without this.
    schema = adapter.core_schema if booleans_are_numbers else numbers_only(adapter.core_schema)
    adapter.validator = SchemaValidator(_failing_fast(schema), _use_prebuilt=False)
    return adapter


def numbers_only(schema: Any) -> Any:
    """The same pydantic schema, in which ``true`` and ``false`` are no numbers."""
    if isinstance(schema, list | tuple):
        return type(schema)(map(numbers_only, schema))
    if not isinstance(schema, dict):
        return schema
    made = {key: each if key in _NO_SCHEMAS else numbers_only(each) for key, each in schema.items()}
    if schema.get("type") not in _NUMBERS:
        return made
    return {"type": "function-before", "function": {"type": "no-info", "function": _no_boolean}, "schema": made}


def _no_boolean(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError(f"expected a number, not {str(value).lower()}")  # noqa: TRY004 - pydantic collects it
    return value


def _failing_fast(schema: Any) -> Any:
    if isinstance(schema, list | tuple):
        return type(schema)(map(_failing_fast, schema))
    if not isinstance(schema, dict):
        return schema
    made = {key: each if key in _NO_SCHEMAS else _failing_fast(each) for key, each in schema.items()}
    return made | {"fail_fast": True} if schema.get("type") in _CONTAINERS else made


def faults_of(error: ValidationError) -> list[Fault]:
    """All of them, at least one. What the document holds is not repeated: it may be secret."""
    if error.error_count() > MOST_FAULTS:
        return [Fault((), "too_many", f"more than {MOST_FAULTS} values are wrong")]
    return [
        Fault(tuple(each["loc"]), each["type"], _PLAIN.get(each["type"], each["msg"].removeprefix(_PREFIX)))
        for each in error.errors(include_url=False, include_input=False, include_context=False)
    ]


def more_faults(faults: list[Fault]) -> str:
    """Text after the first error: how many follow; empty where it is the only one."""
    return f" ({len(faults) - 1} more to fix after it)" if len(faults) > 1 else ""
