"""Densities against scipy, the process with gradients against the one without."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch")

from mirage.allocation.ddl.das import kernel  # noqa: E402
from mirage.training.das import agents  # noqa: E402

SWITCH = np.array([0, 0, 1, 1], dtype=np.int32)


def tensors(seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    shapes = ((2, 3, 4, 2), (2, 3, 4, 3), (2, 5, 6), (2, 5))
    labels, likeness, seen, values = (torch.tensor(rng.uniform(0.1, 1.5, shape)) for shape in shapes)
    return labels, likeness, seen, values


def test_walks_are_those_of_use() -> None:
    labels, likeness, _, _ = tensors(0)
    decay = torch.tensor(0.5, dtype=torch.float64)
    found = agents.walk(labels, likeness, torch.tensor(SWITCH), decay)
    for b in range(2):
        wanted = kernel.walk(labels[b].numpy(), likeness[b].numpy(), SWITCH, 0.5)
        np.testing.assert_allclose(found[b].numpy(), wanted, rtol=1e-9)


def test_posteriors_are_those_of_use_and_padding_tells_nothing() -> None:
    rng = np.random.default_rng(4)
    vectors, seen, values = rng.normal(size=(2, 3, 4, 6)), rng.normal(size=(2, 5, 6)), rng.normal(size=(2, 5))
    seen[1, 3:], values[1, 3:] = 0, 0
    noise = torch.tensor(0.2, dtype=torch.float64)
    mean, covariance = agents.posterior(torch.tensor(vectors), torch.tensor(seen), torch.tensor(values), noise)
    for b, count in enumerate((5, 3)):
        wanted = kernel.posterior_mean(vectors[b], seen[b, :count], values[b, :count], 0.2)
        np.testing.assert_allclose(mean[b].numpy(), wanted, atol=1e-9)
        spread = kernel.posterior_covariance(vectors[b], seen[b, :count], 0.2)
        np.testing.assert_allclose(covariance[b].numpy(), spread, atol=1e-9)


def test_the_density_is_the_normal_distributions() -> None:
    stats = pytest.importorskip("scipy.stats", reason="scipy is what it is compared with")
    rng = np.random.default_rng(2)
    root = rng.normal(size=(4, 4))
    sigma = root @ root.T + 0.1 * np.eye(4)
    at, mean = rng.normal(size=4), rng.normal(size=4)
    factor = torch.linalg.cholesky(torch.tensor(sigma))
    reference = stats.multivariate_normal(mean, sigma)
    found = agents.log_multinormal(torch.tensor(at), torch.tensor(mean), factor)
    assert float(found) == pytest.approx(reference.logpdf(at))
    assert float(agents.multinormal_entropy(factor)) == pytest.approx(reference.entropy())
    one = agents.log_normal(torch.tensor(0.3), torch.tensor(1.0), torch.tensor(0.7))
    assert float(one) == pytest.approx(stats.norm(1.0, 0.7).logpdf(0.3), rel=1e-6)
    assert float(agents.normal_entropy(torch.tensor(0.7))) == pytest.approx(stats.norm(0, 0.7).entropy(), rel=1e-6)


def test_gradients_run_through_mean_and_covariance() -> None:
    labels, likeness, seen, values = (part.requires_grad_() for part in tensors(1))
    decay, noise = (torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in (0.5, 0.3))

    def density(labels, likeness, seen, values, decay, noise):
        vectors = agents.walk(labels, likeness, torch.tensor(SWITCH), decay, steps=3)
        mean, covariance = agents.posterior(vectors, seen, values, noise)
        factor = torch.linalg.cholesky(covariance + 0.1 * torch.eye(4, dtype=torch.float64))
        return agents.log_multinormal(torch.ones_like(mean), mean, factor).sum()

    assert torch.autograd.gradcheck(density, (labels, likeness, seen, values, decay, noise))
