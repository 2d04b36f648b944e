"""Generic resources in one word and one number. Without packages, as all that helpers of users import."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

NO_GRES = "none"
"""Slurm's own word for no generic resources."""


def gres_class(amounts: Iterable[tuple[str, int]], nodes: int = 1) -> tuple[str, int]:
    """Kinds such as ``gpu:a100`` or ``gpu,nvme`` (GPUs first), and how many of the first each node has.

    ``amounts`` are totals over ``nodes``; shares are rounded up. Without any: ``NO_GRES`` and 0.
    """
    found = sorted((name.partition(":")[0] != "gpu", name, amount) for name, amount in amounts if amount > 0)
    if not found:
        return NO_GRES, 0
    return ",".join(dict.fromkeys(name for _, name, _ in found)), -(-found[0][2] // max(nodes, 1))
