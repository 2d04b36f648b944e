"""Effects of slurmctld's settings on chains."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.daemon.doctor.finding import fail, ok, warn
from mirage.daemon.doctor.reading import number, parameters
from mirage.daemon.doctor.steering import look_at_steering, look_at_turns
from mirage.domain.errors import BadSpelling
from mirage.simulator.cluster import OUTWEIGHED
from mirage.slurm import duration
from mirage.slurm.release import read_version

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirage.daemon.doctor.finding import Finding
    from mirage.daemon.doctor.reading import Row
    from mirage.domain.chain import Steering
    from mirage.domain.job import Seconds

_DEFAULT_BF_WINDOW = 1_440
_DEFAULT_MIN_JOB_AGE = 300
_ANCIENT = (20, 11)
_MAY_SET_COMMENTS = ("lua", "cray", "cray_aries")
"""Plugins that run a site's own code."""


def look_at_settings(settings: Row, client: str, interval: Seconds, steering: Steering) -> Iterator[Finding]:
    """The findings about ``scontrol show config``.

    ``client``: what ``scontrol --version`` prints; ``interval``: seconds between two polls of the daemon;
    ``steering``: how new chains are steered.
    """
    yield _versions(settings["SLURM_VERSION"], client)
    yield from _priority(settings, steering)
    yield _backfill(settings)
    yield _accounting(settings)
    yield _memory(settings, interval)
    yield from _submit_plugins(settings)
    yield _rate_limit(settings)


def _versions(controller: str, client: str) -> Finding:
    ours, theirs = read_version(client), read_version(controller)
    found = f"controller {controller}, commands {client.rsplit(maxsplit=1)[-1]}"
    if ours > theirs:
        todo = "install commands of the controller's version or an older one"
        return fail("versions", found, "slurmctld rejects commands that are newer than itself", todo)
    if theirs < _ANCIENT:
        return warn(
            "versions", found, "Mirage is not tested with it", "upgrade Slurm to 22.05 or later, if possible"
        )
    return ok("versions", found)


def _priority(settings: Row, steering: Steering) -> Iterator[Finding]:
    if settings.get("PriorityType", "").removeprefix("priority/") != "multifactor":
        yield look_at_turns(f"PriorityType={settings.get('PriorityType')}", steering)
        return
    weight = settings.get("PriorityWeightAge", "0")
    if weight == "0":
        follows = "waiting does not raise a successor's priority; early submission gains only by fair share"
        yield warn(
            "age", "PriorityWeightAge=0", follows, "nothing, if this is intended; early submission gains little"
        )
    else:
        yield _age(settings, number(weight, 0), number(settings.get("PriorityWeightFairShare", ""), 0))
    yield look_at_steering(settings, steering)


def _age(settings: Row, age: int, share: int) -> Finding:
    """Gain of waiting where fair share counts as well (replays of LS6, docs/benchmarks/handovers.md)."""
    found = f"PriorityWeightAge={age}, PriorityWeightFairShare={share}"
    if share >= OUTWEIGHED * age:
        follows = (
            "fair share outweighs age: early submission and --steering pin gain little, and forecasts from other "
            "users' waits can be worse than submitting at the predecessor's end"
        )
        todo = 'use loop.predictor = "auto" (the default), which submits at the end here'
        return warn("age", found, follows, todo)
    found += f", PriorityMaxAge={settings.get('PriorityMaxAge', '')}"
    gain = "a pending successor gains priority"
    return ok(
        "age", found, f"{gain}; --steering auto uses that for links with whole nodes, better than any forecast"
    )


def _backfill(settings: Row) -> Finding:
    kind = settings.get("SchedulerType", "").removeprefix("sched/")
    given = parameters(settings.get("SchedulerParameters", ""))
    minutes = number(given.get("bf_window", ""), _DEFAULT_BF_WINDOW)
    if kind != "backfill":
        follows = "Slurm plans no start times: the predictor slurm has no data"
        return warn("backfill", f"SchedulerType=sched/{kind}", follows, "choose a predictor other than slurm")
    found = f"plans {minutes / 60:g} h ahead (bf_window), every {given.get('bf_interval') or 30} s"
    return ok("backfill", found, "the predictor slurm predicts no starts beyond that")


