"""Whether a trained model had better not be put in use, by what was measured of it in shadow."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mirage.artifact import MANIFEST
from mirage.predictors.artifacts.manifest import read_manifest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirage.predictors.artifacts.manifest import Manifest
    from mirage.replay.shadows import Measured

FEWEST = 5
"""Handovers below which a comparison says nothing."""


def objection_to(manifest: Manifest, measured: Iterable[Measured]) -> str:
    """Why this model had better not be put in use; empty: nothing speaks against it."""
    for each in measured:
        name, _, folder = each.predictor.partition(":")
        if name != manifest.plugin or not (Path(folder) / MANIFEST).is_file():
            continue
        if read_manifest(Path(folder)) == manifest and each.handovers >= FEWEST and each.gain < 0:
            where = f" in partition {each.partition}" if each.partition else ""
            more = f"{-each.gain:.2f} h more per handover{where} than the active predictor"
            return f"in shadow it would have cost {more} ({each.handovers} handovers, +-{each.gain_error:.2f} h)"
    return ""
