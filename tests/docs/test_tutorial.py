"""The commands of the tutorial run: here on the demo, in ``tests/live`` on a real Slurm."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from console import typed
from running_demo import Demo

from mirage.client import Client

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    demo = Demo(tmp_path)
    yield demo
    demo.end()


@pytest.mark.xdist_group("demo")
def test_on_a_cluster_that_is_not_there(demo: Demo, root: Path) -> None:
    steps = list(typed((root / "docs/tutorial.md").read_text(), "A simulated cluster"))
    assert len(steps) >= 5
    client = Client(demo.socket)
    demo.wait_until(lambda: "train-llm" in {chain.name for chain in client.chains()}, "the demo's chains")
    said = ""
    for step in steps:
        said = demo.shell(step.command)
        step.check(said)
    demo.wait_until(lambda: client.chain("mine").status == "done", "the end of the chain")
    assert len(client.chain("mine").links) == 2
    assert re.search(r"^mine-\S+ ", said, re.MULTILINE), said


def test_its_targets_are_targets(root: Path) -> None:
    text = (root / "docs/tutorial.md").read_text()
    makefile = (root / "Makefile").read_text()
    targets = re.findall(r"^make ?(\w*)$", text, re.MULTILINE)
    assert targets == ["", "demo", "testbed"]
    assert all(f"\n{target}:" in makefile for target in targets if target)
