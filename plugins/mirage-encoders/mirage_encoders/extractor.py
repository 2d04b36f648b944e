"""An encoder for stable-baselines3: the first part of every network of a policy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stable_baselines3.common.torch_layers import BaseFeaturesExtractor

from mirage_encoders.networks import EncoderOptions, Layout, encoder
from mirage_encoders.statistics import moments

if TYPE_CHECKING:
    from typing import Any

    import numpy as np
    from gymnasium.spaces import Box
    from numpy.typing import NDArray
    from torch import Tensor

    from mirage.plugin import Table


class Encoding(BaseFeaturesExtractor):
    """``network`` encodes vectors of a feature schema."""

    def __init__(
        self,
        observation_space: Box,
        layout: Layout,
        options: EncoderOptions,
        moments: tuple[NDArray[np.float32], NDArray[np.float32]],
    ) -> None:
        super().__init__(observation_space, options.width)
        self.network = encoder(layout, options, *moments)

    def forward(self, observations: Tensor) -> Tensor:
        """Shape (batch, width)."""
        encoded: Tensor = self.network(observations)
        return encoded


def policy_arguments(table: Table, options: EncoderOptions) -> dict[str, Any]:
    """What stable-baselines3's ``policy_kwargs`` need so that a policy has such an encoder."""
    schema = table.schema
    layout = Layout(schema.steps, len(schema.sequence), len(schema.static))
    arguments = {"layout": layout, "options": options, "moments": moments(table)}
    return {"features_extractor_class": Encoding, "features_extractor_kwargs": arguments}
