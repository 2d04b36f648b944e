"""The first screen: four figures, trouble first, and nothing claimed of what a few handovers say."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from chains_seen import chain_of, link, paused, training
from instants import HOUR, NOW
from seeded import SeededLoop
from server import seeded
from visiting import visit

from mirage.domain.chain import ChainRecord
from mirage.domain.objective import Alternative

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser


def kept(links: int) -> ChainRecord:
    """Links of an hour, each submitted as the one before starts: the last handover was late by half an hour."""
    chain = chain_of("svc-k3q9", "svc", "alice", 1, 1)
    made = []
    for number in range(1, links + 1):
        start = NOW - (links - number) * HOUR - HOUR // 2 - (HOUR // 2 if number < links else 0)
        end = start + HOUR
        one = link(chain, number, start - HOUR, start, end, ended=number < links)
        made.append(replace(one, alternative=Alternative(0, HOUR, 3 * HOUR)))
    return ChainRecord(chain, tuple(made))


@pytest.mark.parametrize("links", [20, 21])
def test_figures_are_claimed_from_twenty_hand_overs_on(browser: Browser, tmp_path: Path, links: int) -> None:
    with seeded(SeededLoop.of(tmp_path, (kept(links),))) as address, visit(browser, address) as seen:
        assert seen.go("/") == 200
        tiles = seen.page.locator("ul.tiles li").all_inner_texts()
        assert len(tiles) == 4
        up, done, lost, ahead = (" ".join(tile.split()) for tile in tiles)
        assert up == "1 chain up"
        assert ("saved" in lost) is (links > 20)
        assert done == ("19 of 20 handovers without interruption" if links > 20 else "19 handovers so far")
        assert lost.startswith("00:30:00 interruption" if ":" in lost else "30 min interruption")
        assert ahead.startswith("next handover in")
        assert seen.complaints == []


def test_trouble_comes_first(browser: Browser, tmp_path: Path) -> None:
    with seeded(SeededLoop.of(tmp_path, (training(), paused()))) as address, visit(browser, address) as seen:
        seen.go("/")
        assert seen.page.locator("tbody th a").all_inner_texts() == ["nightly-eval", "llm-pretrain"]
