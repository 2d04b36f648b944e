"""The random-walk Gaussian process with gradients, and the densities of the agents' actions.

The paper prints log pi = -1/2 [(a - mu)^2 + N log 2 pi] - log |Sigma|: without Sigma^-1 in the quadratic term and
with log |Sigma| instead of its half. That is no density of a normal distribution (it does not integrate to 1, and
its gradient drives Sigma to 0); ours are the true ones.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mirage.allocation.ddl.das.kernel import BEYOND, STEPS

LOG_2PI = math.log(2 * math.pi)


def walk(labels: Tensor, likeness: Tensor, switch: Tensor, decay: Tensor, steps: int = STEPS) -> Tensor:
    """As ``mirage.allocation.ddl.das.kernel.walk``: labels (B, J, N, C), likeness (B, J, N, d), switch (N,)."""
    near = switch[:, None] == switch[None, :]
    closeness = BEYOND + (1 - BEYOND) * near.to(labels.dtype)
    step = closeness * (likeness @ likeness.transpose(-1, -2))
    step = step / step.sum(dim=-1, keepdim=True)
    found = [labels]
    for _ in range(steps - 1):
        found.append(torch.sqrt(decay) * (step @ found[-1]))
    return torch.cat(found, dim=-1)


def posterior(vectors: Tensor, seen: Tensor, values: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Means (B, J, N) and covariances (B, J, N, N) at vectors (B, J, N, Q), given values (B, H) at (B, H, Q).

    Rows of zeros in ``seen`` with values of zero have no effect: so histories of unequal length are padded.
    """
    eye = torch.eye(seen.shape[-1], dtype=seen.dtype)
    system = seen.transpose(-1, -2) @ seen + noise * eye
    weights = torch.linalg.solve(system, seen.transpose(-1, -2) @ values.unsqueeze(-1))
    mean = (vectors @ weights.unsqueeze(1)).squeeze(-1)
    inverse = torch.linalg.inv(system).unsqueeze(1)
    covariance = noise * (vectors @ inverse @ vectors.transpose(-1, -2))
    return mean, covariance


def log_normal(values: Tensor, mean: Tensor, spread: Tensor) -> Tensor:
    """Log-density of independent normal numbers, elementwise; ``spread`` is the standard deviation."""
    return -0.5 * (((values - mean) / spread) ** 2 + LOG_2PI) - torch.log(spread)


def log_multinormal(values: Tensor, mean: Tensor, factor: Tensor) -> Tensor:
    """Log-density of vectors (..., N): -1/2 [(a - mu)^T Sigma^-1 (a - mu) + N log 2 pi + log |Sigma|].

    ``factor`` (..., N, N) is Sigma's lower Cholesky factor.
    """
    off = torch.linalg.solve_triangular(factor, (values - mean).unsqueeze(-1), upper=False).squeeze(-1)
    half = torch.log(torch.diagonal(factor, dim1=-2, dim2=-1)).sum(dim=-1)
    density: Tensor = -0.5 * ((off**2).sum(dim=-1) + values.shape[-1] * LOG_2PI) - half
    return density


def multinormal_entropy(factor: Tensor) -> Tensor:
    """Entropy (...) of a normal distribution over vectors by its lower Cholesky factor."""
    half = torch.log(torch.diagonal(factor, dim1=-2, dim2=-1)).sum(dim=-1)
    return 0.5 * factor.shape[-1] * (1 + LOG_2PI) + half


def normal_entropy(spread: Tensor) -> Tensor:
    """Entropy of one normal number."""
    return 0.5 * (1 + LOG_2PI) + torch.log(spread)
