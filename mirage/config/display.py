"""A configuration for people's eyes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pydantic import BaseModel

if TYPE_CHECKING:
    from collections.abc import Iterator

_PASSWORD = re.compile(r"(://[^:@/]*):.*@")
_PARAMETER = re.compile(r"([?&](?:password|sslpassword|token|key)=)[^&#]*", re.IGNORECASE)


def settings(config: BaseModel, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    """Every key with its value, sections flattened, in the order of the model."""
    for name in type(config).model_fields:
        value = getattr(config, name)
        if isinstance(value, BaseModel):
            yield from settings(value, (*above, name))
        else:
            yield (*above, name), value


def masked(value: object) -> object:
    """The value for people's eyes: a password within a URL is hidden."""
    if not isinstance(value, str):
        return value
    return _PARAMETER.sub(r"\1***", _PASSWORD.sub(r"\1:***@", value))
