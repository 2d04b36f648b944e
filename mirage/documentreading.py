"""JSON and TOML from outside as plain values, pydantic's readers of such documents, and their errors in words.

Whatever is wrong with a text is a ``ValueError``: the standard readers raise ``RecursionError`` for deep nesting,
and tomllib an error of another kind for a number of too many digits.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pydantic import TypeAdapter, ValidationError

if TYPE_CHECKING:
    Pairs = Callable[[list[tuple[str, Any]]], Any]

MOST_PARTS = 200_000
"""Brackets, commas and strings of a document: the largest chain has 70,000. A text of 8 MiB may have 5 million,
which take 500 MiB as objects."""
_PART = re.compile(r'[\[{,]|"[^"]*"?')
_BAD_ESCAPE = re.compile(
    r"(\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|\\u(?:0000|[dD][89a-fA-F][0-9a-fA-F]{2})"
)
"""After what is well written: the escape of a NUL, or of half a character."""
_MOST_DIGITS = 300
_SHOWN = 40
_DEEP_KEY = re.compile(r"""(?<![\w-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){100}""")
"""tomllib takes time in proportion to the square of a key's parts."""
_TOO_DEEP = "it is nested too deeply"


def parse_json(text: str | bytes, pairs: Pairs | None = None, most: int | None = MOST_PARTS) -> Any:
    """The value of a JSON document; ``pairs`` makes each object.

    Raises ``ValueError``, also for numbers that are not finite (JSON has none, and 1e400 is read as one), and for
    more than ``most`` brackets, commas and strings before any object is made. ``None``: only the size is bounded.
    """
    if isinstance(text, bytes):
        text = text.decode(json.detect_encoding(text), "surrogatepass")
    if most is not None:
        check_parts(text, most)
    try:
        return json.loads(text, object_pairs_hook=pairs, parse_float=_finite, parse_constant=_not_json)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None


def decode_foreign(content: bytes) -> str:
    """Text of a program that passes on users' words as they are, such as Slurm's commands. Never fails.

    Bytes that are no UTF-8 are written as Python does (surrogateescape), so that the bytes can be had back.
    """
    return content.decode("utf-8", "surrogateescape")


def parse_foreign_json(content: bytes) -> Any:
    """The value of a JSON document of a program that passes on users' words as they are, such as slurmrestd.

    No word can spoil the document: bytes that are no UTF-8 are as in ``decode_foreign``, strings may hold control
    characters, NUL and half characters become U+FFFD. A number that is not finite, or that no column can hold, is
    a NaN or an infinity. Raises ``ValueError`` where the whole is no JSON.
    """
    text = decode_foreign(content)
    if "\0" in text:
        text = text.replace("\0", "\N{REPLACEMENT CHARACTER}")
    if "\\u" in text:
        text = _BAD_ESCAPE.sub(lambda found: found[1] or r"\ufffd", text)
    try:
        try:
            return json.loads(text, strict=False)
        except json.JSONDecodeError:
            raise
        except ValueError:  # int() takes no more than some thousand digits
            return json.loads(text, strict=False, parse_int=_integer)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None


def _integer(text: str) -> int | float:
    return int(text) if len(text) <= _MOST_DIGITS else math.inf


def check_parts(text: str, most: int = MOST_PARTS) -> None:
    """Raises ``ValueError`` for a JSON document of more parts than ``most``; makes nothing of it."""
    if sum(map(text.count, '[{,"')) <= most:
        return
    plain = text.replace("\\\\", "").replace('\\"', "") if "\\" in text else text
    if any(number >= most for number, _ in enumerate(_PART.finditer(plain))):
        raise ValueError(f"it has more than {most} values")


def parse_own_json(text: str | bytes) -> Any:
    """The value of a document that Mirage wrote, which may hold NaN and Infinity. Raises ``ValueError``."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _not_json(text)


def _not_json(text: str) -> NoReturn:
    raise ValueError(f"{text[:_SHOWN]} is no finite number")


def parse_toml(text: str | bytes) -> dict[str, Any]:
    """The tables of a TOML document; bytes are UTF-8. Raises ``ValueError``."""
    text = text if isinstance(text, str) else text.decode()
    if _DEEP_KEY.search(text):
        raise ValueError(_TOO_DEEP)
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None


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
