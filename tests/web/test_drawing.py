"""Drawn charts: times at their places, nothing over something else, nothing lost."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from fractions import Fraction
from html import unescape
from itertools import combinations
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirage.api.routes.chaindocuments import EntryDocument
from mirage.api.routes.predictors import CalibrationPoint, PredictorList, predictor_documents, shadow_result
from mirage.api.web.calibration import LEFT, SIDE, TOP, draw_curve, likely_shares
from mirage.api.web.chainpage import condense
from mirage.api.web.lanes import Lane, Piece, draw_lane
from mirage.api.web.picture import LinkTimes, chain_strokes, handovers
from mirage.api.web.predictionpages import _rows
from mirage.api.web.rendering import spoken, told
from mirage.api.web.timeaxis import Axis, calendar, relative, seconds_of, span
from mirage.domain.bounds import STEERING
from mirage.replay.shadows import ShadowScore

instants = st.integers(0, 4_000_000_000)
spans = st.tuples(instants, instants).map(sorted).filter(lambda pair: pair[1] > pair[0])


@given(spans, instants, instants)
def test_an_axis_keeps_the_order_of_instants(ends: list[int], one: int, other: int) -> None:
    axis = Axis(*ends)
    assert 0 <= axis.at(one) <= 100
    assert (axis.at(one) <= axis.at(other)) or one > other


@given(spans)
def test_ticks_are_few_and_round(ends: list[int]) -> None:
    axis = Axis(*ends)
    assert len(axis.ticks) <= 8
    for tick in axis.ticks:
        assert axis.shows(tick.instant)
        assert tick.instant % 60 == 0
        assert tick.at == axis.at(tick.instant)


@given(st.lists(instants, min_size=1))
def test_an_axis_around_instants_shows_them_all(shown: list[int]) -> None:
    axis = Axis.around(shown)
    assert all(axis.shows(each) for each in shown)


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(1, 200)), max_size=12))
def test_pieces_of_a_lane_never_cover_each_other(parts: list[tuple[int, int]]) -> None:
    pieces = tuple(Piece(start, start + length, "x") for start, length in parts)
    drawn = draw_lane(Lane("n1", pieces), Axis(-1, 1_000))
    assert len(drawn.bars) == len(pieces)
    for one, other in combinations(drawn.bars, 2):
        apart = one.piece.end <= other.piece.start or other.piece.end <= one.piece.start
        assert one.row != other.row or apart
    most_at_once = max((sum(a.start <= b.start < a.end for a in pieces) for b in pieces), default=1)
    assert drawn.rows == most_at_once, "no more rows than concurrent bars"


def test_handovers_are_told_apart() -> None:
    lives = [
        LinkTimes(1, False, 0, 10, 100),
        LinkTimes(2, False, 0, 130, 200),
        LinkTimes(3, False, 0, 180, 300),
        LinkTimes(4, True, 0, 300, 400),
    ]
    assert [each.seconds for each in handovers(lives, 350)] == [30, -20, 0]
    axis = Axis(0, 400)
    kinds = [stroke.kind for each in handovers(lives, 350) for stroke in each.strokes(axis)]
    assert kinds == ["gap", "both"]


@pytest.mark.parametrize("runs", [True, False])
def test_successors_that_crash_interrupt_no_link_that_outlasts_them(runs: bool) -> None:
    lives = [
        LinkTimes(1, runs, 0, 0, 300),
        LinkTimes(2, False, 0, 100, 110),
        LinkTimes(3, False, 0, 200, 210, in_vain=True),
        LinkTimes(4, False, 0, 250, 260),
    ]
    assert [(each.after.index, each.seconds) for each in handovers(lives, 300)] == [(2, -10), (4, -10)]
    after = [*lives, LinkTimes(5, False, 0, 320, 400)]
    assert [each.seconds for each in handovers(after, 400)][2:] == ([-80] if runs else [20])


def test_an_interruption_that_lasts_is_drawn_to_now() -> None:
    strokes = chain_strokes((), Axis(0, 400), 300, down_since=100)
    assert [(each.kind, each.x, each.width) for each in strokes] == [("gap", 25, 50)]
    assert chain_strokes((), Axis(0, 400), 300) == ()


def test_a_running_link_is_drawn_to_now_and_from_now_on() -> None:
    strokes = list(LinkTimes(1, True, 0, 100, 300).strokes(Axis(0, 400), 200))
    assert [(each.kind, each.x, each.width) for each in strokes] == [
        ("wait", 0, 25),
        ("ran", 25, 25),
        ("ahead", 50, 25),
    ]


kinds = st.sampled_from(["decision", "shadow", "event", "action", "trouble"])
texts = st.sampled_from(["hold: in 3 h", "hold: in 4 h", "submit: now", "gone"])


@given(st.lists(st.tuples(kinds, texts, st.sampled_from([1, 2]))))
def test_a_story_tells_all_but_shadows(said: list[tuple[str, str, int]]) -> None:
    entries = [
        EntryDocument(time=None, kind=kind, text=text, link=link, predictor="", key="")
        for kind, text, link in said
    ]
    told = condense(entries)
    assert sum(passage.times for passage in told) == sum(kind != "shadow" for kind, _, _ in said)
    assert all(passage.times == 1 for passage in told if passage.entry.kind in ("event", "action"))


def test_words_for_time() -> None:
    assert [span(seconds) for seconds in (0, 59, 60, 3_599, 3_600, 7_500, 90_000)] == [
        *("0 s", "59 s", "1 min", "59 min", "1 h", "2 h 5 min", "1 d 1 h")
    ]
    assert relative(100, 100) == "now"
    assert relative(160, 100) == "in 1 min"
    assert relative(40, 100) == "1 min ago"
    assert calendar(seconds_of("2026-11-21T14:36:00Z") or 0) == "21 Nov 14:36 UTC"


def test_instants_within_sentences_are_for_people_and_the_rest_stays_as_it_is() -> None:
    text = str(told("link 3 started at 2026-11-22T16:32:23Z, <b>job 1795365143x</b>"))
    first, _, rest = text.partition("</time>")
    assert first == 'link 3 started at <time datetime="2026-11-22T16:32:23Z">22 Nov 16:32 UTC'
    assert rest.startswith(", &lt;b&gt;job ")
    assert "<b>" not in text


def unsteered(text: str) -> str:
    return "".join("?" if STEERING.match(each) and each not in "\t\n\r" else each for each in text)


@given(st.text())
def test_no_sentence_brings_markup_of_its_own(text: str) -> None:
    assert "<" not in re.sub(r"</?time[^<>]*>", "", str(told(text)))
    assert unescape(re.sub(r"<[^>]*>", "", str(told(text)))) == unsteered(text) or re.search(
        r"\d{4}-\d\d-\d\dT", text
    )


@given(st.integers(1, 400), st.floats(0.01, 0.99))
def test_likely_shares_are_the_binomials(forecasts: int, level: float) -> None:
    """Against the sum of the exact chances, in fractions."""
    low, high = likely_shares(level, forecasts)
    within = sum(
        comb(forecasts, count) * Fraction(level) ** count * (1 - Fraction(level)) ** (forecasts - count)
        for count in range(round(low * forecasts), round(high * forecasts) + 1)
    )
    assert within >= Fraction(9, 10) - Fraction(1, 10**6)
    assert low <= level + 1 / forecasts
    assert high >= level - 1 / forecasts


def test_a_curve_is_drawn_where_its_points_say() -> None:
    points = [CalibrationPoint(level=level, share=share, forecasts=20) for level, share in ((0, 0), (0.5, 1))]
    curve = draw_curve(points)
    assert curve is not None
    assert curve.dots == ((LEFT, TOP + SIDE), (LEFT + SIDE / 2, TOP))
    assert curve.words.endswith("P0: 0% of 20; P50: 100% of 20.")
    assert curve.forecasts == 20
    assert draw_curve([]) is None


def test_predictors_have_a_row_for_each_partition() -> None:
    """And one for those that were measured in none."""
    measured = ShadowScore("quantile", True, 3, *[math.nan] * 4, 0, *[math.nan] * 5)
    results = [
        shadow_result(replace(measured, partition=where, absolute_error=error))
        for where, error in (("", 1.0), ("cpu", 0.0), ("gpu", 5.0))
    ]
    at_work = predictor_documents(("quantile", (), "reactive"), {}, {})
    rows = _rows(PredictorList(installed=[], predictors=at_work, models=[]), results, 1.0)
    assert [(row.name, row.where, row.measured and row.measured.absolute_error) for row in rows] == [
        ("quantile", "unknown partition", 1.0),
        ("quantile", "cpu", 0.0),
        ("quantile", "gpu", 5.0),
        ("reactive", "", None),
    ]


@given(st.text())
def test_what_is_spoken_keeps_its_words_and_nothing_of_it_is_markup(text: str) -> None:
    shown = str(spoken(text))
    assert unescape(re.sub("</?code>", "", shown)).replace("`", "") == unsteered(text).replace("`", "")
    assert set(re.findall("<[^>]*>", shown)) <= {"<code>", "</code>"}


def test_commands_in_a_sentence_look_so() -> None:
    assert spoken("there is none; `mirage chains` lists `<b>`") == (
        "there is none; <code>mirage chains</code> lists <code>&lt;b&gt;</code>"
    )


@given(st.integers(1, 900), st.text(min_size=1, max_size=60))
def test_a_label_that_fits_a_phone_fits_everywhere(length: int, label: str) -> None:
    (bar,) = draw_lane(Lane("n1", (Piece(0, length, label),)), Axis(0, 1_000)).bars
    longer = draw_lane(Lane("n1", (Piece(0, 1_000, label),)), Axis(0, 1_000)).bars[0]
    order = ("none", "wide", "all")
    assert order.index(bar.fits) <= order.index(longer.fits)
    assert (bar.fits == "none") == (6.8 * len(label) + 9 > 1_040 * bar.width / 100)


@given(spans)
def test_midnights_are_dates(ends: list[int]) -> None:
    """Otherwise the day of a noon would be ambiguous."""
    axis = Axis(*ends)
    assert all(tick.is_date == (tick.instant % 86_400 == 0) for tick in axis.ticks)
    assert axis.by_days == all(tick.is_date for tick in axis.ticks)
