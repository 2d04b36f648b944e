"""Measurements that a user can repeat: ``mirage bench``. Each gives tables of labels and values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BenchSection:
    """A title, and labels with values."""

    title: str
    rows: tuple[tuple[str, str], ...]
