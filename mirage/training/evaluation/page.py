"""An evaluation as one self-contained HTML file, without scripts and requests."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from mirage.training.evaluation.report import COLUMNS, describe, sections, title_of

if TYPE_CHECKING:
    from mirage.training.evaluation.figures import Figures, Row
    from mirage.training.evaluation.plan import EvaluationPlan

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


def _section(title: str, rows: list[Row]) -> str:
    heads = "".join(f"<th>{escape(column.heading)}</th>" for column in COLUMNS)
    lines = "".join(f"<tr><th>{escape(row.method.label)}</th>{_cells(row)}</tr>" for row in rows)
    table = f"<table><thead><tr><th>method</th>{heads}</tr></thead><tbody>{lines}</tbody></table>"
    return f"<h2>{escape(title)} ({rows[0].hand_overs} handovers)</h2><div>{table}</div>"


def _cells(row: Row) -> str:
    return "".join(f"<td>{escape(value)}{_small(small)}</td>" for value, small in (c.read(row) for c in COLUMNS))


def _small(text: str) -> str:
    return f"<small>{escape(text)}</small>" if text else ""
