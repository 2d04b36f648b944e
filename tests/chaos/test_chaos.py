"""Some seeds at each run of the tests; ``make chaos`` plays a thousand."""

from __future__ import annotations

import pytest
from chaos.scenario import NO_PEOPLE, play

ONCE_BROKEN = {
    36: "the answer to a commit was lost: the record had the end of a link, the journal never did",
    45: "a submission was stored, and the daemon killed before it was told",
    72: "an end was stored, and the daemon killed before it was told",
    55: "a forecast longer than the links: each had a successor as soon as it ran, and all ran side by side",
    80: "the same with successors that are in the queue early, under a nice value",
}
"""The error that each seed found in the past."""


@pytest.mark.parametrize("seed", range(24))
def test_whatever_happens_the_chains_come_to_their_end(seed: int) -> None:
    verdict = play(seed)
    assert not verdict.broken, str(verdict)


@pytest.mark.parametrize("seed", ONCE_BROKEN)
def test_what_was_broken_once_stays_mended(seed: int) -> None:
    verdict = play(seed, climate=NO_PEOPLE)
    assert not verdict.broken, str(verdict)


def test_a_seed_is_the_same_story_each_time() -> None:
    assert play(3) == play(3)


def test_the_storms_are_rough() -> None:
    """The seeds above go through many events: with few events they would show little."""
    verdicts = [play(seed) for seed in range(4)]
    assert sum(verdict.deaths for verdict in verdicts) >= 8
    assert sum(len(verdict.story) for verdict in verdicts) >= 60
    assert sum(verdict.links for verdict in verdicts) >= 30
    assert sum(verdict.deeds for verdict in verdicts) >= 12
    assert sum(verdict.steps for verdict in verdicts) >= 600
