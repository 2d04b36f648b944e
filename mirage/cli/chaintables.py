"""Chains as tables of text, in the manner of ``squeue``."""

from __future__ import annotations

import shutil
from datetime import datetime
from typing import TYPE_CHECKING, Any

import typer

from mirage.slurm.duration import spell

if TYPE_CHECKING:
    from collections.abc import Sequence

Row = tuple[str, ...]
_WAITING = ("planned", "submitted", "pending")


def print_table(rows: Sequence[Row]) -> None:
    """Columns as wide as their widest cell; on a terminal the last one is cut at the edge."""
    if not rows:
        return
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    edge = shutil.get_terminal_size().columns if typer.get_text_stream("stdout").isatty() else 0
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        line = "  ".join([*cells, row[-1]]).rstrip()
        typer.echo(line[:edge] if edge else line)


def chain_rows(chains: Sequence[dict[str, Any]], now: str | None) -> list[Row]:
    """A heading and one row a chain; times left count from ``now``."""
    heading = ("CHAIN", "USER", "STATE", "LINKS", "JOBID", "TIME_LEFT", "NEXT", "GAPS", "OVERLAP", "REASON")
    return [heading, *(_chain_row(chain, now) for chain in chains)]


def _chain_row(chain: dict[str, Any], now: str | None) -> Row:
    head = max((link for link in chain["links"] if link["state"] == "running"), key=_end, default=None)
    following = [link for link in chain["links"] if link["state"] in _WAITING]
    return (
        chain["id"],
        chain["owner"],
        chain["status"].upper(),
        str(len(chain["links"])),
        _job(head) if head else "-",
        _left(head, now) if head else "-",
        _job(following[-1]) if following else "-",
        spell(chain["interruption"]),
        spell(chain["overlap"]),
        chain["reason"] or chain["sentence"],
    )


def facts(chain: dict[str, Any]) -> list[Row]:
    """What a chain is, one thing a row."""
    request = chain["request"]
    asked = [f"{request['nodes']} nodes for {spell(request['limit'])}"]
    asked += [f"{what} {request[what]}" for what in ("partition", "account", "qos") if request[what]]
    asked += [f"{name}:{number} on each" for name, number in request["gres_per_node"].items()]
    gaps, overlap = spell(chain["interruption"]), spell(chain["overlap"])
    rows: list[Row] = [
        ("Chain", chain["id"]),
        ("Owner", chain["owner"]),
        ("State", " ".join(filter(None, (chain["status"].upper(), chain["reason"])))),
        ("Now", chain["sentence"] or "-"),
        ("Each link", ", ".join(asked)),
        ("Directory", request["directory"]),
        ("Predictor", chain["predictor"] or "the daemon's"),
        ("Aim", chain["aim"]),
        ("Hand-over", f"{chain['handover']}, steering {chain['steering']}"),
        ("Hand-overs", f"{chain['handovers']}, {gaps} without a link, {overlap} with two"),
    ]
    if chain["failures"] or chain["refusals"]:
        rows.append(("Trouble", f"{chain['failures']} failures and {chain['refusals']} refusals in a row"))
    if chain["not_before"]:
        rows.append(("Not before", local_time(chain["not_before"])))
    return rows


def link_rows(links: Sequence[dict[str, Any]]) -> list[Row]:
    """A heading and one row a link."""
    heading = ("LINK", "JOBID", "STATE", "SUBMIT", "START", "END", "EXIT", "WHY")
    return [heading, *(_link_row(link) for link in links)]


def _link_row(link: dict[str, Any]) -> Row:
    state = link["job_state"] if link["state"] == "ended" else link["state"].upper()
    times = (local_time(link[name]) for name in ("submit", "start", "end"))
    code = str(link["exit_code"]) if link["state"] == "ended" else "-"
    return (str(link["index"]), _job(link), state, *times, code, link["reason"])


def entry_rows(entries: Sequence[dict[str, Any]]) -> list[Row]:
    """One row a line of the journal."""
    return [(local_time(entry["time"]), entry["kind"], entry["text"]) for entry in entries]


def local_time(text: str | None) -> str:
    """An instant of the interface in the reader's time zone, as Slurm prints it; ``-`` where there is none."""
    return datetime.fromisoformat(text).astimezone().strftime("%Y-%m-%dT%H:%M:%S") if text else "-"


def _job(link: dict[str, Any]) -> str:
    return str(link["job_id"]) if link["job_id"] else link["state"]


def _end(link: dict[str, Any]) -> str:
    return link["end"] or ""


def _left(link: dict[str, Any], now: str | None) -> str:
    if not link["end"] or not now:
        return "-"
    seconds = datetime.fromisoformat(link["end"]) - datetime.fromisoformat(now)
    return spell(max(0, int(seconds.total_seconds())))
