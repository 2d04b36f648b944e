"""An evaluation as a table on the terminal, as Markdown, as one JSON document, and as one HTML file.

The HTML file is self-contained, without scripts and requests.
"""

from __future__ import annotations

from dataclasses import asdict
from html import escape
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from mirage.replay.metrics import for_json
from mirage.replay.results import ORACLE, REACTIVE
from mirage.replay.wording import (
    ReportColumn,
    duration,
    hours,
    hours_cell,
    instant,
    percent,
    plural,
    share_cell,
)
from mirage.training.evaluation.playing import PROBES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirage.replay.wording import Cell
    from mirage.training.evaluation.figures import FigureRow, Figures, Spread
    from mirage.training.evaluation.plan import EvaluationPlan, EvaluationSetting


def _hours(spread: Spread | None) -> Cell:
    return hours_cell(None if spread is None else spread.mean)


def _share(spread: Spread | None) -> Cell:
    return share_cell(None if spread is None else spread.mean)


def _seeds(row: FigureRow) -> Cell:
    """Smallest and largest mean |x| among the seeds."""
    if row.seeds < 2:
        return "", ""
    return f"{hours(row.distance.least)} to {hours(row.distance.most)}", ""


def _coverage(row: FigureRow) -> Cell:
    known = row.calibration
    return ("", "") if known is None or known.coverage is None else (percent(known.coverage), "")


def _pinball(row: FigureRow) -> Cell:
    known = row.calibration
    if known is None:
        return "", ""
    partly = f"{known.answered} of {known.asked}" if known.answered < known.asked else ""
    return hours(known.pinball), partly


def _milliseconds(row: FigureRow) -> Cell:
    return ("", "") if row.method.name in (REACTIVE, ORACLE) else (f"{row.decision_ms:.2g}", "")


def _training(row: FigureRow) -> Cell:
    return ("", "") if row.training_s is None else (f"{row.training_s:.0f}", "")


FULL_WIDTH = 190
"""Columns of the terminal that every figure needs."""

_ENDS = (REACTIVE, ORACLE)
"""The two ends of the gap."""

COLUMNS: tuple[ReportColumn[FigureRow], ...] = (
    ReportColumn("mean |x|, h", lambda row: _hours(row.distance), essential=True),
    ReportColumn("by seed", _seeds),
    ReportColumn("interruption, h", lambda row: _hours(row.interruption), essential=True),
    ReportColumn("overlap, h", lambda row: _hours(row.overlap), essential=True),
    ReportColumn("no interruption", lambda row: _share(row.uninterrupted)),
    ReportColumn("within 30 min", lambda row: _share(row.close), essential=True),
    ReportColumn(
        "less interrupted", lambda row: _share(row.less_interrupted) if row.method.name != REACTIVE else ("", "")
    ),
    ReportColumn(
        "gap closed",
        lambda row: _share(row.gap_closed) if row.method.name not in _ENDS else ("", ""),
        essential=True,
    ),
    ReportColumn(
        "regret, h", lambda row: _hours(row.regret) if row.method.name != ORACLE else ("", ""), essential=True
    ),
    ReportColumn("P10-P90 covers", _coverage),
    ReportColumn("pinball, h", _pinball),
    ReportColumn("decision, ms", _milliseconds),
    ReportColumn("training, s", _training),
)
_BARE = ("less interrupted", "regret, h")
"""Columns without interval on a narrow terminal."""


def describe(plan: EvaluationPlan, figures: Figures) -> tuple[str, ...]:
    """A description of the evaluation and its columns, in sentences."""
    how = figures.resampling
    leads = ", ".join(duration(lead) for lead in PROBES)
    sentences = [
        f"Episodes begin every {duration(plan.every)} from {instant(plan.test_from)} to {instant(plan.test_to)}; "
        f"two links of {duration(plan.limit)}; x is the start of the second less the end of the first.",
        f"{percent(how.level)} intervals: circular block bootstrap over episodes ({figures.block_episodes} a "
        f"block, {how.resamples:,} resamples, seed {how.seed}).",
        "Gap closed: share of the way in mean |x| from reactive submission to the oracle, which knows the future. "
        "Regret: mean |x| above the oracle's.",
        f"Forecasts are made {leads} before the predecessor's end, independent of the submission: share of waits "
        "within P10 and P90 (should be 80 %), and the mean quantile loss of P10, P25, P50, P75 and P90.",
    ]
    if any(row.seeds for row in figures.rows):
        sentences.append(
            f"Training uses nothing after {instant(plan.test_from)}: training handovers from "
            f"{instant(plan.train_from)}, validation handovers from {instant(plan.validate_from)}; means over "
            f"seeds 0 to {max(row.seeds for row in figures.rows) - 1}, which count as one in the intervals."
        )
    sentences += [
        f"{title_of(setting)}: {plural(count, 'episode')} omitted, in which some method has no handover."
        for setting, count in figures.left_out
    ]
    sentences += [
        f"{title_of(row.setting)}, {row.method.label}: errors in {row.troubles} of "
        f"{plural(row.hand_overs * max(1, row.seeds), 'handover')}."
        for row in figures.rows
        if row.troubles
    ]
    return tuple(sentences)


