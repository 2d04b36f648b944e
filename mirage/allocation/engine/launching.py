"""Build the launch description of one attempt."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mirage.allocation.engine.discovery import visible
from mirage.allocation.engine.journal import key
from mirage.allocation.engine.plan import Ranks
from mirage.allocation.engine.progress import VARIABLE, report_path
from mirage.allocation.engine.steps import Launch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mirage.allocation.engine.journal import StateFolder
    from mirage.allocation.engine.plan import TaskSpec


def launch_of(
    spec: TaskSpec, attempt: int, kind: str, parts: Mapping[str, Sequence[int]], folder: StateFolder
) -> Launch:
    """``kind``: kind of its devices, "" without any; ``parts``: their indices on each of its nodes."""
    per_device = spec.ranks is Ranks.DEVICE and spec.devices > 0
    own = {
        "MIRAGE_TASK": spec.name,
        "MIRAGE_ATTEMPT": str(attempt),
        "MIRAGE_STEP": str(folder.step(spec.name, attempt)),
        "MIRAGE_NODES": ",".join(parts),
        "MIRAGE_CHECKPOINT": spec.checkpoint.signal if spec.checkpoint else "",
        VARIABLE: str(report_path(folder, spec.name, attempt)),
    }
    return Launch(
        key=key(spec.name, attempt),
        path=folder.step(spec.name, attempt),
        command=spec.command,
        ranks={node: len(devices) if per_device else 1 for node, devices in parts.items()},
        visible={node: visible(kind, devices) for node, devices in parts.items()},
        environment={**spec.environment, **own},
        directory=spec.directory,
        output=Path(spec.output) if spec.output else folder.logs / f"{spec.name}.log",
    )
