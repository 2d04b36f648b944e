"""Sentences that explain a chain to readers who know nothing of predictors.

Pure functions of the daemon's documents of the chain and its timeline.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mirage.cli.linkstory import at, forecast_of, start_range, why_ended
from mirage.cli.tables import STANDS_BY, between, instant_of, words
from mirage.domain.objective import ZERO_WITHIN

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

_STATES = {
    "starting": "is starting: no link has run yet",
    "up": "is up",
    "down": "is down",
    "paused": "is paused",
    "done": "is done",
    "failed": "has failed",
    "cancelled": "was cancelled",
}
_STEERING = {
    "pin": (
        "Each link is submitted when its predecessor starts, pinned to its nodes, so that it ages in the queue. "
        "It is not pinned if another job fits next to it or Slurm may requeue it."
    ),
    "auto": "Each link is submitted when its predecessor starts, pinned to its nodes. {else_}.",
    "hold": "Each link is submitted when its predecessor starts, and held until shortly before that one ends.",
    "nice": (
        "Each link is submitted when its predecessor starts, at a low priority until shortly before that one ends."
    ),
}
_CHEAPEST = "cheapest"
_TOGETHER = {
    "none": "No two of its scripts run at the same time.",
    "on-start": "When a link starts, its predecessor is signalled to exit; until then they overlap.",
    "when-ready": "When a link is ready, its predecessor is signalled to exit; until then they overlap.",
    "overlap": "Two links overlap until the predecessor ends.",
}


def chain_story(chain: Mapping[str, Any], timeline: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the chain is, what it waits for, the forecast, and how its handovers went."""
    yield _what_it_is(chain, timeline)
    yield from _method(chain)
    if timeline.get("stale_since"):
        since = at(timeline["stale_since"])
        yield f"Slurm has not replied since {since}: Mirage decides nothing until it does."
    if chain["files_unknown"]:
        yield f"The daemon cannot check its done-file or handover file and ignores it: {chain['files_unknown']}."
    now = instant_of(timeline.get("now"))
    yield from _present(chain, timeline, now)
    if chain["status"] == "active":
        if chain["sentence"].startswith(STANDS_BY):
            yield f"Mirage decides nothing: the daemon {chain['sentence']}."
        elif chain["sentence"]:
            yield f"Last decision: {chain['sentence']}."
        yield from _foreseen_next(timeline, now)
    elif chain["sentence"] and any(link["state"] == "running" for link in timeline["links"]):
        yield f"Last decision: {chain['sentence']}."
    yield from _past(chain, timeline)
    yield from _worth(chain, timeline)


def _method(chain: Mapping[str, Any]) -> Iterator[str]:
    """Yield how links are submitted, and whether two may overlap."""
    if chain["method"] == "off" and chain["predictor"] == "reactive":
        yield "Each link is submitted after its predecessor has ended (reactive)."
    elif chain["method"] == "off":
        loose = chain["steering"] == "auto" and not chain["predictor"] and chain["aim"] == _CHEAPEST
        why = "; it is not pinned to nodes, because --requeue was given" if loose else ""
        yield f"The predictor {chain['predictor'] or 'of the daemon'} decides when each link is submitted{why}."
    elif chain["steering"] in _STEERING:
        alone = chain["handover"] == "none"
        else_ = "it waits for the predecessor's end by a dependency" if alone else "the predictor decides"
        yield _STEERING[chain["steering"]].format(else_=f"If another job fits on these nodes, {else_}")
    if chain["handover"] not in _TOGETHER:
        return
    yield _TOGETHER[chain["handover"]]
    if chain["handover"] == "none":
        return
    if chain["method"] == "pin" and not chain["lead"]:
        yield "A pinned link starts only when its predecessor ends; --lead lets it start earlier."
    if chain["max_overlap"]:
        most = words(chain["max_overlap"])
        yield f"After {most} of overlap the predecessor is signalled in any case."


