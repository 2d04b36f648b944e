"""The data behind the pictures in docs/screens: one played demo, checked by its own arithmetic."""

from __future__ import annotations

import itertools
import json
import re
import urllib.request
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from played import BEGAN, DEMO, END, OWNER, SWEEP, played, sweep
from server import opened_by, serving

from mirage.api.access.protocol import Peer
from mirage.api.app import create_app

if TYPE_CHECKING:
    from collections.abc import Iterator

    from played import PlayedDemo

pytestmark = pytest.mark.xdist_group("screens")
PROJECT = Path(__file__).parents[2]
Document = dict[str, Any]
MIRAGE = ("protein-folding", "train-llm", "chat-service")
BY_HAND = ("train-llm-by-hand", "chat-service-by-hand")


@dataclass(frozen=True)
class Shown:
    """What the pages show at one time, as the REST API gives it."""

    time: int
    chains: Document
    timelines: dict[str, Document]
    queue: list[Document]

    def chain(self, name: str) -> Document:
        [found] = [chain for chain in self.chains["chains"] if chain["name"] == name]
        return dict(found)


@dataclass
class Pictures:
    """The demo's picture, that of another run, and the other pictures."""

    demo: Shown
    again: Shown
    end: Shown
    both: tuple[Shown, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.both = (self.demo, self.end)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pictures]:
    with played(tmp_path_factory.mktemp("again"), DEMO) as other:
        again = _shown(other)
    with played(folder := tmp_path_factory.mktemp("played"), DEMO) as demo:
        first = _shown(demo)
        demo.play(SWEEP)
        demo.request(sweep(folder / "tasks"))
        demo.play(END)
        yield Pictures(first, again, _shown(demo))


def _shown(demo: PlayedDemo) -> Shown:
    with serving(opened_by(create_app(demo.shown), Peer(0, OWNER))) as address:

        def get(path: str) -> Document:
            with urllib.request.urlopen(f"{address}/api/v1/{path}", timeout=60) as answer:
                return dict(json.load(answer))

        chains = get("chains?all=true&limit=100")
        timelines = {chain["name"]: get(f"chains/{chain['id']}/timeline") for chain in chains["chains"]}
        return Shown(demo.clock.now(), chains, timelines, get("queue?limit=100")["jobs"])


def _seconds(text: str | None) -> int | None:
    return None if text is None else int(datetime.fromisoformat(text).timestamp())


def _ran(chain: Document) -> list[tuple[int, int, bool]]:
    """Start, end (or time limit) and whether it runs, of each link that has started."""
    known = [(_seconds(link["start"]), _seconds(link["end"]), link["state"]) for link in chain["links"]]
    return [
        (start, end, state == "running") for start, end, state in known if start is not None and end is not None
    ]


def test_two_runs_of_the_demo_give_the_same_pictures(pictures: Pictures) -> None:
    one, other = pictures.demo, pictures.again
    assert one.chains == other.chains
    assert one.timelines == other.timelines
    assert one.queue == other.queue


def test_links_overlap_only_where_that_is_requested(pictures: Pictures) -> None:
    for shown in pictures.both:
        alone = [chain for chain in shown.chains["chains"] if chain["handover"] == "none"]
        assert {chain["name"] for chain in alone} >= {*MIRAGE[:2], *BY_HAND}
        for chain in alone:
            for (_, end, _), (start, _, _) in itertools.pairwise(_ran(chain)):
                assert end <= start, chain["name"]
            assert chain["overlap"] == 0
            assert len(_ran(chain)) >= 2 or chain["name"] in ("far-too-large", "lr-sweep")


def test_the_interruption_of_a_chain_is_the_sum_of_its_gaps(pictures: Pictures) -> None:
    for shown in pictures.both:
        for name in (*MIRAGE, *BY_HAND):
            chain = shown.chain(name)
            covered, gaps, overlaps = 0, 0, 0
            for start, end, _ in _ran(chain):
                gaps += max(0, start - covered) if covered else 0
                overlaps += max(0, min(covered, end) - start)
                covered = max(covered, end)
            gaps += max(0, shown.time - covered)
            assert (name, chain["interruption"]) == (name, gaps)
            assert (name, chain["overlap"]) == (name, overlaps)


def test_a_chain_is_up_if_and_only_if_a_link_runs(pictures: Pictures) -> None:
    states = Counter[str]()
    for shown in pictures.both:
        for chain in shown.chains["chains"]:
            running = [run for run in _ran(chain) if run[2]]
            states[chain["state"]] += 1
            assert (chain["state"] == "up") == bool(running), chain["name"]
            assert all(start <= shown.time <= end for start, end, _ in running)
        assert shown.chain("far-too-large")["state"] == "paused"
    assert states["up"] >= 6


def test_a_forecast_speaks_of_a_time_after_itself_and_its_quantiles_ascend(pictures: Pictures) -> None:
    count = 0
    for timeline in pictures.end.timelines.values():
        for point in timeline["forecasts"]:
            made = _seconds(point["time"])
            said = [at for level in ("p10", "p50", "p90") if (at := _seconds(point[level])) is not None]
            assert made is not None
            assert BEGAN <= made <= pictures.end.time
            assert said == sorted(said)
            assert all(at >= made for at in said)
            if (started := _seconds(point["started"])) is not None:
                assert made <= started <= pictures.end.time
            count += 1
    assert count > 100


def test_job_ids_are_unique_and_running_links_are_in_the_queue(pictures: Pictures) -> None:
    for shown in pictures.both:
        links = [link for chain in shown.chains["chains"] for link in chain["links"] if link["job_id"]]
        assert max(Counter(link["job_id"] for link in links).values()) == 1
        queue = Counter(job["job_id"] for job in shown.queue)
        assert max(queue.values()) == 1
        assert {link["job_id"] for link in links if link["state"] == "running"} <= queue.keys()


def test_totals_without_mirage_are_never_below_zero(pictures: Pictures) -> None:
    """What was interrupted and what the early submissions saved add up to the interruption without Mirage."""
    appraised = 0
    for shown in pictures.both:
        for name, timeline in shown.timelines.items():
            for handover in timeline["handovers"]:
                assert handover["interruption"] >= 0
                assert handover["overlap"] >= 0
                if handover["saved"] is not None:
                    appraised += 1
                    quantiles = [handover["saved"][level] for level in ("p10", "p50", "p90")]
                    assert quantiles == sorted(quantiles), name
                    assert handover["interruption"] + quantiles[0] >= 0, name
        for name in ("train-llm", "chat-service"):
            assert shown.chain(name)["interruption"] < shown.chain(f"{name}-by-hand")["interruption"]
    assert appraised >= 20


@pytest.mark.parametrize("file", ["README.md", "docs/index.md"])
def test_the_text_of_the_first_picture_is_true_of_it(pictures: Pictures, file: str) -> None:
    """Where this fails: ``make screens``, and correct the text."""
    pattern = r"!\[Six chains .* without Mirage are interrupted for (\d+) h (\d+) min, the others not at all\]"
    found = re.search(pattern, (PROJECT / file).read_text())
    assert found is not None
    hours, minutes = map(int, found.groups())
    chains = {chain["name"]: chain["interruption"] // 60 for chain in pictures.demo.chains["chains"]}
    assert chains == dict.fromkeys((*MIRAGE, "far-too-large"), 0) | dict.fromkeys(BY_HAND, 60 * hours + minutes)
