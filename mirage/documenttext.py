"""JSON and TOML that comes from outside, as plain values: whatever is wrong with a text is a ``ValueError``.

The standard readers raise ``RecursionError`` for what is nested deeply, and tomllib an error of another kind for a
number of too many digits.
"""

from __future__ import annotations

import json
import tomllib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    Pairs = Callable[[list[tuple[str, Any]]], Any]

_TOO_DEEP = "it is nested too deeply"


def parse_json(text: str | bytes, pairs: Pairs | None = None) -> Any:
    """The value of a JSON document; ``pairs`` makes each object. Raises ``ValueError``."""
    try:
        return json.loads(text, object_pairs_hook=pairs)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None


def parse_toml(text: str | bytes) -> dict[str, Any]:
    """The tables of a TOML document; bytes are UTF-8. Raises ``ValueError``."""
    try:
        return tomllib.loads(text if isinstance(text, str) else text.decode())
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
