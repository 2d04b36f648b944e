"""The report of a replay of requests as one HTML file that needs nothing else: no scripts, both themes."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from mirage.allocation.ddl.formats.table import task_table
from mirage.allocation.ddl.outcome import Segments as DrawnSegments
from mirage.allocation.ddl.outcome import TaskRunResult as DrawnOutcome
from mirage.allocation.inference.comparison import COLUMNS, describe, lines, tenants
from mirage.domain.pool import Pool
from mirage.replay.html import open_report
from mirage.replay.taskpage import Picture

if TYPE_CHECKING:
    from pathlib import Path

    from mirage.allocation.comparing import FigureCell, FigureColumn
    from mirage.allocation.inference.outcome import RequestRunResult
    from mirage.allocation.inference.replay import ComparedPolicies, PolicyRun
    from mirage.replay.plots import PolicyStyle
    from mirage.replay.svg import Palette, Shade

_PIECES = 60
"""Number of segments of median length in the width of a plot: shorter ones would be indistinguishable."""


@dataclass(frozen=True, slots=True)
class ScenarioPart:
    """Plots and texts of one scenario."""

    name: str
    summary: str
    headline: str
    headings: tuple[str, ...]
    rows: tuple[tuple[PolicyStyle, tuple[FigureCell, ...]], ...]
    shades: tuple[Shade, ...]
    lanes: tuple[Picture, ...]


@dataclass(frozen=True, slots=True)
class RequestPage:
    """Everything the template prints."""

    title: str
    parts: tuple[ScenarioPart, ...]
    columns: tuple[FigureColumn[PolicyRun], ...]
    seeds: str


def write_request_page(path: Path, compared: ComparedPolicies) -> None:
    """Write the report to ``path``. Raises ``MissingExtra`` without matplotlib."""
    path.write_text(render_request_page(compared), encoding="utf-8")


def render_request_page(compared: ComparedPolicies) -> str:
    """The report as text; the same replay gives the same bytes."""
    return open_report("requests.html.j2").render(page=compose_request_page(compared))


def compose_request_page(compared: ComparedPolicies) -> RequestPage:
    """Draw the plots and format the texts of a request replay."""
    count = len(compared.replay.policies)
    parts = tuple(
        _part(compared, scenario, compared.shown[row * count : (row + 1) * count])
        for row, scenario in enumerate(compared.replay.scenarios)
    )
    names = ", ".join(part.name for part in parts)
    return RequestPage(f"Requests of {names}", parts, COLUMNS, ", ".join(map(str, compared.replay.seeds)))


def _part(compared: ComparedPolicies, scenario: str, shown: tuple[RequestRunResult, ...]) -> ScenarioPart:
    from mirage.replay.plots import style_policies
    from mirage.replay.svg import choose_palette

    table = lines(compared, scenario)
    window = _window(shown[0])
    drawn = [_drawn(outcome, *window) for outcome in shown]
    palette = choose_palette(drawn[0].tasks)
    best = [f"{line.policy} ({line.cells[0].mean} %)" for line in table if line.cells[0].best]
    headline = f"Most deadlines are kept under {', '.join(best)}." if best else ""
    bounds = compared.bounds_of(scenario)
    if bounds:
        headline = f"{headline} No policy can keep more than {COLUMNS[0].show(fmean(bounds))} %.".strip()
    return ScenarioPart(
        name=compared.stage(scenario).scenario.name,
        summary=describe(compared, scenario),
        headline=headline,
        headings=(
            *(column.heading for column in COLUMNS),
            *(f"SLA of {name}, %" for name in tenants(compared, scenario)),
        ),
        rows=tuple(
            (style, (*line.cells, *line.tenants))
            for style, line in zip(style_policies([line.policy for line in table]), table, strict=True)
        ),
        shades=palette.shades,
        lanes=tuple(
            _lanes(policy, outcome, palette, *window)
            for policy, outcome in zip(compared.replay.policies, drawn, strict=True)
        ),
    )


def _lanes(policy: str, drawn: DrawnOutcome, palette: Palette, begin: float, last: float) -> Picture:
    from mirage.replay.svg import clock, draw_lanes

    return Picture(
        policy,
        f"{clock(last - begin)} of the first seed, from {clock(begin)} on, when the most requests are due.",
        draw_lanes(drawn, palette, last, f"Units over time under {policy}"),
    )


def _window(shown: RequestRunResult) -> tuple[float, float]:
    """When the pictures of a scenario begin and end: from where the most requests are due that have come.

    That is the same for all policies, and where they differ: at first no policy has to choose.
    """
    log, requests = shown.segments, shown.requests
    if not len(log):
        return 0.0, 1.0
    due = np.searchsorted(np.sort(requests.deadline), requests.arrival)
    begin = float(requests.arrival[np.argmax(np.arange(len(requests)) - due)])
    return begin, begin + _PIECES * float(np.median(log.end - log.begin))


def _drawn(outcome: RequestRunResult, begin: float, last: float) -> DrawnOutcome:
    """As the pictures of pools are: a unit is a device, and units of one kind are a node."""
    log, requests, system = outcome.segments, outcome.requests, outcome.system
    seen = (log.begin < last) & (log.end > begin)
    come = max(int((requests.arrival < last).sum()), 1)
    by_kind = np.argsort(system.kind, kind="stable")
    tasks = task_table(
        tuple(f"request {number}" for number in range(come)),
        submit=np.maximum(requests.arrival[:come], begin),
        model=[outcome.costs.models[row] for row in requests.model[:come]],
    )
    none, missing = np.zeros(come, dtype=np.int64), np.full(come, np.nan)
    return DrawnOutcome(
        tasks=tasks,
        pool=_pool(outcome, by_kind),
        start=missing,
        end=missing,
        served=missing,
        preemptions=none,
        fee=missing,
        segments=DrawnSegments(
            task=log.request[seen],
            device=np.argsort(by_kind)[log.unit[seen]],
            start=np.maximum(log.begin[seen], begin),
            end=np.minimum(log.end[seen], last),
        ),
        fragmentation=0.0,
    )


def _pool(outcome: RequestRunResult, by_kind: np.ndarray) -> Pool:
    kinds, node = np.unique(outcome.system.kind[by_kind], return_inverse=True)
    names = tuple(outcome.costs.kinds[kind] for kind in kinds)
    count, units = len(names), len(node)
    return Pool(
        node_names=names,
        cpus=np.zeros(count, np.int32),
        memory_mb=np.zeros(count, np.int64),
        switch=np.zeros(count, np.int32),
        device_node=node.astype(np.int32),
        device_index=np.arange(units, dtype=np.int32),
        device_kind=node.astype(np.int32),
        island=np.arange(units, dtype=np.int32),
        kinds=names,
        price=np.zeros(count),
    )