def _what_it_is(chain: Mapping[str, Any], timeline: Mapping[str, Any]) -> str:
    request = chain["request"]
    nodes = f"{request['nodes']} node{'s' if request['nodes'] != 1 else ''}"
    where = f" in partition {request['partition']}" if request["partition"] else ""
    why = f" ({chain['reason']})" if chain["reason"] else ""
    state = _STATES.get(chain["state"], f"is {chain['state']}")
    if chain["state"] == "down":
        stands = any(link["state"] == "running" for link in timeline["links"])
        state += ": Slurm has suspended it" if stands else ": no link is running"
    if chain["state"] in ("up", "down") and chain["since"]:
        lasts = between(instant_of(chain["since"]), instant_of(timeline.get("now")))
        state += f" since {at(chain['since'])}" + (f", for {words(lasts)}" if lasts else "")
    elif chain["state"] == "paused":
        state += (f" since {at(chain['since'])}" if chain["since"] else "") + ": no further link is submitted"
    elif chain["state"] == "cancelled" and chain["since"]:
        state += f" at {at(chain['since'])}"
    elif chain["state"] in ("done", "failed") and chain["since"]:
        state += f"; its last link ended at {at(chain['since'])}"
    each = f"each of its links asks for {nodes}{where} for {words(request['limit'])}"
    return f"{chain['id']}, a chain of {chain['owner']}, {state}{why}; {each}."


def _present(chain: Mapping[str, Any], timeline: Mapping[str, Any], now: datetime | None) -> Iterator[str]:
    """Yield the running and waiting links."""
    nothing = True
    for link in timeline["links"]:
        if link["state"] == "running":
            yield _running(link, now)
            nothing = False
        elif link["state"] in ("planned", "submitted", "pending") and not link["retired"]:
            if not link["job_id"]:
                yield f"Link {link['index']} was submitted; Slurm does not show it yet."
            else:
                since = f"since {at(link['submit'])}{_kept(link)}"
                yield f"Link {link['index']} is pending as job {link['job_id']} {since}."
            yield from forecast_of(link, timeline)
            nothing = False
    if chain["unready"]:
        leaves = "; its predecessor is signalled to exit when it is" if _running_links(timeline) > 1 else ""
        yield f"Link {chain['unready']} is not ready yet: its handover file does not exist{leaves}."
    if _running_links(timeline) > 1 and chain["handover"] == "none":
        yield _two_of_one_writer(timeline)
    if nothing:
        yield "No link is pending or running."
    if nothing or (chain["state"] == "down" and not _running_links(timeline)):
        yield from _last_end(timeline)


def _two_of_one_writer(timeline: Mapping[str, Any]) -> str:
    first, *_, last = (link for link in timeline["links"] if link["state"] == "running")
    if last["looks"]:
        return f"Link {last['index']} has nodes; its script waits for the end of link {first['index']}."
    return (
        "Two of its jobs run despite handover none: the earlier one was requeued, or the dependency of the later "
        "one was removed."
    )


def _last_end(timeline: Mapping[str, Any]) -> Iterator[str]:
    """Yield how the last link ended, ignoring links whose script did not run."""
    ran = [
        link
        for link in timeline["links"]
        if link["state"] == "ended" and link["start"] and not (link["in_vain"] or link["waited"])
    ]
    last = max(ran, key=lambda link: link["end"] or "", default=None)
    if last is not None:
        took = between(instant_of(last["start"]), instant_of(last["end"]))
        yield f"Link {last['index']} (job {last['job_id']}) ran last, until {why_ended(last, took)}."


def _running_links(timeline: Mapping[str, Any]) -> int:
    return sum(link["state"] == "running" for link in timeline["links"])


def _running(link: Mapping[str, Any], now: datetime | None) -> str:
    on = f" on {link['nodes']}" if link["nodes"] else ""
    job = f"Link {link['index']} runs as job {link['job_id']}{on} since {at(link['start'])}"
    if link["job_state"] == "SUSPENDED":
        return f"{job}, but Slurm has suspended it; its end is unknown until it is resumed."
    left = between(now, instant_of(link["end"]))
    until = f", and has {words(left)} left until its time limit" if left is not None else ""
    if link["retired"]:
        ends = f" and ends in {words(left)} at the latest" if left is not None else ""
        return f"{job}; it was signalled to exit at {at(link['retired'])}{ends}."
    return f"{job}{until}."


