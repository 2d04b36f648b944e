"""Every key of the configuration as a file: its default, and what it is for, from the model's own words."""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from mirage.config.model import Config, is_duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pydantic.fields import FieldInfo

_WIDTH = 115
_DAY, _HOUR = 86_400, 3_600

_HEADING = """\
Mirage: every key with its default, as "mirage config reference" writes it. A key that is left out, or commented
out, holds its default. Durations are seconds, or texts such as "90s", "10m", "30d". Files of conf.d/ beside this
one override it, and variables such as MIRAGE_LOOP__INTERVAL=30s override both. "mirage config check FILE" checks a
file, "mirage config show" says what holds and why."""


def reference() -> str:
    """A configuration file in which every key is commented out; without the comment signs nothing changes."""
    blocks = ["\n".join(_comment(_HEADING)), *_sections(Config, ())]
    return "\n\n".join(blocks) + "\n"


def _sections(model: type[BaseModel], path: tuple[str, ...]) -> Iterator[str]:
    """One block a table, that of ``model`` first."""
    words = _words(model)
    keys = {name: about for name, about in model.model_fields.items() if not _is_section(about.annotation)}
    lines = [line for name, about in keys.items() for line in _key(name, about, words.get(name, ""), path)]
    if lines and path:
        yield "\n".join([*_comment(inspect.getdoc(model) or ""), f"[{'.'.join(path)}]", *lines])
    for name, about in model.model_fields.items():
        section: Any = about.annotation
        if name not in keys:
            yield from _sections(section, (*path, name))


def _key(name: str, about: FieldInfo, words: str, path: tuple[str, ...]) -> list[str]:
    row = _row_of(about.annotation)
    if row is not None:
        return [*_comment(words), *_table_row(row, (*path, name))]
    choices = [str(choice) for choice in _choices(about.annotation)]
    if choices and not all(choice in words for choice in choices):
        words = f"{words} One of: {', '.join(choices)}.".strip()
    return [*_comment(words), _assignment(name, about)]


def _assignment(name: str, about: FieldInfo) -> str:
    """The default as it would be written; where there is none an example, set off, not to be taken for one."""
    if about.default is not None and about.default is not PydanticUndefined:
        return f"#{name} = {_value(about.default, duration=is_duration(about))}"
    example = (about.examples or [""])[0]
    return f"# {name} = {_value(example)}"


def _table_row(row: type[BaseModel], path: tuple[str, ...]) -> list[str]:
    """One row of a list of tables, all of it an example: there is none by default."""
    lines, words = [f"# [[{'.'.join(path)}]]"], _words(row)
    for name, about in row.model_fields.items():
        lines += [f"#   {line}" for line in _comment(words.get(name, ""))]
        lines.append("#   " + _assignment(name, about).removeprefix("#").strip())
    return lines


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


def _words(model: type[BaseModel]) -> Mapping[str, str]:
    """The text below each key of the model's source: what it is for."""
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
    """The table that a list of tables is made of."""
    rows = [each for each in get_args(annotation) if _is_section(each)]
    return rows[0] if get_origin(annotation) in (tuple, list) and rows else None


def _choices(annotation: Any) -> tuple[object, ...]:
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return tuple(each.value for each in annotation)
    return get_args(annotation) if get_origin(annotation) is Literal else ()
