"""Trees as ONNX against trees walked manually."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirage.plugin import Tree, floor32, trees_graph


def random_tree(rng: np.random.Generator, depth: int, features: int, outputs: int, first: int = 0) -> Tree:
    """A complete tree: inner nodes 0 .. 2^depth - 2, then leaves."""
    inner, count = 2**depth - 1, 2 ** (depth + 1) - 1
    node = np.arange(count)
    value = rng.standard_normal((count, outputs)).astype(np.float32) * (rng.random((count, outputs)) < 0.6)
    return Tree(
        feature=np.where(node < inner, rng.integers(0, features, count), -1),
        threshold=np.round(rng.standard_normal(count), 1).astype(np.float32),
        left=np.where(node < inner, 2 * node + 1, -1),
        right=np.where(node < inner, 2 * node + 2, -1),
        value=value.astype(np.float32),
        first=first,
    )


def walked(tree: Tree, vector: np.ndarray, *, equal_goes_left: bool) -> np.ndarray:
    node = 0
    while tree.feature[node] >= 0:
        seen, threshold = vector[tree.feature[node]], tree.threshold[node]
        left = seen <= threshold if equal_goes_left else seen < threshold
        node = tree.left[node] if left else tree.right[node]
    return tree.value[node]


def ran(graph: bytes, vectors: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    return session.run(None, {"features": vectors})[0]


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.sampled_from(["<", "<="]), st.sampled_from(["", "expm1", "cumsum"]))
def test_a_graph_answers_as_its_trees_walked_one_by_one(seed: int, compare: str, then: str) -> None:
    rng = np.random.default_rng(seed)
    trees = [random_tree(rng, 3, 5, 2, first) for first in (0, 1, 0)]
    base = rng.standard_normal(3).astype(np.float32)
    vectors = np.round(rng.standard_normal((40, 5)), 1).astype(np.float32)  # many ties with thresholds
    expected = np.tile(base, (len(vectors), 1))
    for tree in trees:
        for row, vector in zip(expected, vectors, strict=True):
            row[tree.first : tree.first + 2] += walked(tree, vector, equal_goes_left=compare == "<=")
    expected = {"": expected, "expm1": np.expm1(expected), "cumsum": np.cumsum(expected, axis=1)}[then]
    np.testing.assert_allclose(
        ran(trees_graph(trees, 5, base, compare=compare, then=then), vectors), expected, 1e-5, 1e-5
    )


@given(st.floats(-1e30, 1e30), st.floats(-(2.0**99), 2.0**99, width=32))
def test_a_threshold_in_float32_parts_float32_numbers_as_before(threshold: float, seen: float) -> None:
    (narrow,) = floor32(np.array([threshold]))
    assert (seen <= narrow) == (seen <= threshold)
    assert float(narrow) <= threshold


@pytest.mark.parametrize("rows", [1, 7, 100])
def test_any_number_of_observations_at_once(rows: int) -> None:
    tree = random_tree(np.random.default_rng(1), 2, 4, 3)
    graph = trees_graph([tree], 4, np.zeros(3, dtype=np.float32), compare="<=")
    assert ran(graph, np.zeros((rows, 4), dtype=np.float32)).shape == (rows, 3)
