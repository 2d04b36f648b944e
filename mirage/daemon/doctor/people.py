"""Rights in Slurm of the daemon's account and of the users on whose behalf it submits links."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.daemon.doctor.finding import fail, ok, warn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirage.daemon.doctor.finding import Finding
    from mirage.daemon.doctor.reading import Row

_SUPERUSER = "root"
_A_CHAIN_NEEDS = 2
"""Jobs of a chain in the queue at the same time: the running predecessor and the pending successor."""


def look_at_associations(user: str, associations: list[Row], *, enforced: bool) -> Iterator[Finding]:
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


def look_at_operator(user: str, users: list[Row], controller: str = "") -> Finding:
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


def look_at_nodes(user: str, private: str) -> Iterator[Finding]:
    """Report that ``PrivateData`` hides the states of nodes from ordinary users."""
    if "nodes" in private.lower():
        follows = f"unless {user} is an Operator, forecasts use the queue but not the nodes"
        todo = f"if forecasts need the nodes: sacctmgr modify user {user} set adminlevel=Operator"
        yield warn("privacy", f"PrivateData={private}", follows, todo)


def look_at_privacy(user: str, private: str, *, sees_all: bool, acts_for_others: bool) -> Finding:
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
