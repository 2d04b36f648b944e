"""Display of a configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel

from mirage.domain.masking import without_secrets

if TYPE_CHECKING:
    from collections.abc import Iterator


def settings(config: BaseModel, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    """Yield every key with its value, sections flattened, in the order of the model."""
    for name in type(config).model_fields:
        value = getattr(config, name)
        if isinstance(value, BaseModel):
            yield from settings(value, (*above, name))
        else:
            yield (*above, name), value


def masked(value: object) -> object:
    """Return the value with passwords in URLs hidden."""
    return without_secrets(value) if isinstance(value, str) else value
