"""Cells of compared policies: means and deviations by hand, and which is the best."""

from __future__ import annotations

import math

import pytest

from mirage.allocation.comparing import UNKNOWN, FigureColumn

RUNS = {"one": [1.0, 3.0], "two": [2.0, 2.02], "three": [4.0, 4.0]}


def bold(column: FigureColumn[float], **runs: list[float]) -> list[str]:
    return [policy for policy, cell in column.cells(runs).items() if cell.best]


def test_cells_have_the_mean_and_the_deviation_over_seeds() -> None:
    cells = FigureColumn("h", "key", "", float, scale=100.0, digits=0).cells(RUNS)
    assert {policy: (cell.mean, cell.spread) for policy, cell in cells.items()} == {
        "one": ("200", "141"),  # the square root of 2
        "two": ("201", "1"),
        "three": ("400", "0"),
    }
    assert not any(cell.best for cell in cells.values())


@pytest.mark.parametrize(("best", "found"), [(min, ["one"]), (max, ["three"]), (None, [])])
def test_best_mean_is_marked(best: object, found: list[str]) -> None:
    assert bold(FigureColumn("h", "key", "", float, digits=2, best=best), **RUNS) == found


def test_what_is_shown_alike_is_the_best_together_or_not_at_all() -> None:
    column = FigureColumn("h", "key", "", float, digits=1, best=min)
    assert bold(column, **RUNS) == ["one", "two"]
    assert bold(column, one=[1.0], two=[1.01]) == []


def test_unknown_figures_are_never_the_best() -> None:
    column = FigureColumn("h", "key", "", float, best=min)
    assert bold(column, none=[math.nan], one=[1.0], two=[2.0]) == ["one"]
    assert bold(column, none=[math.nan], one=[1.0]) == []
    cell = column.cells({"none": [math.nan, 1.0]})["none"]
    assert (cell.mean, cell.spread) == (UNKNOWN, "")
