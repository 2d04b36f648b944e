"""What arguments of several commands name: traces and instants."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from mirage.domain.errors import ConfigError

if TYPE_CHECKING:
    from mirage.domain.jobtable import JobTable

GENERATED = "generated:"
"""Begins the name of a trace that is drawn instead of read."""


def load_trace(name: str) -> JobTable:
    """The job table of a file, or of ``generated:PRESET[:SEED]``. Raises ``TraceError`` or ``ConfigError``."""
    if not name.startswith(GENERATED):
        from mirage.trace.readers import read_trace  # noqa: PLC0415

        return replace(read_trace(Path(name)).table, source=Path(name).name)
    from mirage.trace.generator import generate  # noqa: PLC0415

    preset, _, seed = name.removeprefix(GENERATED).partition(":")
    if seed and not seed.isdigit():
        raise ConfigError(name, f"the seed must be a whole number, not {seed!r}")
    return replace(generate(preset, int(seed or 0)), source=name)


def parse_instant(text: str, option: str) -> int:
    """Epoch seconds of a date, a date and time (UTC unless it says otherwise), or of epoch seconds.

    Raises ``ConfigError`` naming ``option``.
    """
    if text.isdigit():
        return int(text)
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        problem = f"{text!r} is neither a date such as 2023-02-01 or 2023-02-01T12:00 nor epoch seconds"
        raise ConfigError(option, problem) from None
    return int((instant if instant.tzinfo else instant.replace(tzinfo=UTC)).timestamp())