def _kept(link: Mapping[str, Any]) -> str:
    """Return what holds a waiting link, or when Slurm plans to start it."""
    until = f" until {at(link['kept_until'])}" if link["kept_until"] else ""
    match link["kept"]:
        case "owner" | "administrator":
            return f", held by {'its owner' if link['kept'] == 'owner' else 'an administrator'}"
        case "pinned":
            return f", pinned to the nodes of its predecessor{until}"
        case "held":
            return f", held by Mirage{until}"
        case "low-rank":
            return f", at a low priority{until}"
        case "begin":
            return f", and may not start before {at(link['kept_until'])}" if link["kept_until"] else until
        case "dependent":
            return f", and may start when its predecessor has ended{until.replace('until', 'about')}"
    return f"; Slurm plans to start it at {at(link['planned_start'])}" if link["planned_start"] else ""


def _foreseen_next(timeline: Mapping[str, Any], now: datetime | None) -> Iterator[str]:
    """Yield the newest forecast for the next link to be submitted."""
    known = {link["index"] for link in timeline["links"]}
    own = (each for each in timeline["forecasts"] if not each["shadow"] and each["p50"])
    forecast = next(own, None)
    if forecast is None or forecast["link"] in known:  # that link waits, runs or has ended
        return
    start = instant_of(forecast["p50"])
    if now is not None and start is not None and start < now:  # an old forecast without a submission
        return
    wait = between(instant_of(forecast["time"]) or now, instant_of(forecast["p50"]))
    yield (
        f"Forecast of {forecast['predictor']}: submitted now, link {forecast['link']} would start "
        f"{start_range(forecast)}, after about {words(wait or 0)} in the queue."
    )


def _past(chain: Mapping[str, Any], timeline: Mapping[str, Any]) -> Iterator[str]:
    handovers = timeline["handovers"]
    if not handovers:
        yield "There was no handover yet."
        return
    smooth = sum(each["interruption"] <= ZERO_WITHIN for each in handovers)
    if len(handovers) == 1:
        gap = ", with an interruption of at most a minute" if smooth else ""
        yield f"There was one handover so far{gap}."
    else:
        yield f"Of {len(handovers)} handovers so far, {smooth} had no interruption of more than a minute."
    worst = max(handovers, key=lambda each: each["interruption"])
    if worst["interruption"] > ZERO_WITHIN:
        names = f"links {worst['predecessor']} and {worst['successor']}"
        yield f"The longest interruption, between {names}, was {words(worst['interruption'])}."
    together = max(chain.get("overlap", 0), sum(each["overlap"] for each in handovers))  # one may continue
    if together > ZERO_WITHIN:
        yield f"The total overlap was {words(together)}."


def _worth(chain: Mapping[str, Any], timeline: Mapping[str, Any]) -> Iterator[str]:
    """Yield the total interruption, and how much more submitting at each end would have lost."""
    lost, saved = chain["interruption"], chain.get("saved")
    between_links = sum(each["interruption"] for each in timeline["handovers"])
    if lost or saved:
        suspended = chain.get("suspended", 0)
        parts = [
            f"{words(since)} of that {when}"
            for since, when in (
                (suspended, "while Slurm had suspended it"),
                (lost - between_links - suspended, "since its last link"),
            )
            if since > 0
        ]
        yield f"The total interruption was {', '.join((words(lost), *parts))}."
    if not saved:
        return
    counted = f"{chain['appraised']}" if chain["appraised"] < chain["handovers"] else "all"
    if not any(saved.values()):
        yield (
            "If each link had been submitted at the end of its predecessor, its handovers would have lost the "
            f"same (from {counted} of them)."
        )
        return
    p50, more = saved["p50"], "less" if saved["p50"] < 0 else "more"
    bounds = (f"{words(abs(saved[name]))}{' less' if saved[name] < 0 else ''}" for name in ("p10", "p90"))
    yield (
        f"If each link had been submitted at the end of its predecessor, its handovers would have lost about "
        f"{words(abs(p50))} {more} (an estimate: {' to '.join(bounds)}; from {counted} of them)."
    )
