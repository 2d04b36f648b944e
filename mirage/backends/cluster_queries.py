"""Queries to Slurm about the cluster: its name, the time of slurmctld, node sharing, ``PrivateData``."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from mirage.backends.jobquery import QueryRejected
from mirage.backends.restclient import NoSuchPath
from mirage.domain.chain import NOTHING_EXPECTED
from mirage.domain.errors import BadSpelling, ClusterUnavailable, NotPermitted
from mirage.domain.link import NO_IDENTITIES
from mirage.slurm import node_text
from mirage.slurm.conf import read_settings
from mirage.slurm.error_messages import one_line
from mirage.slurm.rest.queue import why_shared

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from mirage.backends.execution import CommandRunner
    from mirage.backends.rest import RestConnection
    from mirage.domain.job import Job, JobId, Seconds
    from mirage.domain.link import LinkIdentity
    from mirage.domain.snapshot import Snapshot
    from mirage.ports import Cluster


class CliNodeSharing:
    """The port ``NodeSharing`` by ``scontrol``: one or two queries for each job."""

    def __init__(self, commands: CommandRunner) -> None:
        self._commands = commands

    def why_shared(self, job: Job, *, spreads: bool = False) -> str:
        """Query the job, and its nodes where the job alone does not decide. See the port."""
        shown = self._shown(node_text.job_arguments(job.job_id))
        if why := node_text.requeued(shown):
            return why
        if node_text.has_whole_nodes(shown):
            return ""
        nodes = self._shown(node_text.node_arguments(job.node_list))
        return node_text.why_shared(shown, nodes, spreads=spreads)

    def _shown(self, argv: Sequence[str]) -> str:
        answer = self._commands.run(argv)
        if answer.status:
            raise ClusterUnavailable(f"{' '.join(argv)}: exit {answer.status}: {one_line(answer.said)}")
        return answer.out


class RestNodeSharing:
    """The port ``NodeSharing`` by slurmrestd: one query for each job."""

    def __init__(self, rest: RestConnection) -> None:
        self._rest = rest

    def why_shared(self, job: Job, *, spreads: bool = False) -> str:
        """See the port; only whole nodes count, on which nothing can spread."""
        del spreads
        path = f"job/{job.job_id}"
        records = self._rest.records(path, "jobs")
        if len(records) != 1:
            self._rest.unavailable(f"GET {path}", f"{len(records)} jobs in the answer, expected one")
        return why_shared(records[0])


_SDIAG = re.compile(r"^sdiag output at .*\(([0-9]{1,18})\)", re.MULTILINE)


def read_controller_time(text: str) -> Seconds:
    """The time that ``sdiag`` shows, epoch seconds. Raises ``BadSpelling``."""
    match = _SDIAG.search(text)
    if match is None:
        raise BadSpelling(text, "expected the answer of sdiag")
    return int(match[1])


def cli_controller_time(commands: CommandRunner) -> Seconds:
    """By ``sdiag``. Raises ``ClusterUnavailable``."""
    answer = commands.run(("sdiag",))
    if answer.status:
        raise ClusterUnavailable(f"sdiag: exit {answer.status}: {answer.said[:300]}")
    try:
        return read_controller_time(answer.out)
    except BadSpelling as error:
        raise ClusterUnavailable(f"sdiag: {error}") from None


def rest_controller_time(rest: RestConnection) -> Seconds:
    """By slurmrestd's ``diag``. Raises ``ClusterUnavailable``."""
    try:
        found: object = rest.ask("GET", "diag").body
    except NotPermitted as error:
        raise ClusterUnavailable(str(error)) from None
    for key in ("statistics", "req_time", "number"):  # newer versions say {"set": true, "number": 1}
        found = found.get(key) if isinstance(found, dict) else found
    if not isinstance(found, int) or isinstance(found, bool) or not 0 < found < 10**18:
        raise ClusterUnavailable("slurmrestd: its diagnostics have no time of the controller")
    return found


_NONE = "(null)"


