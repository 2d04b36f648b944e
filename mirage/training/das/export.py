"""The agents as ONNX."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from mirage.allocation.ddl.das.artifact import ORDERING, PLACEMENT, Process
from mirage.allocation.ddl.das.loops.seeing import NODE, PAIR
from mirage.allocation.ddl.das.sight import TASK
from mirage.training.export import exported

if TYPE_CHECKING:
    from mirage.training.das.agents import Agents


def graphs_of(agents: Agents) -> dict[str, bytes]:
    """Both agents' networks by the names of their files. Raises ``RuntimeError`` where an export differs."""
    rng = torch.Generator().manual_seed(0)
    base, task, node, pair = (
        torch.randn(shape, generator=rng)
        for shape in ((1, 7, 4), (1, 7, len(TASK)), (1, 5, len(NODE)), (1, 7, 5, len(PAIR)))
    )
    ordering = {"base": base, "task": task, "node": node, "mask": torch.ones(1, 7)}
    placement = {"task": task, "node": node, "pair": pair}
    return {
        ORDERING: exported(agents.ordering, ordering, ("scores",), AXES),
        PLACEMENT: exported(agents.placement, placement, ("mean", "labels", "likeness", "patience"), AXES),
    }


def process_of(agents: Agents) -> Process:
    """The process's numbers."""
    placement = agents.placement
    with torch.no_grad():
        decay, noise = torch.sigmoid(placement.decay).item(), torch.exp(placement.noise).item()
    return Process(agents.shape.walks, decay, noise)


AXES = {
    "base": {1: "tasks"},
    "task": {1: "tasks"},
    "mask": {1: "tasks"},
    "node": {1: "nodes"},
    "pair": {1: "tasks", 2: "nodes"},
    "scores": {1: "tasks"},
    "mean": {1: "tasks", 2: "nodes"},
    "labels": {1: "tasks", 2: "nodes"},
    "likeness": {1: "tasks", 2: "nodes"},
    "patience": {1: "tasks"},
}
