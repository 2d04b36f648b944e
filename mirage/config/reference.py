"""The configuration reference: every key with default and meaning, generated from the model's docstrings."""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from mirage.config.model import Config
from mirage.config.values import is_duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pydantic.fields import FieldInfo

_WIDTH = 115
_DAY, _HOUR = 86_400, 3_600

_HEADING = """\
Mirage: every key with its default, as printed by "mirage config reference". A missing or commented key has its
default. Durations are seconds, or texts such as "90s", "10m", "30d". Files in conf.d/ next to this file override
it, and variables such as MIRAGE_LOOP__INTERVAL=30s override both. "mirage config check FILE" checks a file,
"mirage config show" prints all values and their origins."""


@dataclass(frozen=True, slots=True)
class Key:
    """A key of the configuration file."""

    name: str
    words: str
    """Meaning and, for an enumeration, the possible values."""
    value: str
    """In TOML syntax."""
    is_default: bool
    """False: the key has no default, and ``value`` is an example."""
    row: tuple[Key, ...] = ()
    """Keys of one element, if the key is a list of tables."""


@dataclass(frozen=True, slots=True)
class ConfigTable:
    """A table of the configuration file."""

    path: tuple[str, ...]
    words: str
    keys: tuple[Key, ...]

    @property
    def name(self) -> str:
        """Heading of the table in the file."""
        return ".".join(self.path)


def reference() -> str:
    """Return a configuration file with every key commented out and set to its default."""
    blocks = ["\n".join(_comment(_HEADING)), *(_block(table) for table in tables(Config))]
    return "\n\n".join(blocks) + "\n"


def tables(model: type[BaseModel], path: tuple[str, ...] = ()) -> Iterator[ConfigTable]:
    """Yield every table that has keys, in the order of the model."""
    keys = tuple(_keys(model))
    if keys and path:
        yield ConfigTable(path, inspect.getdoc(model) or "", keys)
    for name, about in model.model_fields.items():
        section: Any = about.annotation
        if _is_section(section):
            yield from tables(section, (*path, name))


def _keys(model: type[BaseModel]) -> Iterator[Key]:
    words = _words(model)
    for name, about in model.model_fields.items():
        if not _is_section(about.annotation):
            yield _key(name, about, words.get(name, ""))


def _key(name: str, about: FieldInfo, words: str) -> Key:
    row = _row_of(about.annotation)
    if row is not None:
        return Key(name, words, "[]", is_default=True, row=tuple(_keys(row)))
    choices = [str(choice) for choice in _choices(about.annotation)]
    if choices and not all(choice in words for choice in choices):
        words = f"{words} One of: {', '.join(choices)}.".strip()
    if about.default is not None and about.default is not PydanticUndefined:
        return Key(name, words, _value(about.default, duration=is_duration(about)), is_default=True)
    return Key(name, words, _value((about.examples or [""])[0]), is_default=False)


def _block(table: ConfigTable) -> str:
    lines = [line for key in table.keys for line in _lines(key, table.name)]
    return "\n".join([*_comment(table.words), f"[{table.name}]", *lines])


def _lines(key: Key, table: str) -> list[str]:
    if not key.row:
        return [*_comment(key.words), f"{'#' if key.is_default else '# '}{_assignment(key)}"]
    lines = [*_comment(key.words), f"# [[{table}.{key.name}]]"]
    for each in key.row:
        lines += [f"#   {line}" for line in (*_comment(each.words), _assignment(each))]
    return lines


def _assignment(key: Key) -> str:
    return f"{key.name} = {key.value}"


def _value(value: object, *, duration: bool = False) -> str:
    if isinstance(value, Enum):
        return _value(value.value)
    if isinstance(value, list | tuple | set | frozenset):
        return f"[{', '.join(_value(each, duration=duration) for each in value)}]"
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{key} = {_value(each)}' for key, each in value.items())} }}" if value else "{}"
    if duration and isinstance(value, int) and value >= _HOUR:
        return _spelled(value)
    return json.dumps(value, ensure_ascii=False)


def _spelled(seconds: int) -> str:
    for unit, letter in ((_DAY, "d"), (_HOUR, "h")):
        if seconds % unit == 0:
            return f'"{seconds // unit}{letter}"'
    return str(seconds)


def _comment(words: str) -> list[str]:
    return textwrap.wrap(words, _WIDTH, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)


@cache
def _words(model: type[BaseModel]) -> Mapping[str, str]:
    """Return the docstring below each key in the model's source."""
    body = ast.parse(textwrap.dedent(inspect.getsource(model))).body[0]
    assert isinstance(body, ast.ClassDef)
    found = {}
    for line, below in zip(body.body, body.body[1:], strict=False):
        match line, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = " ".join(text.split())
    inherited = [_words(base) for base in model.__bases__ if issubclass(base, BaseModel) and base.model_fields]
    return {name: words for each in (*inherited, found) for name, words in each.items()}


def _is_section(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _row_of(annotation: Any) -> type[BaseModel] | None:
    """Return the model of the elements in a list of tables."""
    rows = [each for each in get_args(annotation) if _is_section(each)]
    return rows[0] if get_origin(annotation) in (tuple, list) and rows else None


def _choices(annotation: Any) -> tuple[object, ...]:
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return tuple(each.value for each in annotation)
    return get_args(annotation) if get_origin(annotation) is Literal else ()