def title_of(setting: EvaluationSetting) -> str:
    """Title of a setting: cluster size and link size."""
    return f"{plural(setting.cluster_nodes, 'node')}, links of {setting.nodes}"


def sections(figures: Figures) -> Iterator[tuple[EvaluationSetting, list[FigureRow]]]:
    """Each setting with its rows."""
    for setting in dict.fromkeys(row.setting for row in figures.rows):
        yield setting, [row for row in figures.rows if row.setting == setting]


def evaluation_tables(figures: Figures, width: int) -> Iterator[Table]:
    """Tables for a terminal of this width, one per setting."""
    columns = [column for column in COLUMNS if column.essential or width >= FULL_WIDTH]
    for setting, rows in sections(figures):
        table = Table(
            box=SIMPLE_HEAD, padding=(0, 1, 0, 0), title=f"{title_of(setting)} ({rows[0].hand_overs} handovers)"
        )
        table.add_column("method")
        for column in columns:
            table.add_column(column.heading, justify="right")
        for row in rows:
            cells = (column.cell(row) for column in columns)
            table.add_row(
                row.method.label,
                *(
                    Text(value) if not small else Text.assemble(value, ("\n" + small, "dim"))
                    for value, small in cells
                ),
            )
        yield table


def markdown(plan: EvaluationPlan, figures: Figures) -> str:
    """Markdown tables with their description."""
    lines: list[str] = []
    for setting, rows in sections(figures):
        lines += [f"**{title_of(setting)}** ({rows[0].hand_overs} handovers)", ""]
        lines += ["| method | " + " | ".join(column.heading.replace("|", "\\|") for column in COLUMNS) + " |"]
        lines += ["|---" * (1 + len(COLUMNS)) + "|"]
        lines += [_line(row) for row in rows] + [""]
    return "\n".join([*lines, *describe(plan, figures), ""])


def _line(row: FigureRow) -> str:
    cells = [_inline(column, row) for column in COLUMNS]
    return f"| {row.method.label} | " + " | ".join(cells) + " |"


def _inline(column: ReportColumn[FigureRow], row: FigureRow) -> str:
    value, small = column.cell(row)
    return f"{value} ({small})" if small and column.heading not in _BARE else value


def document(plan: EvaluationPlan, figures: Figures, trace: str, cluster: str) -> dict[str, object]:
    """All figures, as values for ``json.dumps``; ``None`` where a statistic is undetermined."""
    told = for_json(asdict(figures))
    assert isinstance(told, dict)
    return {
        "trace": trace,
        "cluster": cluster,
        "units": "hours; shares are fractions",
        "plan": asdict(plan),
        "said": list(describe(plan, figures)),
        **told,
    }


_STYLE = """
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif }
body { max-width: 100rem; margin: 2rem auto; padding: 0 1rem }
div { overflow-x: auto }
table { border-collapse: collapse; margin: 0 0 2rem }
th, td { padding: .3rem .7rem; text-align: right; vertical-align: top; border-bottom: 1px solid #8884 }
th:first-child { text-align: left }
small { display: block; opacity: .7; white-space: nowrap }
"""


def evaluation_page(plan: EvaluationPlan, figures: Figures, title: str) -> str:
    """The page as text; the same figures give the same bytes."""
    tables = "".join(_section(title_of(setting), rows) for setting, rows in sections(figures))
    said = "".join(f"<p>{escape(sentence)}</p>" for sentence in describe(plan, figures))
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{_STYLE}</style>'
    body = f"<h1>{escape(title)}</h1>{tables}{said}"
    return f"<!doctype html><html lang=en><head>{head}</head><body>{body}</body></html>\n"


def _section(title: str, rows: list[FigureRow]) -> str:
    heads = "".join(f"<th>{escape(column.heading)}</th>" for column in COLUMNS)
    lines = "".join(f"<tr><th>{escape(row.method.label)}</th>{_cells(row)}</tr>" for row in rows)
    table = f"<table><thead><tr><th>method</th>{heads}</tr></thead><tbody>{lines}</tbody></table>"
    return f"<h2>{escape(title)} ({rows[0].hand_overs} handovers)</h2><div>{table}</div>"


def _cells(row: FigureRow) -> str:
    return "".join(f"<td>{escape(value)}{_small(small)}</td>" for value, small in (c.cell(row) for c in COLUMNS))


def _small(text: str) -> str:
    return f"<small>{escape(text)}</small>" if text else ""
