"""The layer lists against what is published of the networks, and the rule that lays them over arrays."""

from __future__ import annotations

from itertools import pairwise
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirage.allocation.inference.costs.arrays import (
    COLUMNS,
    LayerListError,
    LayerShape,
    UnknownArray,
    array,
    array_names,
    lay,
    loops,
    network,
    network_names,
    read_network,
)
from mirage.allocation.inference.costs.costmodel import orders

# Multiplications and weights as published: torchvision's table of models (ResNet-50 4.09 GFLOPS and 25.6 M,
# MobileNetV2 0.30 and 3.5, V3 0.22 and 5.5, norms among the weights); MLPerf Inference (Reddi et al., ISCA 2020:
# SSD 2.47 GOPs of two a MAC, 6.91 M); darknet (YOLOv3-416: 65.86 GFLOPs of two a MAC, 61.9 M); TinyBERT (Jiao et
# al., 2020: BERT-base 22.5 GFLOPs of two a MAC, 128 tokens).
PUBLISHED = {
    "resnet50": (4.09e9, 25.5e6),
    "mobilenetv2": (0.30e9, 3.47e6),
    "mobilenetv3-large": (0.217e9, 5.45e6),
    "ssd-mobilenet": (2.47e9 / 2, 6.8e6),
    "yolov3": (65.86e9 / 2, 61.9e6),
    "bert-base": (22.5e9 / 2, 85e6),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_work_and_weights_as_published(name: str) -> None:
    macs, weights = PUBLISHED[name]
    assert network(name).macs == pytest.approx(macs, rel=0.01)
    assert network(name).weights == pytest.approx(weights, rel=0.01)


def test_bert_is_twelve_layers_of_the_usual_sizes() -> None:
    bert, width, tokens = network("bert-base"), 768, 128
    assert bert.weights == 12 * (4 * width * width + 2 * width * 4 * width)
    assert bert.macs == bert.weights * tokens + 12 * 2 * tokens * tokens * width


def test_language_model_has_the_weights_of_its_card() -> None:
    """1,100,048,384 in all: with the embeddings (looked up, no multiplications) and 45 norms of 2048."""
    assert network("llm-decode").weights + 32000 * 2048 + 45 * 2048 == 1_100_048_384


def test_unet_has_the_weights_of_a_published_one() -> None:
    """7,763,041 (mateuszbuda/brain-segmentation-pytorch): with norms, and biases of 5 layers."""
    norms = 2 * 2 * (32 + 64 + 128 + 256 + 512 + 256 + 128 + 64 + 32)
    assert network("unet").weights + norms + (256 + 128 + 64 + 32) + 1 == 7_763_041


def test_recommendation_by_hand() -> None:
    below = 13 * 512 + 512 * 256 + 256 * 128
    above = 479 * 1024 + 1024 * 1024 + 1024 * 512 + 512 * 256 + 256
    assert network("dlrm").weights == below + above
    assert network("dlrm").macs == 64 * (below + above + 27 * 27 * 128)


def test_layers_follow_one_another() -> None:
    """The input of a dense or pointwise chain is the output of the layer before."""
    for name in ("resnet50", "mobilenetv2"):
        main = [layer for layer in network(name).layers if not layer.name.endswith("shortcut")]
        for before, after in pairwise([layer.shape for layer in main]):
            assert before.groups * before.outputs == after.groups * after.inputs


def test_nine_networks() -> None:
    assert {*PUBLISHED, "llm-decode", "unet", "dlrm"} == set(network_names())


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("a,conv,1,2,3,4,4,0,3,1", "line 2: sizes must be integers above 0"),
        ("a,conv,1,2,3,4,4,3,3", "line 2: expected 10 fields"),
        ("a,pool,1,2,3,4,4,3,3,1", "line 2: expected 10 fields, the second one of conv"),
        ("a,conv,1,2,3,4,4,3,3,1\na,conv,1,2,3,4,4,3,3,1", "duplicate layers: a"),
        ("", "no layers"),
    ],
)
def test_bad_lists_are_told_where(line: str, complaint: str) -> None:
    with pytest.raises(LayerListError, match=complaint):
        read_network("n", [",".join(COLUMNS), *line.splitlines()])


def test_unknown_names_list_the_known() -> None:
    with pytest.raises(LayerListError, match="resnet50"):
        network("resnet51")
    with pytest.raises(UnknownArray, match="eyeriss, simba"):
        array("tpu")


def test_use_of_the_arrays_as_published() -> None:
    """The default problem of timeloop-accelergy-exercises: 75.00 % of its Eyeriss, 18.75 % of its Simba."""
    problem = LayerShape(1, 32, 3, 112, 112, 3, 3, stride=2)
    assert lay(problem, array("eyeriss")).busy / (14 * 12) == 0.75
    assert lay(problem, array("simba")).busy / 256 == 0.1875


sizes = st.integers(1, 300)
shapes = st.builds(LayerShape, *[sizes] * 5, st.integers(1, 7), st.integers(1, 7), st.integers(1, 2))


@given(shape=shapes, name=st.sampled_from(array_names()))
def test_laying_keeps_to_the_array_and_loses_no_work(shape: LayerShape, name: str) -> None:
    where = array(name)
    mapped = lay(shape, where)
    for spread in where.spread:
        product = 1
        for width in mapped.unrolled[spread.dimension].values():
            product *= width
        assert product <= spread.size
    for loop, size in loops(shape).items():
        taken = mapped.taken(loop)
        assert mapped.sizes[loop] % taken == 0
        assert size <= mapped.sizes[loop]
        assert mapped.sizes[loop] // taken >= ceil(size / taken)


@given(shape=shapes, name=st.sampled_from(array_names()))
def test_every_order_goes_through_every_loop(shape: LayerShape, name: str) -> None:
    mapped = lay(shape, array(name))
    tried = orders(mapped, array(name))
    assert len(tried) == len(set(tried)) > 0
    for order in tried:
        steps = dict.fromkeys(mapped.sizes, 1)
        for loop, count in order:
            assert count > 1
            steps[loop] *= count
        assert all(steps[loop] * mapped.taken(loop) == size for loop, size in mapped.sizes.items())


def test_orders_by_hand() -> None:
    """Row stationary, 1 x 1, 14 x 28 answers, 24 channels, 32 filters: 2 steps of channels are left in time."""
    mapped = lay(LayerShape(1, 32, 24, 14, 28, 1, 1, 1), array("eyeriss"))
    assert mapped.unrolled == {"D1": {"OY": 14}, "D2": {"C": 12}}
    tried = orders(mapped, array("eyeriss"))
    assert (("K", 16), ("C", 2), ("K", 2), ("OX", 28)) in tried
    assert (("OX", 7), ("K", 2), ("C", 2), ("OX", 4), ("K", 16)) in tried
    assert not any(order[0] == ("C", 24) for order in tried)
