"""Which release of Slurm it is, from what its commands and settings say."""

from __future__ import annotations

import re

from mirage.domain.errors import BadSpelling

_VERSION = re.compile(r"(?<![0-9])([0-9]{1,4})\.([0-9]{1,4})(?:\.([0-9]{1,4}))?")


def read_version(text: str) -> tuple[int, int]:
    """Year and month of a Slurm release such as ``slurm-wlm 22.05.8``. Raises ``BadSpelling``."""
    match = _VERSION.search(text)
    if match is None:
        raise BadSpelling(text, "expected a version such as slurm 22.05.8")
    return int(match[1]), int(match[2])
