"""The random-walk kernel between machines as two tasks see them, and the Gaussian process over it.

The graph has the machines as nodes. Task i walks over it by a separate transition matrix P(i); the larger
P(i)[k, l], the more similar are machines k and l for task i. On the product of two tasks' graphs the walks are
P(i) (x) P(j), and the geometric series of the walks is their resolvent:

    K = sum_r lambda^r (P(i) (x) P(j))^r = (I - lambda P(i) (x) P(j))^-1,        0 <= lambda < 1.

The paper sums all entries of K. With transition matrices whose rows add up to 1 that sum is |V| / (1 - lambda)
for any P, because every power has row sums of 1 again: such a kernel carries no information. So this one starts
and stops with weights, which the general random-walk kernel has (Vishwanathan et al., JMLR 11, 2010). A walk
starts at machines (k, l). It counts by the similarity of the machines where it stops, one seen by task i and the
other by task j: sum_c s_c(i, k') s_c(j, l'), with C labels s_c from a network. Then

    k((i, k), (j, l)) = e_(k,l)^T (I - lambda P(i) (x) P(j))^-1 sum_c s_c(i) (x) s_c(j)
                      = sum_c sum_r lambda^r (P(i)^r s_c(i))_k (P(j)^r s_c(j))_l

by (A (x) B)^r (a (x) b) = A^r a (x) B^r b. Every term is a product of a number of (i, k) with one of (j, l): the
kernel is the inner product of the vectors lambda^(r/2) (P(i)^r s_c(i))_k over r and c. So it is positive
semidefinite and distinguishes machines: r = 0 compares the labels themselves, large r the neighbourhoods. No
product graph is ever built. ``STEPS`` terms of the series leave out less than lambda^STEPS / (1 - lambda) of the
greatest |s|^2.

P(i) = D^-1 W, W[k, l] = T[k, l] <u(i, k), u(i, l)> with u >= 0 of a network, and T = 1 below one switch and
``BEYOND`` between two: rows add up to 1, and a step costs N (d + switches) instead of N^2.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]
Int32 = NDArray[np.int32]

STEPS = 8
BEYOND = 0.3
"""How much likelier a walk goes to a machine below the same switch than to one below another: 1 to this."""


def walk(labels: Float64, likeness: Float64, switch: Int32, decay: float, steps: int = STEPS) -> Float64:
    """The kernel's vectors, shape (J, N, C * steps), of labels (J, N, C) and likenesses (J, N, d).

    ``decay`` is lambda. Inner products of these vectors are the kernel (see the module's text).
    """
    step = _Step(likeness, switch, decay)
    found = [np.ascontiguousarray(labels.swapaxes(0, 1))]
    for _ in range(steps - 1):
        found.append(step.take(found[-1]))
    return np.ascontiguousarray(np.concatenate(found, axis=-1).swapaxes(0, 1))


def walked_mean(labels: Float64, likeness: Float64, switch: Int32, decay: float, weights: Float64) -> Float64:
    """``walk(...) @ weights``, (J, N), by Horner's rule: one walk instead of one for each label.

    sum_r lambda^(r/2) P^r (s w_r) = s w_0 + sqrt(lambda) P (s w_1 + sqrt(lambda) P (s w_2 + ...)).
    """
    step = _Step(likeness, switch, decay)
    said = np.ascontiguousarray(labels.swapaxes(0, 1)) @ weights.reshape(-1, labels.shape[-1]).T.astype(
        labels.dtype
    )
    mean = said[..., -1:]
    for place in range(said.shape[-1] - 2, -1, -1):
        mean = said[..., place, None] + step.take(mean)
    return np.asarray(mean[..., 0].T)


class _Step:
    """One step of every task's walk, times the root of the decay.

    Machines come first in the arrays: then the sums below each switch are one product of matrices for all tasks.
    """

    def __init__(self, likeness: Float64, switch: Int32, decay: float) -> None:
        self._parts = [np.ascontiguousarray(part.T)[..., None] for part in np.moveaxis(likeness, -1, 0)]
        self._below = (switch[:, None] == np.unique(switch)).astype(likeness.dtype)
        ones = np.ones_like(self._parts[0])
        self._rate = (np.sqrt(decay) / _weighed(ones, self._parts, self._below)).astype(likeness.dtype)

    def take(self, labels: Float64) -> Float64:
        """sqrt(lambda) P times the labels, (N, J, C)."""
        taken: Float64 = _weighed(labels, self._parts, self._below) * self._rate
        return taken


def _weighed(labels: Float64, parts: list[Float64], below: Float64) -> Float64:
    """W times the labels, (N, J, C): ``BEYOND`` of all machines, and the rest of those below the same switch."""
    total = np.zeros_like(labels)
    for part in parts:
        sums = below.T @ (part * labels).reshape(len(below), -1)
        mixed = BEYOND * sums.sum(axis=0) + (1 - BEYOND) * sums
        total += part * (below @ mixed).reshape(labels.shape)
    return total


def posterior_mean(vectors: Float64, seen: Float64, values: Float64, noise: float) -> Float64:
    """The process's mean at vectors (J, N, Q), shape (J, N), given ``values`` (H,) at vectors ``seen`` (H, Q).

    ``noise`` is the values' variance s2. k(S,X) [k(X,X) + s2 I]^-1 Y.
    """
    return np.asarray(vectors @ posterior_weights(seen, values, noise))


def posterior_weights(seen: Float64, values: Float64, noise: float) -> Float64:
    """The vector (Q,) whose products with vectors are the mean, by the smaller of two systems."""
    if len(seen) <= seen.shape[1]:
        gram = seen @ seen.T + noise * np.eye(len(seen))
        return np.asarray(seen.T @ np.linalg.solve(gram, values))
    system = seen.T @ seen + noise * np.eye(seen.shape[1])
    return np.asarray(np.linalg.solve(system, seen.T @ values))


def posterior_covariance(vectors: Float64, seen: Float64, noise: float) -> Float64:
    """Each task's covariance over the machines, (J, N, N): k(S,S) - k(S,X) [k(X,X) + s2 I]^-1 k(X,S)."""
    prior = vectors @ vectors.swapaxes(-1, -2)
    if not len(seen):
        return np.asarray(prior)
    across = vectors @ seen.T
    gram = seen @ seen.T + noise * np.eye(len(seen))
    return np.asarray(prior - across @ np.linalg.solve(gram, across.swapaxes(-1, -2)))
