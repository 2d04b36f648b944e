"""The report's content, ready for the template: text, tables and pictures, no numbers left to format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mirage.replay.metrics import ALL
from mirage.replay.plots import (
    PolicyStyle,
    plot_distribution,
    plot_queue,
    plot_timeline,
    plot_trade,
    style_policies,
)
from mirage.replay.results import REACTIVE, LoadClass, build_panel
from mirage.replay.wording import (
    CLASS_MEANING,
    COLUMNS,
    DEFINITIONS,
    describe_intervals,
    describe_replay,
    duration,
    headlines,
    hours,
    instant,
    percent,
    plural,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirage.replay.metrics import PolicyMetrics, ReplayMetrics
    from mirage.replay.results import PairOutcome, Panel, ReplayResult


@dataclass(frozen=True, slots=True)
class PageRow:
    """Style and cells of one policy in a table."""

    style: PolicyStyle
    cells: tuple[tuple[str, str], ...]
    """(figure, interval) by column."""
    overlap: float
    interruption: float
    """Lengths of the row's bars in percent of the longest."""


@dataclass(frozen=True, slots=True)
class PageSection:
    """The policies on one load class."""

    title: str
    rows: tuple[PageRow, ...]


@dataclass(frozen=True, slots=True)
class PagePicture:
    """A plot with its title and caption."""

    title: str
    caption: str
    svg: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """One episode under every policy, and why each submitted when it did."""

    picture: PagePicture
    reasons: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Page:
    """Everything the template prints."""

    title: str
    summary: str
    headlines: tuple[str, ...]
    notes: tuple[str, ...]
    headings: tuple[str, ...]
    sections: tuple[PageSection, ...]
    styles: tuple[PolicyStyle, ...]
    timelines: tuple[Timeline, ...]
    distributions: tuple[PagePicture, ...]
    queue: PagePicture | None
    trade: PagePicture | None
    definitions: tuple[tuple[str, str], ...]
    settings: tuple[tuple[str, str], ...]
    loads: tuple[LoadClass, ...]


def compose_page(result: ReplayResult, metrics: ReplayMetrics) -> Page:
    """Draw and word the report of a replay."""
    panel = build_panel(result.policies, result.outcomes)
    styles = style_policies(result.policies)
    drawable = bool(len(panel.episode))
    return Page(
        title=f"Replay of {result.trace} on {result.cluster}",
        summary=describe_replay(result, metrics),
        headlines=headlines(metrics),
        notes=_notes(result, metrics),
        headings=tuple(column.heading.strip().replace("-\n", "") for column in COLUMNS),
        sections=_sections(metrics, styles),
        styles=styles,
        timelines=_timelines(result, panel, styles) if drawable else (),
        distributions=_distributions(metrics, panel, styles) if drawable else (),
        queue=_queue(result, panel) if len(result.queue.time) else None,
        trade=_trade(metrics, styles) if drawable else None,
        definitions=(*DEFINITIONS, ("load", CLASS_MEANING)),
        settings=_settings(result, metrics),
        loads=panel.classes,
    )


def _notes(result: ReplayResult, metrics: ReplayMetrics) -> tuple[str, ...]:
    """Notes that the reader needs to judge the figures."""
    if not metrics.dropped:
        return result.notes
    lost = f"{plural(metrics.dropped, 'hand-over')} left out, because not every policy completed them."
    return (*result.notes, lost)


def _sections(metrics: ReplayMetrics, styles: Sequence[PolicyStyle]) -> tuple[PageSection, ...]:
    """The whole first, then each load class."""
    return tuple(
        _section(metrics.of_load(load), load, styles)
        for load in (ALL, *(str(load) for load, _ in metrics.classes))
    )


def _section(rows: Sequence[PolicyMetrics], load: str, styles: Sequence[PolicyStyle]) -> PageSection:
    longest = max((max(row.overlap_mean.value, row.interruption_mean.value) for row in rows), default=0.0)
    scale = 100 / longest if longest > 0 else 0.0
    title = "All handovers" if load == ALL else f"{load.capitalize()} load"
    return PageSection(
        title=f"{title} ({rows[0].pairs:,})",
        rows=tuple(
            PageRow(
                style,
                tuple(column.cell(row) for column in COLUMNS),
                _length(row.overlap_mean.value * scale),
                _length(row.interruption_mean.value * scale),
            )
            for style, row in zip(styles, rows, strict=True)
        ),
    )


def _length(share: float) -> float:
    return round(share, 1) if np.isfinite(share) else 0.0


def _timelines(result: ReplayResult, panel: Panel, styles: Sequence[PolicyStyle]) -> tuple[Timeline, ...]:
    """A typical episode of each load class (of all, where there are no classes)."""
    chosen = [(load, _typical(panel, load)) for load in panel.classes or (None,)]
    return tuple(_timeline(result, panel, styles, load, episode) for load, episode in chosen)


