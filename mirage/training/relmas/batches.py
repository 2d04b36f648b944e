"""Observations of different lengths as tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from mirage.allocation.inference.kernel.seeing import PAIR, PIECE, STATE
from mirage.training.relmas.networks import Seen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from mirage.allocation.inference.relmas.sight import Sight


def seen_of(sights: Sequence[Sight]) -> Seen:
    """Padded at the end to the longest; at least one segment long."""
    count, kinds = len(sights), sights[0].pair.shape[1]
    longest = max(1, *(len(sight.order) for sight in sights)) if count > 1 else max(1, len(sights[0].order))
    piece = np.zeros((count, longest, len(PIECE)), np.float32)
    pair = np.zeros((count, longest, kinds, len(PAIR)), np.float32)
    state = np.zeros((count, len(STATE)), np.float32)
    mask = np.zeros((count, longest), np.float32)
    for row, sight in enumerate(sights):
        length = len(sight.order)
        piece[row, :length], pair[row, :length] = sight.piece, sight.pair
        state[row], mask[row, :length] = sight.state, 1.0
    return Seen(*(torch.from_numpy(part) for part in (piece, pair, state, mask)))


def actions_of(actions: Sequence[np.ndarray[tuple[int, ...], np.dtype[np.float32]]], longest: int) -> Tensor:
    """(B, longest, KINDS + K), padded at the end."""
    padded = np.zeros((len(actions), longest, actions[0].shape[1]), np.float32)
    for row, action in enumerate(actions):
        padded[row, : len(action)] = action
    return torch.from_numpy(padded)
