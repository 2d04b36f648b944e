"""Every target, from the modules next to this one whose names begin with ``fuzz_``."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fuzzing import Target

TARGETS: tuple[Target, ...] = tuple(
    target
    for path in sorted(Path(__file__).parent.glob("fuzz_*.py"))
    for target in import_module(path.stem).TARGETS
)