def _typical(panel: Panel, load: LoadClass | None) -> int:
    """Number of the episode whose mean x under the first policy (or reactive) is the class's lower median."""
    base = REACTIVE if REACTIVE in panel.policies else panel.policies[0]
    rows = panel.within(load)
    episodes = np.unique(panel.episode[rows])
    means = [panel.row(base)[panel.episode == episode].mean() for episode in episodes]
    middle = episodes[np.argsort(means, kind="stable")[(len(means) - 1) // 2]]
    return int(panel.episode_ids[middle])


def _timeline(
    result: ReplayResult, panel: Panel, styles: Sequence[PolicyStyle], load: LoadClass | None, episode: int
) -> Timeline:
    chains = [_chain(result, style.policy, episode) for style in styles]
    begun = instant(chains[0][0].episode_start)
    gaps = "; ".join(f"{chain[0].policy} {_gaps(chain)}" for chain in chains)
    name = load or "episode"
    picture = PagePicture(
        title=f"{str(load).capitalize()} load" if load else "A typical episode",
        caption=f"Episode {episode}, first link submitted {begun}; the median one of its class.",
        svg=plot_timeline(f"timeline-{name}", f"Timeline of episode {episode} by policy: {gaps}.", styles, chains),
    )
    reasons = ((pair.policy, pair.decision) for chain in chains for pair in chain)
    return Timeline(picture, tuple(reasons))


def _chain(result: ReplayResult, policy: str, episode: int) -> list[PairOutcome]:
    pairs = [o for o in result.outcomes if o.policy == policy and o.episode == episode]
    return sorted(pairs, key=lambda pair: pair.pair)


def _gaps(chain: Sequence[PairOutcome]) -> str:
    words = (f"{hours(abs(pair.x) / 3_600)} h {'interruption' if pair.x > 0 else 'overlap'}" for pair in chain)
    return ", ".join(words)


def _distributions(metrics: ReplayMetrics, panel: Panel, styles: Sequence[PolicyStyle]) -> tuple[PagePicture, ...]:
    return tuple(_distribution(metrics, panel, styles, load) for load in (None, *panel.classes))


def _distribution(
    metrics: ReplayMetrics, panel: Panel, styles: Sequence[PolicyStyle], load: LoadClass | None
) -> PagePicture:
    rows = panel.within(load)
    values = [panel.row(style.policy)[rows] / 3_600 for style in styles]
    medians = "; ".join(
        f"{style.policy} {hours(float(np.median(x)))} h" for style, x in zip(styles, values, strict=True)
    )
    name = str(load or ALL)
    return PagePicture(
        title=f"{name.capitalize()} load" if load else "All handovers",
        caption=plural(int(rows.sum()), "handover"),
        svg=plot_distribution(
            f"cdf-{name}", f"Cumulative distribution of x, {name}. Medians: {medians}.", styles, values
        ),
    )


def _queue(result: ReplayResult, panel: Panel) -> PagePicture:
    queue = result.queue
    most = int(queue.pending_nodes.max())
    busy = float(queue.busy_nodes.mean())
    alt = f"Queue and busy nodes over time: at most {most} nodes asked for, {busy:.1f} busy on average."
    share = percent(busy / queue.total_nodes) if queue.total_nodes else ""
    return PagePicture(
        title="Queue and nodes",
        caption=f"On average {busy:.1f} of {queue.total_nodes} nodes busy ({share}); at most "
        f"{int(queue.pending_jobs.max()):,} jobs waiting, for {most:,} nodes.",
        svg=plot_queue("queue", alt, queue, panel),
    )


def _trade(metrics: ReplayMetrics, styles: Sequence[PolicyStyle]) -> PagePicture:
    rows = metrics.of_load()
    points = "; ".join(
        f"{row.policy} {hours(row.overlap_mean.value)} h and {hours(row.interruption_mean.value)} h"
        for row in rows
    )
    return PagePicture(
        title="Interruption against overlap",
        caption="Means over all handovers, with intervals. Policies on one diagonal have the same mean |x|; "
        "nearer to the corner is better.",
        svg=plot_trade("trade", f"Mean overlap and mean interruption: {points}.", styles, rows),
    )


def _settings(result: ReplayResult, metrics: ReplayMetrics) -> tuple[tuple[str, str], ...]:
    classes = ", ".join(f"{count} {load}" for load, count in metrics.classes)
    return (
        ("Trace", result.trace),
        ("Cluster", result.cluster),
        (
            "Chain",
            f"{plural(result.links, 'link')}, {plural(result.nodes, 'node')}, {duration(result.limit)} each",
        ),
        ("Episodes", f"{metrics.episodes:,} from {instant(result.start)} to {instant(result.end)}"),
        ("Between episodes", duration(result.every)),
        ("Load of the episodes", classes or "not classed: the reactive policy was not replayed"),
        ("Between decisions", duration(result.tick)),
        ("Price of overlap given to policies", f"{result.overlap_price:g} per hour of interruption"),
        ("Jobs that the cluster rejected", f"{result.rejected_jobs:,}"),
        ("Seed", str(result.seed)),
        ("Intervals", describe_intervals(metrics)),
    )
