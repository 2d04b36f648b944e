"""Frozen dataclasses as JSON and back: strict, because the content is executed as a user."""

from __future__ import annotations

import json
import re
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin, get_type_hints

from mirage.documenttext import MOST_PARTS, parse_json
from mirage.domain.errors import BadSpelling, MirageError
from mirage.domain.job import JobId, job_id_of

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_HALVES = re.compile("[\ud800-\udc7f\udd00-\udfff]")
"""Not those that stand for bytes that are no UTF-8."""
LARGEST_NUMBER = 1 << 62


class BadOrder(MirageError):
    """An order or an answer cannot be read; the text names the field."""


def dump(value: object) -> str:
    """A dataclass as one line of ASCII, whatever bytes its strings stand for."""
    return json.dumps(_plain(value), separators=(",", ":"))


def load(kind: type[T], text: str | bytes, most: int = MOST_PARTS) -> T:
    """The dataclass that ``dump`` wrote. Raises ``BadOrder`` for anything else, naming the field.

    ``most``: brackets, commas and strings.
    """
    try:
        data = parse_json(text, most=most)
    except ValueError as error:
        raise BadOrder(f"not JSON: {error}") from None
    value: T = _read(kind, data, kind.__name__)
    return value


def _plain(value: object) -> object:
    if isinstance(value, Enum):
        return value.name
    if is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


def _read(kind: Any, data: object, where: str) -> Any:
    """``data`` as a value of ``kind``: a dataclass, enum, tuple, optional, job ID or plain value."""
    if kind is JobId:
        return _read_job_id(data, where)
    kind = getattr(kind, "__supertype__", kind)
    if get_origin(kind) is UnionType:
        (kind,) = [member for member in get_args(kind) if member is not NoneType]
        return None if data is None else _read(kind, data, where)
    if get_origin(kind) is tuple:
        return _read_tuple(get_args(kind), data, where)
    if is_dataclass(kind):
        return _read_fields(kind, data, where)
    if issubclass(kind, Enum):
        return _read_member(kind, data, where)
    return _read_scalar(kind, data, where)


def _read_fields(kind: Any, data: object, where: str) -> Any:
    wanted = _hints(kind)
    if not isinstance(data, dict):
        raise BadOrder(f"{where}: expected an object with {', '.join(wanted)}")
    for name in data.keys() ^ wanted.keys():
        raise BadOrder(f"{where}.{name}: {'no such field' if name in data else 'missing'}")
    return kind(**{name: _read(hint, data[name], f"{where}.{name}") for name, hint in wanted.items()})


def _read_tuple(kinds: tuple[Any, ...], data: object, where: str) -> tuple[Any, ...]:
    if not isinstance(data, list):
        raise BadOrder(f"{where}: expected a list")
    if kinds[-1] is Ellipsis:
        kinds = kinds[:1] * len(data)
    if len(kinds) != len(data):
        raise BadOrder(f"{where}: expected {len(kinds)} items, found {len(data)}")
    return tuple(
        _read(kind, item, f"{where}[{at}]") for at, (kind, item) in enumerate(zip(kinds, data, strict=True))
    )


def _read_member(kind: type[Enum], data: object, where: str) -> Enum:
    if not isinstance(data, str) or data not in kind.__members__:
        raise BadOrder(f"{where}: expected one of {', '.join(kind.__members__)}")
    return kind[data]


def _read_scalar(kind: type, data: object, where: str) -> object:
    if type(data) is not kind:
        raise BadOrder(f"{where}: expected {kind.__name__}, found {type(data).__name__}")
    if isinstance(data, str) and "\0" in data:
        raise BadOrder(f"{where}: holds a NUL, which no command and no environment can")
    if isinstance(data, str) and _HALVES.search(data):
        raise BadOrder(f"{where}: holds an unpaired surrogate, which cannot be encoded")
    if isinstance(data, int) and abs(data) > LARGEST_NUMBER:
        raise BadOrder(f"{where}: {str(data)[:20]}... is out of range")
    return data


def _read_job_id(data: object, where: str) -> JobId:
    """A job ID, or 0 where there is no job."""
    number = _read_scalar(int, data, where)
    assert isinstance(number, int)
    try:
        return job_id_of(number) if number else JobId(0)
    except BadSpelling as error:
        raise BadOrder(f"{where}: {error}") from None


_hints: Callable[[Any], dict[str, Any]] = cache(get_type_hints)
