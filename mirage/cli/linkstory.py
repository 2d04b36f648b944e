"""Sentences that explain one link of a chain: why it was submitted, its forecast, how it went."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mirage.cli.tables import between, clock, instant_of, words

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

_REQUEUED = "was requeued"
_SHORT = 120
"""Seconds by which a job may end before or after its time limit because of that limit."""
_NOT_STARTED = 128 + 53
"""Slurm's 0:53: a job's output file or directory could not be opened."""
_ENDS = {
    "TIMEOUT": "its time limit ended it",
    "COMPLETED": "it completed",
    "CANCELLED": "it was cancelled",
    "REQUEUED": "its job was requeued",
    "FAILED": "its script failed",
    "NODE_FAIL": "a node failed",
    "BOOT_FAIL": "its node could not start it",
    "PREEMPTED": "it was preempted",
    "OUT_OF_MEMORY": "it ran out of memory",
}


def link_story(index: int, timeline: Mapping[str, Any], now: str = "") -> Iterator[str]:
    """Yield why a link was submitted at its time, its forecast, and how it went.

    ``now``: the chain's current state text. Raises ``KeyError`` if the chain has no such link.
    """
    link = next((link for link in timeline["links"] if link["index"] == index), None)
    if link is None:
        raise KeyError(index)
    yield from _submission(link)
    yield from forecast_of(link, timeline)
    yield from _life(link, instant_of(timeline.get("now")))
    if now and link["state"] in ("planned", "submitted", "pending"):
        yield f"Now: {now}."
    for handover in timeline["handovers"]:
        if handover["successor"] == index:
            yield f"Handover from link {handover['predecessor']}: {_handover(handover)}."
        if handover["predecessor"] == index:
            yield f"Handover to link {handover['successor']}: {_handover(handover)}."


def _submission(link: Mapping[str, Any]) -> Iterator[str]:
    job = f" as job {link['job_id']}" if link["job_id"] else ""
    if link["submit"]:
        yield f"Link {link['index']} was submitted{job} at {at(link['submit'])}."
    else:
        yield f"Link {link['index']} is about to be submitted."
    if link["reason"]:
        yield f"Reason of the submission: {link['reason']}."


def forecast_of(link: Mapping[str, Any], timeline: Mapping[str, Any]) -> Iterator[str]:
    """Yield the forecast at submission and its error."""
    submit, start = instant_of(link["submit"]), instant_of(link["start"])
    said = [each for each in timeline["forecasts"] if each["link"] == link["index"] and each["p50"]]
    made = [each for each in said if submit is None or (instant_of(each["time"]) or submit) <= submit]
    charge = next((each for each in made if not each["shadow"]), None)
    if charge is None or link["reason"].endswith(_REQUEUED):  # a forecast without a submission
        return
    yield f"{charge['predictor']} predicted a start {start_range(charge)}."
    if start is None:
        return
    p10, p50, p90 = (instant_of(charge[name]) for name in ("p10", "p50", "p90"))
    assert p50 is not None
    off = round((start - p50).total_seconds())
    how = "later than" if off > 0 else "earlier than"
    within = "" if p10 is None or p90 is None else (", within" if p10 <= start <= p90 else ", outside")
    bounds = f"{within} the predicted range" if within else ""
    yield f"It started {words(abs(off))} {how} predicted{bounds}."


def _life(link: Mapping[str, Any], now: datetime | None) -> Iterator[str]:
    submit, start, end = (instant_of(link[name]) for name in ("submit", "start", "end"))
    if link["state"] == "lost":
        yield "Slurm no longer knows its job, and how the job ended is unknown."
        return
    if start is None:
        waited = between(submit, now)
        plan = f"; Slurm plans to start it at {at(link['planned_start'])}" if link["planned_start"] else ""
        if link["state"] == "ended":
            yield f"It never started: {_ENDS.get(link['job_state'], 'it ended')} at {at(link['end'])}."
        elif waited is not None:
            yield f"It has waited for {words(waited)}{plan}."
        return
    waited = between(submit, start)
    after = f" after {words(waited)} in the queue" if waited is not None else ""
    yield f"It started at {at(link['start'])}{after}."
    if link["state"] == "running":
        suspended = link["job_state"] == "SUSPENDED"
        ends = f"it was signalled to exit and ends by {at(link['end'])}" if link["retired"] else ""
        ends = ends or f"its time limit ends at {at(link['end'])}"
        yield "It is suspended." if suspended else f"It runs; {ends}."
        return
    if link["in_vain"]:
        yield "The chain had ended before its script began, so the script did not run."
        return
    ran = between(start, end)
    if link["waited"]:
        yield f"It had nodes for {words(ran or 0)} and waited for its predecessor's end: its script did not run."
        return
    why = why_ended(link, ran)
    yield f"It ran for {words(ran)} until {why}." if ran is not None else f"It is over: {why}."


def why_ended(link: Mapping[str, Any], ran: int | None) -> str:
    """Return the end of a sentence that ends in "until"; ``ran``: the link's run time in seconds, if known."""
    if link["retired"] and link["job_state"] != "REQUEUED":
        return "it was signalled to exit for its successor"
    if link["job_state"] == "COMPLETED" and link["warned"]:
        return "it completed after Slurm's warning before its time limit"
    if link["job_state"] == "TIMEOUT" and None not in (ran, link["limit"]) and ran < link["limit"] - _SHORT:
        return (
            f"Slurm ended it with a timeout, {words(link['limit'] - ran)} before its time limit: a limit of its "
            "account or QOS may be used up, or its time limit was lowered"
        )
    if link["job_state"] == "TIMEOUT" and None not in (ran, link["limit"]) and ran > link["limit"] + _SHORT:
        if link["suspended"]:
            return f"its time limit ended it, after it was suspended for about {words(link['suspended'])}"
        return f"its time limit of {words(link['limit'])} ended it, {words(ran - link['limit'])} late"
    if link["job_state"] == "FAILED" and link["exit_code"] == _NOT_STARTED:
        return "Slurm could not start its script: check its output path and its working directory"
    code = f" with exit code {link['exit_code']}" if link["job_state"] == "FAILED" and link["exit_code"] else ""
    return _ENDS.get(link["job_state"], f"it ended as {link['job_state']}") + code


def _handover(handover: Mapping[str, Any]) -> str:
    if handover["interruption"] > 0:
        return f"interruption of {words(handover['interruption'])}"
    if handover["overlap"] > 0:
        return f"overlap of {words(handover['overlap'])}"
    return "no interruption and no overlap"


def start_range(forecast: Mapping[str, Any]) -> str:
    """Return the median of a predicted start, with P10 and P90 where the forecast has them."""
    if forecast["p10"] and forecast["p90"]:
        return f"about {at(forecast['p50'])} (80% range {at(forecast['p10'])} to {at(forecast['p90'])})"
    return f"about {at(forecast['p50'])}"


def at(text: str | None) -> str:
    """Return a time of the daemon's documents to the minute, in the reader's time zone."""
    instant = instant_of(text)
    return clock(instant).replace("T", " ")[:16] if instant else "an unknown time"