def _accounting(settings: Row) -> Finding:
    storage = settings.get("AccountingStorageType", "").removeprefix("accounting_storage/")
    if storage in ("", "none"):
        follows = (
            "the end of a link is known only while slurmctld keeps the job (MinJobAge); if no daemon polls in "
            "that time, the chain pauses; past waits come only from polls"
        )
        return warn("accounting", "no accounting", follows, "keep MinJobAge well above loop.interval")
    flags = settings.get("AccountingStoreFlags", "")
    if "job_comment" not in flags:
        follows = "a submission whose reply was lost is found only while its job is in the queue"
        found = f"AccountingStoreFlags={flags or 'none'}"
        return warn("accounting", found, follows, "add job_comment to AccountingStoreFlags in slurm.conf")
    return ok("accounting", f"{storage} keeps comments", "links are found by their tag also after their end")


def _submit_plugins(settings: Row) -> Iterator[Finding]:
    names = settings.get("JobSubmitPlugins", "").replace("(null)", "").split(",")
    if able := [name for name in names if name.strip().removeprefix("job_submit/") in _MAY_SET_COMMENTS]:
        found = f"JobSubmitPlugins={','.join(able)}"
        follows = (
            "if it sets comments, links lose their tags: a link whose submission a daemon crash interrupted is "
            "submitted again, held links are not released, and the modes sudo and agent cannot act on links"
        )
        yield warn("marks", found, follows, "configure it to keep comments that begin with mirage:")


def _memory(settings: Row, interval: Seconds) -> Finding:
    seconds = number(settings.get("MinJobAge", ""), _DEFAULT_MIN_JOB_AGE)
    found = f"MinJobAge={seconds} s, a poll every {interval} s"
    if seconds and seconds < 2 * interval:
        follows = (
            "slurmctld may forget an ended link between two polls; then only accounting has its end, and without "
            "accounting the chain pauses"
        )
        return warn("memory", found, follows, "raise MinJobAge, or lower loop.interval")
    return ok("memory", found)


def _rate_limit(settings: Row) -> Finding:
    given = parameters(settings.get("SlurmctldParameters", ""))
    if "rl_enable" not in given:
        return ok("rate limit", "none")
    bucket, refill = given.get("rl_bucket_size") or "30", given.get("rl_refill_rate") or "2"
    return ok("rate limit", f"{bucket} RPCs, {refill} more per second", "Mirage sends three per cycle")


def look_at_partitions(partitions: list[Row]) -> Iterator[Finding]:
    """The findings about ``scontrol show partition``."""
    if not partitions:
        yield fail(
            "partitions", "none is visible", "no link can be submitted", "ask the administrators for access"
        )
        return
    limits = [f"{row['PartitionName']} {row.get('MaxTime', '')}" for row in partitions]
    yield ok("partitions", ", ".join(limits), "a link runs at most for its partition's time limit")
    closed = [row["PartitionName"] for row in partitions if row.get("State") != "UP"]
    if closed:
        follows = "links there wait until the partition is up"
        yield warn("partitions", f"not up: {', '.join(closed)}", follows, "submit to another partition meanwhile")
    short = [row["PartitionName"] for row in partitions if _shorter_than_an_hour(row.get("MaxTime", ""))]
    if short:
        follows = "handovers there are more frequent than waits can be predicted"
        yield warn("partitions", f"limits under an hour: {', '.join(short)}", follows, "choose a longer partition")
    shared = [row for row in partitions if row.get("OverSubscribe", "").startswith(("FORCE", "YES"))]
    if shared:
        names = ", ".join(f"{row['PartitionName']} {row['OverSubscribe']}" for row in shared)
        follows = "links there may not be pinned: they depend on the predecessor's end, or are submitted when due"
        todo = "use --steering hold there, or a partition with OverSubscribe=NO or EXCLUSIVE"
        yield warn("partitions", f"OverSubscribe: {names}", follows, todo)


def _shorter_than_an_hour(limit: str) -> bool:
    try:
        return duration.parse(limit) < 3_600
    except BadSpelling:
        return False
