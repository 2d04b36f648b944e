"""The report as a file: well formed, alone in the world, safe against hostile names, the same each time."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from synthetic_replay import synthetic_replay

from mirage.domain.errors import MissingExtra
from mirage.replay.html import render_html, write_html
from mirage.replay.intervals import IntervalEstimate, Resampling
from mirage.replay.metrics import measure
from mirage.replay.plots import LETTER, LINE, MARK, Box, place_labels
from mirage.replay.wording import (
    FULL_WIDTH,
    duration,
    headlines,
    hours,
    hours_interval,
    instant,
    percent,
    percent_interval,
    replay_table,
)

if TYPE_CHECKING:
    from pathlib import Path

    from mirage.replay.results import ReplayResult

QUICK = Resampling(resamples=200)
VOID = {"meta", "link", "br", "hr", "img", "input", "col"}


class Outline(HTMLParser):
    """Checks that every element is closed in order, and collects ids, attributes and text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        self.ids += [value for name, value in attrs if name == "id" and value]

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def outline_of(page: str) -> Outline:
    outline = Outline()
    outline.feed(page)
    outline.close()
    assert outline.open == []
    return outline


def render(replay: ReplayResult) -> str:
    return render_html(replay, measure(replay, QUICK))


@pytest.fixture(scope="module")
def page() -> str:
    return render(synthetic_replay())


def test_is_well_formed_and_every_reference_resolves(page: str) -> None:
    outline = outline_of(page)
    assert len(outline.ids) == len(set(outline.ids))
    referred = set(re.findall(r"url\(#([^)]+)\)|href=\"#([^\"]+)\"", page))
    assert referred
    assert {a or b for a, b in referred} <= set(outline.ids)


def test_needs_nothing_else(page: str) -> None:
    assert "http://" not in page
    assert "https://" not in page
    assert not {"script", "link", "iframe", "img", "object"} & set(outline_of(page).tags)
    assert not [name for name, _ in outline_of(page).attributes if name.startswith("on") or name == "src"]
    assert "@import" not in page
    assert "default-src 'none'" in page


def test_follows_the_theme(page: str) -> None:
    assert "prefers-color-scheme: dark" in page
    pictures = "".join(re.findall(r"<svg.*?</svg>", page, re.DOTALL))
    assert "var(--policy-1)" in pictures
    assert set(re.findall(r"#[0-9a-f]{6}\b", pictures)) <= {"#000000", "#ffffff"}


def test_pictures_say_in_words_what_they_show(page: str) -> None:
    labels = [value or "" for name, value in outline_of(page).attributes if name == "aria-label"]
    assert sum(label.startswith("Timeline of episode") for label in labels) == 3
    assert sum("Medians: reactive" in label for label in labels) == 4
    assert any(label.startswith("Mean overlap and mean interruption") for label in labels)
    assert any(label.startswith("Queue and busy nodes") for label in labels)


def test_says_what_was_found_and_replayed(page: str) -> None:
    text = outline_of(page).text.replace("\N{NO-BREAK SPACE}", " ")
    replay = synthetic_replay()
    for sentence in headlines(measure(replay, QUICK)):
        assert sentence in text
    assert replay.notes[0] in text
    assert "quantile:0.5 submits" in text
    assert "150 from 2023-02-01 00:00 to 2023-02-26 00:00" in text


def test_the_same_replay_gives_the_same_bytes() -> None:
    replay = synthetic_replay(("reactive", "average"), episodes=8)
    assert render(replay) == render(replay)


HOSTILE = "</title><script>alert(1)</script>\"'&<img src=x onerror=alert(2)>$x_{1}$"


def test_hostile_names_stay_text() -> None:
    replay = synthetic_replay(("reactive", HOSTILE), episodes=30, trace=HOSTILE)
    replay = replace(replay, cluster=HOSTILE, notes=(HOSTILE,))
    replay = replace(replay, outcomes=tuple(replace(o, decision=HOSTILE) for o in replay.outcomes))
    outline = outline_of(render(replay))
    assert not {"script", "img"} & set(outline.tags)
    assert HOSTILE in outline.text


@settings(max_examples=15, deadline=None)
@given(st.text(min_size=1, max_size=12).filter(str.isprintable))
def test_any_printable_name_can_be_drawn(name: str) -> None:
    from mirage.replay.plots import plot_timeline, style_policies

    replay = synthetic_replay((name,), episodes=1)
    outline = outline_of(plot_timeline("t", name, style_policies((name,)), [replay.outcomes]))
    assert ("aria-label", name) in outline.attributes
    assert " ".join(name.split()) in " ".join(outline.text.split())


@pytest.mark.parametrize(
    "replay",
    [
        synthetic_replay(("average",), episodes=1),
        synthetic_replay(("reactive",), episodes=5),
        synthetic_replay(("reactive", "oracle", "average"), episodes=12, links=4),
        synthetic_replay(("reactive", "oracle"), episodes=3, first=0),
        replace(synthetic_replay(episodes=3), outcomes=()),
        synthetic_replay(("reactive", *(f"p{i}" for i in range(14))), episodes=2),
    ],
    ids=["one", "baseline", "chains", "no calendar", "nothing", "many"],
)
def test_unusual_replays_are_drawn(replay: ReplayResult) -> None:
    outline_of(render(replay))