def cli_cluster_name(commands: CommandRunner) -> str:
    """From ``scontrol show config``; empty: Slurm does not report it. Raises ``ClusterUnavailable``."""
    if shutil.which("scontrol", path=commands.environment.get("PATH", os.defpath)) is None:
        return ""  # the backend pyslurm can do without it
    answer = commands.run(("scontrol", "show", "config"))
    if answer.status:
        raise ClusterUnavailable(f"scontrol show config: exit {answer.status}: {answer.said[:300]}")
    name = read_settings(answer.out).get("clustername", "")
    return "" if name == _NONE else name


def rest_cluster_name(rest: RestConnection) -> str:
    """From the answer to a ping; empty: an older version without it. Raises ``ClusterUnavailable``."""
    try:
        found: object = rest.ask("GET", "ping").body
    except NotPermitted as error:
        raise ClusterUnavailable(str(error)) from None
    for key in ("meta", "slurm", "cluster"):
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, str) else ""


class CheckedCluster:
    """A ``Cluster`` that is polled only once ``check`` has returned: it raises for another cluster."""

    def __init__(self, cluster: Cluster, check: Callable[[], None]) -> None:
        self._cluster = cluster
        self._check = check

    def snapshot(
        self,
        *,
        queue: bool = True,
        expected: Mapping[str, JobId] = NOTHING_EXPECTED,
        identities: Mapping[str, LinkIdentity] = NO_IDENTITIES,
    ) -> Snapshot:
        """Take the wrapped cluster's snapshot after ``check``; raises what ``check`` does."""
        self._check()
        return self._cluster.snapshot(queue=queue, expected=expected, identities=identities)


_SUPERUSER = "root"
_ASKS_FOR_COORDINATORS = 40
"""From this version of the API on the user's record has them only where that is asked for."""
_LEVELS = frozenset({"operator", "administrator"})


@dataclass(frozen=True, slots=True)
class CliVisibility:
    """By ``scontrol show config`` and ``sacctmgr show user``."""

    commands: CommandRunner
    account: str

    def __call__(self, seen: bool = False) -> bool:
        """Whether the account sees all jobs; false also where Slurm does not report it. Ignores ``seen``."""
        if self.account == _SUPERUSER:
            return True
        try:
            settings = read_settings(self._printed("scontrol", "show", "config"))
            hidden, controller = settings.get("privatedata", "jobs"), settings.get("slurmuser", "")
            if "jobs" not in hidden.lower() or controller.partition("(")[0] == self.account:
                return True
            users = self._printed("sacctmgr", "-nP", "show", "user", self.account, "format=user,adminlevel")
        except ClusterUnavailable:
            return False
        rows = (line.split("|") for line in users.splitlines())
        return any(row[0] == self.account and _is_operator(row[-1]) for row in rows)

    def _printed(self, *argv: str) -> str:
        answer = self.commands.run(argv)
        return "" if answer.status else answer.out


@dataclass(frozen=True, slots=True)
class RestVisibility:
    """By the user's level in accounting: slurmrestd does not show ``PrivateData``.

    Jobs of other users that are seen show that it is off, unless the account coordinates accounts of Slurm.
    """

    rest: RestConnection
    account: str

    def __call__(self, seen: bool = False) -> bool:
        """Whether the account sees all jobs; ``seen``: whether it sees any of other users.

        False also if slurmrestd does not report it.
        """
        if self.account == _SUPERUSER:
            return True
        try:
            path = f"user/{quote(self.account, safe='')}"
            if self.rest.number() >= _ASKS_FOR_COORDINATORS:
                path += "?with_coords=true"
            users = self.rest.records(path, "users", family="slurmdb")
        except NoSuchPath:  # no accounting, so no coordinators
            return seen
        except (ClusterUnavailable, NotPermitted, QueryRejected):
            return False
        own = [user for user in users if user.get("name") == self.account]
        if any(map(_level_of, own)):
            return True
        return seen and bool(own) and not any(user.get("coordinators") for user in own)


def _level_of(user: Mapping[str, Any]) -> bool:
    level = user.get("administrator_level")  # a list since v0.0.39
    levels: Sequence[object] = level if isinstance(level, list) else [level]
    return any(_is_operator(str(each)) for each in levels)


def _is_operator(level: str) -> bool:
    return level.lower() in _LEVELS
