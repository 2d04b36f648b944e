"""The page of a replay of tasks: its bars are the run, it stands alone, and hostile names stay text."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import numpy as np
import pytest

from mirage.allocation.ddl.formats.readers import TaskFormat, TaskSource
from mirage.allocation.ddl.replay import Compared, TaskReplay, parse_pair, play_all
from mirage.replay.svg import choose_palette, clock, draw_lanes, ticks
from mirage.replay.taskpage import render_task_page

if TYPE_CHECKING:
    from pathlib import Path

    from mirage.allocation.ddl.outcome import TaskRunResult

HOSTILE = "</title><script>alert(1)</script>&"
MIX = f"""
count = 25
[[classes]]
model = {HOSTILE!r}
sizes = [1, 3]
[[classes]]
model = "plain"
sizes = [4, 8]
"""


def played(folder: Path, mix: str = MIX, pool: str = "2x4") -> Compared:
    (folder / "mix.toml").write_text(mix)
    source = TaskSource(str(folder / "mix.toml"), TaskFormat.MIX, pool)
    return play_all(TaskReplay(source, (parse_pair("fifo+first-fit"), parse_pair("sjf+best-fit"))), 1)


def area(outcome: TaskRunResult, last: float) -> tuple[float, float]:
    """Of the task's bars, in lanes x units; and what device-seconds make of it."""
    svg = ElementTree.fromstring(draw_lanes(outcome, choose_palette(outcome.tasks), last, "lanes"))
    bars = [rect for rect in svg.iter("rect") if rect.find("title") is not None]
    drawn = sum(float(rect.attrib["width"]) * float(rect.attrib["height"]) for rect in bars)
    log = outcome.segments
    begin = float(outcome.tasks.submit.min())
    scale = (1100 - 64 - 6) / (last - begin)
    return drawn, float((log.end - log.start).sum()) * scale * 14.0


def test_the_bars_cover_the_device_seconds(tmp_path: Path) -> None:
    compared = played(tmp_path)
    for outcome in compared.shown:
        drawn, held = area(outcome, float(np.nanmax(outcome.end)))
        assert drawn == pytest.approx(held, rel=0.02)


def test_short_tasks_are_drawn_together_and_not_lost(tmp_path: Path) -> None:
    many = "count = 3000\nmedian_s = 60.0\nsigma = 0.0\n[[classes]]\nsizes = [1]\n"
    outcome = played(tmp_path, many, "1x1").shown[0]
    svg = draw_lanes(outcome, choose_palette(outcome.tasks), float(np.nanmax(outcome.end)), "lanes")
    path = re.search(r'd="M([\d.]+) [\d.]+h([\d.]+)" stroke="var\(--run\)"', svg)
    assert path
    assert svg.count("<title>") == 0
    assert float(path[2]) == pytest.approx(1100 - 64 - 6, rel=0.001)  # one device, never free


class Outline(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in {"src", "href"}]


def test_the_page_stands_alone_and_names_stay_text(tmp_path: Path) -> None:
    text = render_task_page(played(tmp_path))
    outline = Outline()
    outline.feed(text)
    assert "script" not in outline.tags
    assert all(link.startswith("#") for link in outline.links)
    assert "url(http" not in text
    assert "prefers-color-scheme: dark" in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text


def test_the_same_replay_gives_the_same_page(tmp_path: Path) -> None:
    assert render_task_page(played(tmp_path)) == render_task_page(played(tmp_path))


def test_without_models_tasks_are_coloured_by_size(tmp_path: Path) -> None:
    compared = played(tmp_path, "count = 40\n[[classes]]\nsizes = [1, 2, 8]\n", "1x8")
    palette = choose_palette(compared.trace.tasks)
    assert [shade.label for shade in palette.shades] == ["1 device", "2 to 4 devices", "5 to 8 devices"]
    for count, row in zip(compared.trace.tasks.devices, palette.of_task, strict=True):
        assert row == {1: 0, 2: 1, 8: 2}[int(count)]


@pytest.mark.parametrize("span", [1e-6, 0.5, 9, 61, 4000, 90000, 7e6, 3e8, 1e11])
def test_ticks_are_few_and_round(span: float) -> None:
    marks = ticks(span)
    assert marks[0] == 0
    assert 1 <= len(marks) <= 11 or span > 1e10
    assert marks[-1] <= span


def test_lengths_of_time_are_short() -> None:
    assert [clock(s) for s in (0, 5, 90, 9000, 86400, 864000, 9e9)] == [
        "0", "5 s", "1.5 min", "2.5 h", "24 h", "10 d", "104167 d"
    ]  # fmt: skip
