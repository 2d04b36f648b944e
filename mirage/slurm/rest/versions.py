"""The versions of Slurm's REST interface, oldest first."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mirage.domain.errors import UnsupportedSlurm

if TYPE_CHECKING:
    from collections.abc import Iterable

OLDEST, NEWEST = 36, 46

KNOWN = tuple(range(NEWEST, OLDEST - 1, -1))
"""Newest first, as they are tried. Slurm 22.05 offers 36-38, 23.02 up to 39, 24.11 40-42, 26.05 42-45."""

_PATH = re.compile(r"/slurm/(v[0-9]{1,4}\.[0-9]{1,4}\.[0-9]{1,4})/")


def spell(version: int) -> str:
    """Format an API version as in a path: ``v0.0.38`` for 38."""
    return f"v0.0.{version}"


def offered(paths: Iterable[str]) -> tuple[str, ...]:
    """The versions in the paths of an OpenAPI document such as ``/slurm/v0.0.38/jobs``, each once, sorted."""
    found = {match[1] for path in paths if (match := _PATH.match(path))}
    return tuple(sorted(found, key=lambda text: [int(part) for part in text[1:].split(".")]))


def unsupported(where: str, found: tuple[str, ...]) -> UnsupportedSlurm:
    """The error to raise where none of ``KNOWN`` is offered."""
    known = f"{spell(OLDEST)} to {spell(NEWEST)}"
    return UnsupportedSlurm(
        f"{where} offers {', '.join(found) or 'no version of the REST API'}; Mirage knows {known}"
    )
