"""Chains as tables of text, in the manner of ``squeue``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mirage.cli.tables import NOTHING, Columns, TableColumn, between, clock, instant_of, signed, span, words
from mirage.slurm.duration import spell

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from mirage.cli.tables import Row
    from mirage.client.documents import Chain, Link

    _Shown = tuple[Callable[[Chain], str], Callable[[Chain], Any]]
    """How to print a value, and what to sort it by."""

WAITING = ("planned", "submitted", "pending")
SHORT = {
    "starting": "ST",
    "up": "UP",
    "down": "DN",
    "paused": "PA",
    "done": "DO",
    "failed": "FA",
    "cancelled": "CA",
}
"""States of a chain with the short forms of ``%t``."""


def chain_columns(now: datetime | None) -> Columns[Chain]:
    """Return the columns of chains; remaining times count from ``now``."""

    def left(chain: Chain) -> int | None:
        return between(now, chain.running.end) if chain.running else None

    def used(chain: Chain) -> int | None:
        return between(chain.running.start, now) if chain.running else None

    return Columns(
        (
            TableColumn("chain", "i", "CHAIN", _text("id")),
            TableColumn("name", "j", "NAME", _text("name")),
            TableColumn("user", "u", "USER", _text("owner")),
            TableColumn("state", "T", "STATE", lambda chain: chain.state.upper()),
            TableColumn("statecompact", "t", "ST", lambda chain: SHORT.get(chain.state, NOTHING)),
            TableColumn("since", "", "SINCE", lambda chain: clock(chain.since), lambda chain: chain.since),
            TableColumn(
                "expected", "", "EXPECTED", lambda chain: clock(chain.expected), lambda chain: chain.expected
            ),
            TableColumn("partition", "P", "PARTITION", _asked("partition")),
            TableColumn("account", "a", "ACCOUNT", _asked("account")),
            TableColumn("qos", "q", "QOS", _asked("qos")),
            TableColumn("nodes", "D", "NODES", _asked("nodes"), lambda chain: chain.request.nodes),
            TableColumn("gres", "b", "TRES_PER_NODE", _gres),
            TableColumn("workdir", "Z", "WORK_DIR", _asked("directory")),
            TableColumn("timelimit", "l", "TIME_LIMIT", lambda chain: span(chain.request.limit), _limit),
            TableColumn("jobid", "A", "JOBID", _job_of_head, lambda chain: chain.running and chain.running.job_id),
            TableColumn("timeused", "M", "TIME", lambda chain: span(used(chain)), used),
            TableColumn("time_left", "L", "TIME_LEFT", lambda chain: span(left(chain)), left),
            TableColumn("submittime", "V", "SUBMIT_TIME", *_time("submit")),
            TableColumn("starttime", "S", "START_TIME", *_time("start")),
            TableColumn("endtime", "e", "END_TIME", *_time("end")),
            TableColumn("reason", "r", "REASON", reason_of),
            TableColumn("links", "", "LINKS", lambda chain: str(len(chain.links)), lambda chain: len(chain.links)),
            TableColumn("next", "", "NEXT", _next_job),
            TableColumn("handovers", "", "HANDOVERS", *_number("handovers")),
            TableColumn("gaps", "", "GAPS", *_seconds("interruption")),
            TableColumn("saved", "", "SAVED", _saved, lambda chain: chain.saved and chain.saved.p50),
            TableColumn("overlap", "", "OVERLAP", *_seconds("overlap")),
            TableColumn("predictor", "", "PREDICTOR", _text("predictor")),
            TableColumn("aim", "", "AIM", _text("aim")),
            TableColumn("steering", "", "STEERING", _text("steering")),
            TableColumn("handover", "", "HANDOVER", _text("handover")),
            TableColumn("failures", "", "FAILURES", *_number("failures")),
            TableColumn("refusals", "", "REJECTIONS", *_number("refusals")),
        ),
        "chain,user,state,links,jobid,time_left,next,gaps,saved,overlap,reason",
    )


def _state(chain: dict[str, Any]) -> str:
    since = f"since {local_time(chain['since'])}" if chain["since"] else ""
    expected = f"the next link is expected at {local_time(chain['expected'])}" if chain["expected"] else ""
    unready = f"link {chain['unready']} is not ready yet" if chain["unready"] else ""
    state = " ".join(filter(None, (chain["state"].upper(), since)))
    return "; ".join(filter(None, (state, chain["reason"], unready, expected)))


def _text(name: str) -> Callable[[Chain], str]:
    return lambda chain: str(getattr(chain, name) or NOTHING)


def _asked(name: str) -> Callable[[Chain], str]:
    return lambda chain: str(getattr(chain.request, name) or NOTHING)


def _number(name: str) -> _Shown:
    return (lambda chain: str(getattr(chain, name))), (lambda chain: getattr(chain, name))


def _seconds(name: str) -> _Shown:
    return (lambda chain: span(getattr(chain, name))), (lambda chain: getattr(chain, name))


def _saved(chain: Chain) -> str:
    """An estimate, marked as one."""
    return f"~{signed(chain.saved.p50)}" if chain.saved else NOTHING


def _time(name: str) -> _Shown:
    """Of the link that runs."""

    def of(chain: Chain) -> Any:
        return getattr(chain.running, name) if chain.running else None

    return (lambda chain: clock(of(chain))), of


def reason_of(chain: Chain) -> str:
    """Return the reason of the state; two running links of one writer and an unready link come first."""
    stays = chain.over and chain.running is not None
    said = (chain.sentence if stays else chain.reason) or chain.sentence or NOTHING
    running = [link for link in chain.links if link.state == "running"]
    if chain.handover == "none" and len(running) > 1:
        if running[-1].looks:
            return f"link {running[-1].index} waits for the end of link {running[0].index}; {said}"
        return f"two jobs run despite handover none: see mirage explain; {said}"
    return f"link {chain.unready} is not ready yet; {said}" if chain.unready else said


def _bound(chain: dict[str, Any]) -> str:
    bound = chain["max_overlap"] if chain["handover"] != "none" else 0
    return f", overlap at most {words(bound)}" if bound else ""


def goes_on(chain: Chain) -> bool:
    """Return whether a link runs or may still be submitted."""
    return not chain.over or any(link.state not in ("ended", "lost") for link in chain.links)


def _job_of_head(chain: Chain) -> str:
    return _job_id(chain.running) if chain.running else NOTHING


def _next_job(chain: Chain) -> str:
    following = [link for link in chain.links if link.state in WAITING]
    return _job_id(following[-1]) if following else NOTHING


def _job_id(link: Link) -> str:
    return str(link.job_id) if link.job_id else link.state


def _gres(chain: Chain) -> str:
    return ",".join(f"{name}:{count}" for name, count in chain.request.gres_per_node.items()) or NOTHING


def _limit(chain: Chain) -> int:
    return chain.request.limit


def facts(chain: dict[str, Any]) -> list[Row]:
    """Return the settings and the state of a chain, one per row."""
    request = chain["request"]
    asked = [f"{request['nodes']} node{'s' * (request['nodes'] != 1)} for {spell(request['limit'])}"]
    asked += [f"{what} {request[what]}" for what in ("partition", "account", "qos") if request[what]]
    asked += [f"{name}:{number} on each" for name, number in request["gres_per_node"].items()]
    gaps, overlap = spell(chain["interruption"]), spell(chain["overlap"])
    rows: list[Row] = [
        ("Chain", chain["id"]),
        ("Owner", chain["owner"]),
        ("State", _state(chain)),
        ("Now", chain["sentence"] or "-"),
        ("Done once", chain["done"]["words"]),
        ("Each link", ", ".join(asked)),
        ("Directory", request["directory"]),
        ("Predictor", chain["predictor"] or "the daemon's"),
        ("Objective", chain["aim"]),
        ("Handover", f"{chain['handover']}{_bound(chain)}, steering {chain['steering']}"),
        ("Handovers", f"{chain['handovers']}; interruption {gaps}, overlap {overlap}"),
    ]
    if chain.get("saved"):
        p10, p50, p90 = (signed(chain["saved"][level]) for level in ("p10", "p50", "p90"))
        known = f"{chain['appraised']} of {chain['handovers']} handovers"
        rows.append(("Saved", f"about {p50} of interruption ({p10} to {p90}, an estimate from {known})"))
    if chain["files_unknown"]:
        rows.append(("Files", f"cannot be checked: {chain['files_unknown']}"))
    if (held := chain["held_links"]) is not None:
        rows.append(("Held links", f"{len(held)} to release" if held else "none left"))
    if chain["failures"] or chain["refusals"]:
        rows.append(("Failures", f"{chain['failures']} failures and {chain['refusals']} rejections in a row"))
    if chain["not_before"]:
        rows.append(("Not before", local_time(chain["not_before"])))
    return rows


def link_rows(links: Sequence[dict[str, Any]]) -> list[Row]:
    """Return the header and one row per link."""
    heading = ("LINK", "JOBID", "STATE", "NODES", "SUBMIT", "START", "END", "EXIT", "WHY")
    return [heading, *(_link_row(link) for link in links)]


def _link_row(link: dict[str, Any]) -> Row:
    shown = link["state"] == "ended" or link["job_state"] == "SUSPENDED"
    state = link["job_state"] if shown else link["state"].upper()
    times = (local_time(link[name]) for name in ("submit", "start", "end"))
    code = str(link["exit_code"]) if link["state"] == "ended" else "-"
    return (str(link["index"]), _job(link), state, link["nodes"] or NOTHING, *times, code, link["reason"])


def entry_rows(entries: Sequence[dict[str, Any]]) -> list[Row]:
    """Return one row per journal entry."""
    return [(local_time(entry["time"]), entry["kind"], entry["text"]) for entry in entries]


def local_time(text: str | None) -> str:
    """Format a time of the API in the local time zone, as Slurm prints it; ``-`` for no time."""
    return clock(instant_of(text))


def _job(link: dict[str, Any]) -> str:
    return str(link["job_id"]) if link["job_id"] else link["state"]