def test_an_empty_queue_history_is_left_out() -> None:
    replay = synthetic_replay(episodes=5)
    none = np.zeros(0, dtype=np.int64)
    queue = replace(replay.queue, time=none, pending_jobs=none, pending_nodes=none, busy_nodes=none)
    assert "The cluster meanwhile" not in render(replace(replay, queue=queue))


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    replay = synthetic_replay(episodes=2)
    with pytest.raises(MissingExtra, match=r"mirage-slurm\[report\]"):
        write_html(tmp_path / "report.html", replay, measure(replay, QUICK))


def test_importing_costs_nothing_and_drawing_leaves_no_trace() -> None:
    program = """
import sys
sys.path.insert(0, sys.argv[1])
import mirage.replay.html, mirage.replay.metrics, mirage.replay.wording
assert not {"matplotlib", "jinja2"} & set(sys.modules)
from synthetic_replay import synthetic_replay
import matplotlib
def chosen(): return {key: matplotlib.rcParams[key] for key in matplotlib.rcParams if key != "backend"}
before = chosen()
replay = synthetic_replay(episodes=5)
mirage.replay.html.render_html(replay, mirage.replay.metrics.measure(replay))
assert chosen() == before
assert "matplotlib.pyplot" not in sys.modules
"""
    folder = __file__.rsplit("/", 1)[0]
    done = subprocess.run([sys.executable, "-c", program, folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("width", [80, FULL_WIDTH, 120])
def test_the_console_table_fits_and_keeps_its_figures(width: int) -> None:
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(replay_table(measure(synthetic_replay(), QUICK), width))
    text = capture.get()
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    assert "quantile:0.5" in text
    assert "heavy (5)" in text


def test_headline_admits_when_nothing_beats_the_baseline() -> None:
    replay = synthetic_replay(("reactive", "fixed:6h"), episodes=30)
    start = {o.episode: o.predecessor_end for o in replay.outcomes}
    worse = tuple(
        replace(o, successor_start=start[o.episode] + (60 if o.policy == "reactive" else -21_600))
        for o in replay.outcomes
    )
    sentence = headlines(measure(replace(replay, outcomes=worse), QUICK))[0]
    assert sentence.startswith("No policy came closer to a seamless handover than reactive submission")


def test_headline_admits_doubt() -> None:
    replay = synthetic_replay(("reactive", "average"), episodes=150)
    rng = np.random.default_rng(3)
    gaps = {episode: rng.exponential(7_200, size=2) for episode in range(150)}
    luck = tuple(
        replace(o, successor_start=o.predecessor_end + int(gaps[o.episode][int(o.policy == "average")]))
        for o in replay.outcomes
    )
    metrics = measure(replace(replay, outcomes=luck), QUICK)
    assert metrics.row("average").distance_mean.value < metrics.row("reactive").distance_mean.value
    assert "do not rule out no change" in headlines(metrics)[0]


def test_figures_as_people_write_them() -> None:
    assert [hours(v) for v in (0.0, -0.001, 9.994, 9.996, 48.25, float("nan"))] == [
        *("0.00", "0.00", "9.99", "10.0", "48.2", "\N{EN DASH}")
    ]
    assert [percent(v) for v in (0.0, -0.004, 0.956, -0.12, -45.0)] == [
        *("0 %", "0 %", "96 %", "\N{MINUS SIGN}12 %", "< \N{MINUS SIGN}999 %")
    ]
    assert percent_interval(IntervalEstimate(0.5, 0.4, 0.6)) == "40\N{EN DASH}60 %"
    assert percent_interval(IntervalEstimate(0.0, -0.1, 0.1)) == "\N{MINUS SIGN}10 to 10 %"
    assert percent_interval(IntervalEstimate(0.5)) == percent_interval(IntervalEstimate(1.0, 1.0, 1.0)) == ""
    assert hours_interval(IntervalEstimate(0.0, -1.0, 1.0)) == "\N{MINUS SIGN}1.00 to 1.00"
    assert [duration(s) for s in (600, 5_400, 172_800, 259_200, 45)] == [
        *("10 min", "90 min", "48 h", "3 d", "45 s")
    ]
    assert instant(0) == "day 0.0"
    assert instant(1_675_209_600) == "2023-02-01 00:00"


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=5, unique=True))
def test_names_beside_marks_do_not_meet(grid: list[tuple[int, int]]) -> None:
    points = [(90.0 * x, 50.0 * y) for x, y in grid]
    names = ["quantile" for _ in points]
    boxes = [
        Box(x + dx, y + dy, LETTER * 8, LINE)
        for (x, y), (dx, dy) in zip(points, place_labels(points, names), strict=True)
    ]
    marks = [Box(x - MARK / 2, y - MARK / 2, MARK, MARK) for x, y in points]
    for i, box in enumerate(boxes):
        assert not any(box.meets(other) for other in [*boxes[:i], *marks])
