"""Findings of the doctor, one per line; and readers of Slurm's administrative commands."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from mirage.domain.errors import BadSpelling

Row = dict[str, str]

_SETTING = re.compile(r"^(\w++)[ \t]++= ?(.*)$", re.MULTILINE)
_PAIR = re.compile(r"(\w+)=(\S*)")
_NUMBER = re.compile(r"\s*([0-9]{1,18})(?![0-9])")


def read_settings(text: str) -> Row:
    """``scontrol show config``; Slurm's ``(null)`` is the empty text. Raises ``BadSpelling``."""
    found = [(key, value.rstrip()) for key, value in _SETTING.findall(text)]
    settings = {key: "" if value in ("(null)", "N/A") else value for key, value in found}
    if "SLURM_VERSION" not in settings:
        raise BadSpelling(text, "expected the answer of scontrol show config")
    return settings


def read_partitions(text: str) -> list[Row]:
    """``scontrol --oneliner show partition``."""
    return [dict(_PAIR.findall(line)) for line in text.splitlines() if line.startswith("PartitionName=")]


def read_table(text: str) -> list[Row]:
    """``sacctmgr --parsable2 show ...``: a row of names, then rows."""
    names, *rows = [line.split("|") for line in text.splitlines() if line] or [[]]
    return [dict(zip(names, row, strict=False)) for row in rows]


def number(text: str, default: int) -> int:
    """The whole number at the beginning of a setting such as ``300 sec``; ``default`` where it has none."""
    match = _NUMBER.match(text)
    return int(match[1]) if match else default


def parameters(text: str) -> Row:
    """``bf_window=4320,bf_continue``: names with their values; an empty value where it is left out."""
    return {name: value for name, _, value in (part.partition("=") for part in text.split(",") if part)}


class FindingLevel(StrEnum):
    """Severity of a finding, from good to bad."""

    OK = "ok"
    WARN = "warn"
    """Chains work, but not as well as they could."""
    FAIL = "fail"
    """Chains do not work."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check, with its severity and the fix."""

    level: FindingLevel
    check: str
    """Name of the check, in a word or two."""
    found: str
    follows: str = ""
    """The effect on chains."""
    todo: str = ""
    """The fix, such as a command."""


def ok(check: str, found: str, follows: str = "") -> Finding:
    """Return a finding without a problem."""
    return Finding(FindingLevel.OK, check, found, follows)


def warn(check: str, found: str, follows: str, todo: str) -> Finding:
    """Return a finding of a degraded state."""
    return Finding(FindingLevel.WARN, check, found, follows, todo)


def fail(check: str, found: str, follows: str, todo: str) -> Finding:
    """Return a finding of a state in which chains do not work."""
    return Finding(FindingLevel.FAIL, check, found, follows, todo)
