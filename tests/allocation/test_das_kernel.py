"""The random-walk kernel against the product graph itself, the process against its textbook form."""

from __future__ import annotations

import numpy as np
import pytest

from mirage.allocation.ddl.das.kernel import BEYOND, posterior_covariance, posterior_mean, walk, walked_mean

SWITCH = np.array([0, 0, 1, 1, 1], dtype=np.int32)
DECAY = 0.6


def drawn(seed: int, tasks: int = 3, labels: int = 2) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(tasks, len(SWITCH), labels)), rng.uniform(0.1, 2.0, (tasks, len(SWITCH), 3))


def transition(likeness: np.ndarray, switch: np.ndarray) -> np.ndarray:
    closeness = np.where(switch[:, None] == switch, 1.0, BEYOND)
    weights = closeness * (likeness @ likeness.T)
    return weights / weights.sum(axis=1, keepdims=True)


def product_graph_kernel(labels: np.ndarray, likeness: np.ndarray, i: int, j: int) -> np.ndarray:
    """By the inverse over all pairs of machines."""
    walks = np.kron(transition(likeness[i], SWITCH), transition(likeness[j], SWITCH))
    stops = sum(np.kron(labels[i, :, c], labels[j, :, c]) for c in range(labels.shape[2]))
    resolvent = np.linalg.inv(np.eye(len(walks)) - DECAY * walks)
    return (resolvent @ stops).reshape(len(SWITCH), len(SWITCH))


@pytest.mark.parametrize("seed", range(4))
def test_the_vectors_inner_products_are_the_product_graphs_kernel(seed: int) -> None:
    labels, likeness = drawn(seed)
    vectors = walk(labels, likeness, SWITCH, DECAY, steps=80)
    for i in range(3):
        for j in range(3):
            np.testing.assert_allclose(
                vectors[i] @ vectors[j].T, product_graph_kernel(labels, likeness, i, j), atol=1e-10
            )


def test_one_walk_gives_the_mean_of_all_labels() -> None:
    labels, likeness = drawn(8)
    weights = np.random.default_rng(8).normal(size=2 * 8)
    wanted = walk(labels, likeness, SWITCH, DECAY) @ weights
    np.testing.assert_allclose(walked_mean(labels, likeness, SWITCH, DECAY, weights), wanted, atol=1e-12)


def test_what_the_series_leaves_out_is_bounded() -> None:
    labels, likeness = drawn(9)
    short = walk(labels, likeness, SWITCH, DECAY, steps=8)
    exact = product_graph_kernel(labels, likeness, 0, 1)
    most = DECAY**8 / (1 - DECAY) * labels.shape[2] * np.abs(labels).max() ** 2
    assert np.abs(short[0] @ short[1].T - exact).max() <= most


def test_the_printed_sum_tells_nothing_and_ours_does() -> None:
    labels, likeness = drawn(3)
    walks = np.kron(transition(likeness[0], SWITCH), transition(likeness[1], SWITCH))
    printed = np.linalg.inv(np.eye(len(walks)) - DECAY * walks).sum()
    assert printed == pytest.approx(len(walks) / (1 - DECAY))
    vectors = walk(labels, likeness, SWITCH, DECAY)
    assert np.ptp(vectors[0] @ vectors[1].T) > 0.1


def test_the_kernel_is_positive_semidefinite_over_tasks_and_machines() -> None:
    labels, likeness = drawn(5, tasks=6)
    points = walk(labels, likeness, SWITCH, DECAY).reshape(30, -1)
    assert np.linalg.eigvalsh(points @ points.T).min() > -1e-9


def test_machines_by_other_numbers_have_the_same_kernel() -> None:
    labels, likeness = drawn(6)
    order = np.random.default_rng(1).permutation(len(SWITCH))
    there = walk(labels[:, order], likeness[:, order], SWITCH[order], DECAY)
    np.testing.assert_allclose(there, walk(labels, likeness, SWITCH, DECAY)[:, order], atol=1e-12)


def test_labels_that_are_alike_everywhere_make_all_machines_alike() -> None:
    labels, likeness = np.ones((2, 5, 2)), drawn(7)[1][:2]
    vectors = walk(labels, likeness, SWITCH, DECAY, steps=60)
    np.testing.assert_allclose(vectors[0] @ vectors[1].T, 2 / (1 - DECAY), rtol=1e-9)


@pytest.mark.parametrize("count", [1, 3, 40])
def test_the_process_is_the_textbooks(count: int) -> None:
    rng = np.random.default_rng(count)
    vectors, seen, values = rng.normal(size=(2, 5, 6)), rng.normal(size=(count, 6)), rng.normal(size=count)
    noise = 0.3
    inverse = np.linalg.inv(seen @ seen.T + noise * np.eye(count))
    for task in range(2):
        across = vectors[task] @ seen.T
        np.testing.assert_allclose(
            posterior_mean(vectors, seen, values, noise)[task], across @ inverse @ values, atol=1e-9
        )
        wanted = vectors[task] @ vectors[task].T - across @ inverse @ across.T
        np.testing.assert_allclose(posterior_covariance(vectors, seen, noise)[task], wanted, atol=1e-9)


def test_without_history_the_process_is_its_prior() -> None:
    vectors = np.random.default_rng(0).normal(size=(2, 5, 6))
    nothing = np.zeros((0, 6))
    assert not posterior_mean(vectors, nothing, np.zeros(0), 0.1).any()
    np.testing.assert_allclose(posterior_covariance(vectors, nothing, 0.1), vectors @ vectors.swapaxes(-1, -2))


def test_a_task_like_one_that_was_slow_there_is_led_elsewhere() -> None:
    labels = np.zeros((2, 5, 5)) + np.eye(5)
    likeness = np.ones((2, 5, 1)) * 0.01
    vectors = walk(labels, likeness, SWITCH, DECAY)
    mean = posterior_mean(vectors, vectors[0, :1], np.array([-1.0]), 0.1)
    assert mean[1].argmin() == 0
