"""When to submit, as Gymnasium environments on a counterfactual table: a step is a look-up, a return is exact.

Action 0 holds, action 1 submits; holding until the predecessor's end submits there. The reward is the objective
in hours, given once at the end; the discount is 1. Observations are the table's features.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

if TYPE_CHECKING:
    from mirage.domain.objective import Weights
    from mirage.features.table import Table

Float32 = NDArray[np.float32]


class HandoverEnv(gymnasium.Env[Float32, np.int64]):
    """One hand-over after another, drawn at random; ``reset(options={"episode": k})`` names one."""

    def __init__(self, table: Table, weights: Weights | None = None) -> None:
        raise NotImplementedError


class HandoverVectorEnv(VectorEnv[Float32, NDArray[np.int64], NDArray[Any]]):
    """``num_envs`` hand-overs at once, in numpy; a finished one is replaced in the same step (SAME_STEP)."""

    def __init__(self, table: Table, num_envs: int, weights: Weights | None = None) -> None:
        raise NotImplementedError
