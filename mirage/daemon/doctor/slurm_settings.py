"""Effects of Slurm's settings on chains: slurmctld, early submission, rights of accounts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.daemon.doctor.finding import fail, number, ok, parameters, warn
from mirage.domain.chain import Steering
from mirage.domain.errors import BadSpelling
from mirage.simulator.cluster import OUTWEIGHED
from mirage.slurm import duration
from mirage.slurm.conf import read_version

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirage.daemon.doctor.finding import Finding, Row
    from mirage.domain.job import Seconds

_SUPERUSER = "root"
_A_CHAIN_NEEDS = 2
"""Jobs of a chain in the queue at the same time: the running predecessor and the pending successor."""


def check_associations(user: str, associations: list[Row], *, enforced: bool) -> Iterator[Finding]:
    """The findings about ``sacctmgr show associations`` of one user."""
    own = [row for row in associations if row.get("User") == user]
    if not own and enforced:
        todo = "ask the administrators for an account (sacctmgr add user)"
        yield fail("account", f"{user} has none", "every submission is rejected", todo)
        return
    accounts = ", ".join(sorted({row["Account"] for row in own})) or "none needed"
    yield ok("account", f"{user}: {accounts}")
    for row in own:
        yield from _limits(row)


def _limits(row: Row) -> Iterator[Finding]:
    where = f"limits of {row['Account']}"
    submit, running = _lowest(row, "MaxSubmit", "GrpSubmit"), _lowest(row, "MaxJobs", "GrpJobs")
    if submit is not None and submit < _A_CHAIN_NEEDS:
        follows = "a successor can never be submitted before its predecessor has ended"
        todo = "ask for MaxSubmitJobs of at least 2 per chain, or use another account"
        yield fail(where, f"MaxSubmitJobs={submit}", follows, todo)
    elif submit is not None:
        follows = f"room for {submit // _A_CHAIN_NEEDS} chains in this account at the same time"
        yield ok(where, f"MaxSubmitJobs={submit}", follows)
    if running is not None and running < _A_CHAIN_NEEDS:
        follows = "a successor starts only after its predecessor ends: each handover has an interruption"
        yield warn(where, f"MaxJobs={running}", follows, "ask for MaxJobs of at least 2, or use another account")


def _lowest(row: Row, *names: str) -> int | None:
    given = [int(row[name]) for name in names if row.get(name, "").isdigit()]
    return min(given, default=None)


def check_operator(user: str, users: list[Row], controller: str = "") -> Finding:
    """Check whether the daemon's account may release other users' jobs (acting mode release).

    ``controller``: ``SlurmUser`` of Slurm's settings, who may as well.
    """
    if user in (_SUPERUSER, controller.partition("(")[0]):
        return ok("acting", f"{user} is Slurm's own user", "it may release the held links of all users")
    level = next((row.get("Admin", "") for row in users if row.get("User") == user), "none")
    if level in ("Operator", "Administrator"):
        return ok("acting", f"{user} is {level}", "it may release the held links of all users")
    todo = f"sacctmgr modify user {user} set adminlevel=operator"
    return fail("acting", f"{user} is no Operator ({level})", "held links of other users cannot be released", todo)


def hides_jobs(private: str) -> bool:
    """Whether ``PrivateData`` hides other users' jobs from ordinary users."""
    return "jobs" in private.lower()


def check_nodes(user: str, private: str) -> Iterator[Finding]:
    """Report that ``PrivateData`` hides the states of nodes from ordinary users."""
    if "nodes" in private.lower():
        follows = f"unless {user} is an Operator, forecasts use the queue but not the nodes"
        todo = f"if forecasts need the nodes: sacctmgr modify user {user} set adminlevel=Operator"
        yield warn("privacy", f"PrivateData={private}", follows, todo)


def check_privacy(user: str, private: str, *, sees_all: bool, acts_for_others: bool) -> Finding:
    """Check whether the daemon's account sees the whole queue; ``sees_all``: Slurm confirms that it does."""
    found = f"PrivateData={private or 'none'}"
    if not hides_jobs(private):
        return ok("privacy", found, "the whole queue is visible")
    if sees_all:
        return ok("privacy", f"{found}, {user} is an Operator or Slurm's own user", "the whole queue is visible")
    todo = f"make it an Operator: sacctmgr modify user {user} set adminlevel=Operator"
    if acts_for_others:
        follows = f"{user} is no Operator and does not see other users' links: their chains get no successors"
        return fail("privacy", found, follows, todo)
    follows = f"{user} is no Operator and sees only its jobs: predictions do not use the queue"
    return warn("privacy", found, follows, todo)


_OTHERS = "pin ages (links need whole nodes); nice ages, but a link starts immediately on an idle node"


def check_turns(found: str, chosen: Steering) -> Finding:
    """Modes that gain a place where jobs run in turn (priority/basic)."""
    follows = (
        "jobs run in order of submission: pin keeps a link's place; a job that is released, or whose nice value "
        "changes, goes to the end of the queue, so hold and nice gain nothing"
    )
    if chosen in (Steering.HOLD, Steering.NICE):
        todo = 'set chains.steering = "pin" where links have whole nodes, else "off"'
        return warn("priority", f'{found}, chains.steering = "{chosen}"', follows, todo)
    return ok("priority", found, follows)


def check_steering(settings: Row, chosen: Steering) -> Finding:
    """Modes that age under ``PriorityFlags`` and ``AccountingStorageEnforce``; ``chosen``: that of new chains."""
    flags, enforced = settings.get("PriorityFlags", ""), settings.get("AccountingStorageEnforce", "")
    found = f"PriorityFlags={flags or 'none'}, AccountingStorageEnforce={enforced or 'none'}"
    if "ACCRUE_ALWAYS" in flags.upper():
        return ok("steering", found, f"hold ages: every job ages from its submission; {_OTHERS}")
    limits = {"limits", "safe", "all"} & set(enforced.lower().split(","))
    forgotten = "whenever a job is held" if limits else "if a job is submitted held, as links are"
    follows = f"hold does not age: age counts from the release, {forgotten}; {_OTHERS}"
    if chosen is Steering.HOLD:
        todo = 'set chains.steering = "pin" where links have whole nodes, else "off"'
        return warn("steering", f'{found}, chains.steering = "hold"', follows, todo)
    return ok("steering", found, follows)


_DEFAULT_BF_WINDOW = 1_440
_DEFAULT_MIN_JOB_AGE = 300
_ANCIENT = (20, 11)
_MAY_SET_COMMENTS = ("lua", "cray", "cray_aries")
"""Plugins that run a site's own code."""


def check_settings(settings: Row, client: str, interval: Seconds, steering: Steering) -> Iterator[Finding]:
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
        yield check_turns(f"PriorityType={settings.get('PriorityType')}", steering)
        return
    weight = settings.get("PriorityWeightAge", "0")
    if weight == "0":
        follows = "waiting does not raise a successor's priority; early submission gains only by fair share"
        yield warn(
            "age", "PriorityWeightAge=0", follows, "nothing, if this is intended; early submission gains little"
        )
    else:
        yield _age(settings, number(weight, 0), number(settings.get("PriorityWeightFairShare", ""), 0))
    yield check_steering(settings, steering)


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


def check_partitions(partitions: list[Row]) -> Iterator[Finding]:
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
    apart = [row["PartitionName"] for row in partitions if row.get("AllocNodes", "ALL") not in ("ALL", "")]
    if apart:
        follows = "jobs on compute nodes may not submit there: --controller job is not possible"
        yield warn("partitions", f"AllocNodes: {', '.join(apart)}", follows, "use a daemon or mirage install cron")
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
