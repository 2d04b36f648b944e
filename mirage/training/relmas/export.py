"""The actor as ONNX."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from mirage.allocation.inference.kernel.seeing import PAIR, PIECE, STATE
from mirage.training.export import exported

if TYPE_CHECKING:
    from mirage.training.relmas.networks import Actor

AXES = {
    "piece": {1: "pieces"},
    "pair": {1: "pieces", 2: "kinds"},
    "state": {},
    "mask": {1: "pieces"},
    "scores": {1: "pieces", 2: "columns"},
}


def graph_of(actor: Actor) -> bytes:
    """The network, for any number of segments and kinds. Raises ``RuntimeError`` where the export differs."""
    rng = torch.Generator().manual_seed(0)
    inputs = {
        "piece": torch.randn((1, 7, len(PIECE)), generator=rng),
        "pair": torch.randn((1, 7, 5, len(PAIR)), generator=rng),
        "state": torch.randn((1, len(STATE)), generator=rng),
        "mask": torch.ones(1, 7),
    }
    return exported(actor, inputs, ("scores",), AXES)
