"""Output of Slurm's administrative commands, as mappings of text."""

from __future__ import annotations

import re

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
