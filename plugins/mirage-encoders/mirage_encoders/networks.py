"""Networks that turn a feature vector into a few numbers: a perceptron, a transformer, a mixture of experts.

All take raw vectors of a feature schema, shape (batch, steps * columns + statics), and standardise them
themselves, by the means and spreads of a table, so that what is exported needs no preparation. For
stable-baselines3 an encoder is the first part of every network of a policy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import Tensor, nn

from mirage.plugin import ConfigError

if TYPE_CHECKING:
    from typing import Any

    from gymnasium.spaces import Box

    from mirage.plugin import Table

Float32 = NDArray[np.float32]


def moments(table: Table) -> tuple[Float32, Float32]:
    """Mean and spread of each feature, shapes (F,); a feature that never changes has the spread 1.

    Raises ``ValueError`` naming the feature where a number is not finite.
    """
    flat = table.features.reshape(-1, table.schema.size)
    mean, spread = flat.mean(axis=0, dtype=np.float64), flat.std(axis=0, dtype=np.float64)
    if not np.isfinite(spread).all():
        bad = table.schema.names[int(np.flatnonzero(~np.isfinite(spread))[0])]
        raise ValueError(f"the table's feature {bad} is not finite everywhere: build the table again")
    # Rounding leaves a constant feature a spread of its last digits.
    constant = spread <= 1e-6 * np.maximum(np.abs(mean), 1)
    return mean.astype(np.float32), np.where(constant, 1, spread).astype(np.float32)


KINDS = ("mlp", "transformer", "moe")

CLIP = 5.0
"""Standard deviations: values farther out are cut to it, so that no rare value dominates the others."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Layout of a vector: ``steps`` rows of ``columns`` numbers, oldest first, then ``statics`` numbers."""

    steps: int
    columns: int
    statics: int

    @property
    def size(self) -> int:
        """Length of the vector."""
        return self.steps * self.columns + self.statics


@dataclass(frozen=True, slots=True)
class EncoderOptions:
    """Kind and size of a network."""

    kind: str = "mlp"
    """One of ``KINDS``."""
    width: int = 64
    """Number of outputs."""
    experts: int = 4
    """For ``moe``."""
    expert: str = "mlp"
    """For ``moe``: kind of each expert, ``mlp`` or ``transformer``."""
    heads: int = 4
    """For ``transformer``; divides ``width``."""
    layers: int = 1
    """For ``transformer``."""

    def check(self) -> None:
        """Raise ``ConfigError`` for a network that does not exist."""
        if self.kind not in KINDS:
            raise ConfigError("encoder", f"{self.kind!r} is none of {', '.join(KINDS)}")
        if self.expert not in ("mlp", "transformer"):
            raise ConfigError("encoder", f"an expert is mlp or transformer, not {self.expert!r}")
        if self.width % self.heads:
            raise ConfigError("encoder", f"{self.heads} heads do not divide a width of {self.width}")


class Standardise(nn.Module):
    """Each feature less its mean, by its spread over the training data, within ``CLIP``."""

    def __init__(self, mean: NDArray[np.float32], spread: NDArray[np.float32]) -> None:
        super().__init__()
        self.mean = nn.Buffer(torch.as_tensor(mean))
        self.spread = nn.Buffer(torch.as_tensor(spread))

    def forward(self, features: Tensor) -> Tensor:
        """Shape as given."""
        scaled: Tensor = (features - self.mean) / self.spread
        return scaled.clamp(-CLIP, CLIP)


class Perceptron(nn.Module):
    """Two layers over the whole vector."""

    def __init__(self, layout: Layout, options: EncoderOptions) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(layout.size, options.width),
            nn.LayerNorm(options.width),
            nn.ReLU(),
            nn.Linear(options.width, options.width),
            nn.ReLU(),
        )

    def forward(self, features: Tensor) -> Tensor:
        """Shape (batch, width)."""
        encoded: Tensor = self.layers(features)
        return encoded


class TransformerBlock(nn.Module):
    """Multi-head self-attention and a feed-forward layer, each normalised first (Xiong et al., ICML 2020).

    Written out, since the fused layer of torch has no counterpart in ONNX.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.depth = heads, width // heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.asked = nn.Linear(width, 3 * width)
        self.joined = nn.Linear(width, width)
        self.forwarded = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))

    def forward(self, tokens: Tensor) -> Tensor:
        """Shape (batch, tokens, width), as given."""
        query, key, value = (self._split(part) for part in self.asked(self.before(tokens)).chunk(3, dim=-1))
        weights = torch.softmax(query @ key.transpose(-1, -2) / self.depth**0.5, dim=-1)
        met = (weights @ value).transpose(1, 2).flatten(2)
        tokens = tokens + self.joined(met)
        again: Tensor = tokens + self.forwarded(self.between(tokens))
        return again

    def _split(self, tokens: Tensor) -> Tensor:
        return tokens.reshape(*tokens.shape[:-1], self.heads, self.depth).transpose(1, 2)


class Transformer(nn.Module):
    """Attention over the steps and one more token, built from the statics; that token is the output."""

    def __init__(self, layout: Layout, options: EncoderOptions) -> None:
        super().__init__()
        self.layout = layout
        self.step = nn.Linear(layout.columns, options.width)
        # Without statics the further token is learned alone.
        self.present = nn.Linear(max(layout.statics, 1), options.width)
        self.place = nn.Parameter(0.02 * torch.randn(layout.steps + 1, options.width))
        self.blocks = nn.Sequential(
            *(TransformerBlock(options.width, options.heads) for _ in range(options.layers))
        )
        self.last = nn.LayerNorm(options.width)

    def forward(self, features: Tensor) -> Tensor:
        """Shape (batch, width)."""
        split = self.layout.steps * self.layout.columns
        steps = features[:, :split].reshape(-1, self.layout.steps, self.layout.columns)
        statics = features[:, split:] if self.layout.statics else torch.zeros_like(features[:, :1])
        tokens = torch.cat([self.step(steps), self.present(statics).unsqueeze(1)], dim=1) + self.place
        encoded: Tensor = self.last(self.blocks(tokens)[:, -1])
        return torch.relu(encoded)


class Mixture(nn.Module):
    """Experts over the whole vector, and a gate that weighs them by softmax (Jacobs et al., 1991)."""

    def __init__(self, layout: Layout, options: EncoderOptions) -> None:
        super().__init__()
        self.gate = nn.Linear(layout.size, options.experts)
        self.experts = nn.ModuleList(_network(options.expert, layout, options) for _ in range(options.experts))

    def weights(self, features: Tensor) -> Tensor:
        """Shape (batch, experts), each row adding up to 1."""
        return torch.softmax(self.gate(features), dim=-1)

    def forward(self, features: Tensor) -> Tensor:
        """Shape (batch, width)."""
        said = torch.stack([expert(features) for expert in self.experts], dim=1)
        return (self.weights(features).unsqueeze(-1) * said).sum(dim=1)


def encoder(
    layout: Layout, options: EncoderOptions, mean: NDArray[np.float32], spread: NDArray[np.float32]
) -> nn.Sequential:
    """A network from raw vectors to ``options.width`` numbers. Raises ``ConfigError`` for unknown kinds."""
    options.check()
    return nn.Sequential(Standardise(mean, spread), _network(options.kind, layout, options))


def _network(kind: str, layout: Layout, options: EncoderOptions) -> nn.Module:
    match kind:
        case "mlp":
            return Perceptron(layout, options)
        case "transformer":
            return Transformer(layout, options)
        case _:
            return Mixture(layout, options)


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
