"""Slurm's own settings as ``scontrol show config`` prints them."""

from __future__ import annotations

ENFORCED = frozenset({"limits", "safe", "all"})
"""man slurm.conf, AccountingStorageEnforce: the words by which limits hold."""
FILE = "slurm_conf"
"""The setting that names the file which Slurm has read."""


def read_settings(text: str) -> dict[str, str]:
    """Every setting by its name in lower case; of one that is printed twice the first counts."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if equals and name.strip():
            found.setdefault(name.strip().lower(), value.strip())
    return found
