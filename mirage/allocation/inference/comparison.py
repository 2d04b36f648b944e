"""Figures of compared policies as text and numbers: columns of every table, Markdown and JSON."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from mirage.allocation.comparing import (
    UNKNOWN,
    FigureCell,
    FigureColumn,
    deviation,
    markdown_cell,
    markdown_table,
    number,
)

if TYPE_CHECKING:
    from mirage.allocation.inference.outcome import RequestFigures
    from mirage.allocation.inference.replay import ComparedPolicies, PolicyRun

BOUND = "no policy exceeds"
"""Row name of the bound; see ``bound``."""


def _policy_share(run: PolicyRun) -> float:
    """Percentage; NaN without any energy."""
    figures = run.figures
    spent = figures.all.joules + figures.idle_joules
    return figures.policy_joules / spent if spent > 0 else math.nan


COLUMNS: tuple[FigureColumn[PolicyRun], ...] = (
    FigureColumn(
        "SLA, %",
        "satisfaction",
        "share of the requests that are answered before their deadline",
        lambda run: run.figures.all.satisfaction,
        scale=100.0,
        best=max,
    ),
    FigureColumn(
        "worst tenant, %",
        "worst",
        "the same share, of the tenant with the smallest",
        lambda run: run.figures.worst,
        scale=100.0,
        best=max,
    ),
    FigureColumn(
        "Jain",
        "jain",
        "Jain's index of these shares over the tenants: 1 where all are equal",
        lambda run: run.figures.jain,
        digits=3,
        best=max,
    ),
    FigureColumn(
        "p50, ms",
        "p50_latency",
        "the latency, from arrival to answer, that half of the requests do not exceed",
        lambda run: run.figures.all.p50_latency,
        scale=1e3,
        best=min,
    ),
    FigureColumn(
        "p99, ms",
        "p99_latency",
        "the latency that 99 % of the requests do not exceed",
        lambda run: run.figures.all.p99_latency,
        scale=1e3,
        best=min,
    ),
    FigureColumn(
        "ANTT",
        "antt",
        "latency over the time of the model alone on the best kind of unit, mean",
        lambda run: run.figures.all.antt,
        digits=2,
        best=min,
    ),
    FigureColumn(
        "STP",
        "stp",
        "seconds of work, as alone on the best kind, answered per second",
        lambda run: run.figures.stp,
        digits=2,
        best=max,
    ),
    FigureColumn(
        "energy, mJ",
        "joules",
        "energy of a request's segments, mean",
        lambda run: run.figures.all.joules,
        scale=1e3,
        digits=3,
        best=min,
    ),
    FigureColumn(
        "idle, mJ",
        "idle_joules",
        "energy of idle units, per request",
        lambda run: run.figures.idle_joules,
        scale=1e3,
        digits=3,
    ),
    FigureColumn(
        "policy, mJ",
        "policy_joules",
        "energy of decisions, per request",
        lambda run: run.figures.policy_joules,
        scale=1e3,
        digits=4,
    ),
    FigureColumn(
        "policy, %",
        "policy_share",
        "energy of decisions, as a share of that of segments and idle units",
        _policy_share,
        scale=100.0,
        digits=2,
    ),
    FigureColumn(
        "units busy, %",
        "utilisation",
        "busy share of the units' time, until the last answer",
        lambda run: run.figures.utilisation,
        scale=100.0,
    ),
    FigureColumn(
        "bandwidth, %",
        "bandwidth_use",
        "bytes moved, as a share of the possible bytes until the last answer",
        lambda run: run.figures.bandwidth_use,
        scale=100.0,
    ),
)


FOREMOST = ("satisfaction", "worst", "joules", "policy_share")
"""Keys of the columns of the short table."""


@dataclass(frozen=True, slots=True)
class PolicyLine:
    """One policy in the table of a scenario."""

    policy: str
    cells: tuple[FigureCell, ...]
    tenants: tuple[FigureCell, ...]
    """Satisfaction of the tenants, in percent."""


def lines(compared: ComparedPolicies, scenario: str) -> tuple[PolicyLine, ...]:
    """The table of one scenario, in the order of the policies."""
    runs = {policy: compared.of(scenario, policy) for policy in compared.replay.policies}
    cells = {column: column.cells(runs) for column in (*COLUMNS, *_tenant_columns(compared, scenario))}
    return tuple(
        PolicyLine(
            policy,
            tuple(cells[column][policy] for column in COLUMNS),
            tuple(cells[column][policy] for column in list(cells)[len(COLUMNS) :]),
        )
        for policy in compared.replay.policies
    )


def tenants(compared: ComparedPolicies, scenario: str) -> tuple[str, ...]:
    """Names of the tenants."""
    return tuple(tenant.name for tenant in compared.stage(scenario).scenario.tenants)


def _tenant_columns(compared: ComparedPolicies, scenario: str) -> tuple[FigureColumn[PolicyRun], ...]:
    return tuple(
        FigureColumn(name, name, "", lambda run, row=row: run.tenants[row].satisfaction, scale=100.0, best=max)  # type: ignore[misc]
        for row, name in enumerate(tenants(compared, scenario))
    )


def bounded_lines(compared: ComparedPolicies, scenario: str) -> tuple[PolicyLine, ...]:
    """The table and, if requested, the bound that no policy can exceed."""
    bounds, column = compared.bounds_of(scenario), COLUMNS[0]
    table = lines(compared, scenario)
    if not bounds:
        return table
    others = (FigureCell(UNKNOWN, "", best=False),) * (len(COLUMNS) - 1)
    bound = FigureCell(column.show(fmean(bounds)), column.show_deviation(bounds), best=False)
    return (*table, PolicyLine(BOUND, (bound, *others), others[:1] * len(tenants(compared, scenario))))


def markdown(compared: ComparedPolicies) -> str:
    """The main figures by policy and scenario; then a table for each scenario, with its description."""
    overviews = [_overview(compared, key) for key in FOREMOST] if len(compared.replay.scenarios) > 1 else []
    return "\n".join([*overviews, *(_markdown(compared, scenario) for scenario in compared.replay.scenarios)])


def _overview(compared: ComparedPolicies, key: str) -> str:
    """One figure: policies down, scenarios across."""
    place = [column.key for column in COLUMNS].index(key)
    tables = [bounded_lines(compared, scenario) for scenario in compared.replay.scenarios]
    rows = [
        (same[0].policy, *(markdown_cell(line.cells[place]) for line in same))
        for same in zip(*tables, strict=True)
        if place == 0 or same[0].policy != BOUND
    ]
    names = [compared.stage(scenario).scenario.name for scenario in compared.replay.scenarios]
    column = COLUMNS[place]
    return f"{column.heading}: {column.meaning}.\n\n{markdown_table(('policy', *names), rows, words=1)}\n"


def _markdown(compared: ComparedPolicies, scenario: str) -> str:
    parts = [f"SLA of {name}, %" for name in tenants(compared, scenario)]
    headings = ("policy", *(column.heading for column in COLUMNS), *parts)
    rows = [
        (line.policy, *(markdown_cell(cell) for cell in (*line.cells, *line.tenants)))
        for line in bounded_lines(compared, scenario)
    ]
    return f"{describe(compared, scenario)}\n\n{markdown_table(headings, rows, words=1)}\n"


def describe(compared: ComparedPolicies, scenario: str) -> str:
    """A description of the runs, in a sentence."""
    stage = compared.stage(scenario)
    played = stage.scenario
    units = ", ".join(f"{group.count} x {group.kind}" for group in played.units)
    shared = (
        f" that share {played.bandwidth / 1e9:g} GB/s ({played.sharing})"
        if math.isfinite(played.bandwidth)
        else ""
    )
    counts = [run.figures.all.requests for run in compared.of(scenario, compared.replay.policies[0])]
    many = f"{len(counts)} seeds of some {round(fmean(counts)):,}" if len(counts) > 1 else f"{counts[0]:,}"
    load = f"{100 * played.load:g} % of their capacity" if math.isfinite(played.load) else "a trace"
    asked = f"{many} requests in {played.duration:g} s, {load}"
    return f"{played.name}: {asked}, on {units}{shared}; costs {played.costs}."


def document(compared: ComparedPolicies) -> dict[str, Any]:
    """All figures as JSON, without the log of units; missing figures are null."""
    return {
        "seeds": list(compared.replay.seeds),
        "scenarios": [
            {
                "scenario": scenario,
                "tenants": list(tenants(compared, scenario)),
                "bounds": list(compared.bounds_of(scenario)) or None,
                "policies": [_policy_document(compared, scenario, policy) for policy in compared.replay.policies],
            }
            for scenario in compared.replay.scenarios
        ],
    }


def _policy_document(compared: ComparedPolicies, scenario: str, policy: str) -> dict[str, Any]:
    runs = compared.of(scenario, policy)
    values = {column.key: [float(column.of(run)) for run in runs] for column in COLUMNS}
    return {
        "policy": policy,
        "mean": {key: number(fmean(those)) for key, those in values.items()},
        "deviation": {key: number(deviation(those)) for key, those in values.items()},
        "runs": [_run_document(compared, run) for run in runs],
    }


def _run_document(compared: ComparedPolicies, run: PolicyRun) -> dict[str, Any]:
    models = compared.stage(run.scenario).costs.models
    return {
        "seed": run.seed,
        **{column.key: number(float(column.of(run))) for column in COLUMNS},
        "pieces": run.figures.pieces,
        "decisions": run.figures.decisions,
        "tenants": dict(zip(tenants(compared, run.scenario), map(_group_document, run.tenants), strict=True)),
        "models": {
            name: _group_document(figures)
            for name, figures in zip(models, run.models, strict=True)
            if figures.requests
        },
    }


def _group_document(figures: RequestFigures) -> dict[str, Any]:
    return {key: number(value) if isinstance(value, float) else value for key, value in asdict(figures).items()}
