"""What the demo promises, with other workloads than the one that it shows by default."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from played import END, played

from mirage.cli.demo import SEED

if TYPE_CHECKING:
    from pathlib import Path

SEEDS = (SEED, *range(1, 10))
BY_HAND = "-by-hand"
MINUTE = 60


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, list[int]]]:
    """Seconds of interruption at each handover, by seed and chain."""
    return {seed: interruptions(tmp_path_factory.mktemp("demo"), seed) for seed in SEEDS}


def interruptions(folder: Path, seed: int) -> dict[str, list[int]]:
    with played(folder, END, seed) as demo:
        chains = demo.service.loop.status.chains
        return {each.chain.name: [outcome.interruption for _, outcome in each.handovers()] for each in chains}


def test_nine_of_ten_handovers_have_no_interruption(found: dict[int, dict[str, list[int]]]) -> None:
    """In each workload but the two in which jobs by hand wait for more than a day."""
    shares = {}
    for seed, chains in found.items():
        times = [time for name, all_times in chains.items() if not name.endswith(BY_HAND) for time in all_times]
        shares[seed] = sum(time <= MINUTE for time in times) / len(times)
    assert sum(share >= 0.9 for share in shares.values()) >= 8, shares
    assert min(shares.values()) >= 0.75, shares
    assert sum(shares.values()) / len(shares) >= 0.95, shares


def test_the_same_chain_by_hand_loses_more(found: dict[int, dict[str, list[int]]]) -> None:
    for seed, chains in found.items():
        for name, times in chains.items():
            if by_hand := chains.get(f"{name}{BY_HAND}"):
                assert sum(times) / len(times) <= sum(by_hand) / len(by_hand) + MINUTE, (seed, name)
