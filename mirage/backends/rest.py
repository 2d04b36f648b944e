"""A Slurm cluster through slurmrestd, whichever versions of its API it offers."""

from __future__ import annotations

import logging
import pwd
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NoReturn
from urllib.parse import quote

from mirage.backends.cli_links import LinkTracker
from mirage.backends.cluster_queries import RestVisibility
from mirage.backends.jobquery import Fates, QueryRejected, no_answer
from mirage.backends.restclient import NoSuchPath
from mirage.domain.chain import NOTHING_EXPECTED
from mirage.domain.errors import BadSpelling, ClusterUnavailable, NotPermitted
from mirage.domain.job import ABSENT
from mirage.domain.link import NO_IDENTITIES, NO_JOB
from mirage.slurm.rest import versions
from mirage.slurm.rest.answers import RestErrors
from mirage.slurm.rest.history import read_history, read_past_links, read_past_runs
from mirage.slurm.rest.queue import read_partitions, read_queue
from mirage.slurm.rest.versions import Kind, lift, with_partitions

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from mirage.backends.restclient import RestClient, RestResponse
    from mirage.domain.job import Job, JobId, JobRequest, Seconds
    from mirage.domain.jobtable import JobTable
    from mirage.domain.link import LinkIdentity
    from mirage.domain.snapshot import PartitionState, Snapshot
    from mirage.domain.tags import PastLinks
    from mirage.ports import Clock
    from mirage.slurm.queuetext import Queue
    from mirage.slurm.rest.answers import Record

_log = logging.getLogger(__name__)

_LOOK_BACK = 2 * 86_400
"""How far back a link whose id is not known is looked for: its submission was tried at most some hours ago."""


class RestVersion:
    """The newest version that a slurmrestd offers and Mirage knows: found out when first needed."""

    def __init__(self, pinned: int | None = None) -> None:
        self._found = pinned
        self._pinned = pinned

    def of(self, client: RestClient) -> int:
        """The version's number, such as 38. Raises ``UnsupportedSlurm`` listing those that are offered."""
        found = self._found  # another thread may forget it meanwhile
        if found is None:
            self._found = found = _discover(client)
        return found

    def forget(self) -> None:
        """Find it out again: slurmrestd may have been upgraded."""
        self._found = self._pinned


def _discover(client: RestClient) -> int:
    """Tries the versions, newest first: a ping costs little, the list of all paths megabytes."""
    for version in versions.KNOWN:
        if not client.ask("GET", f"/slurm/{versions.spell(version)}/ping").unknown_path:
            return version
    paths = client.ask("GET", "/openapi/v3").body.get("paths")
    offered = versions.offered(paths if isinstance(paths, dict) else ())
    raise versions.unsupported(f"slurmrestd at {client.address.text}", offered)


@dataclass(frozen=True, slots=True)
class RestConnection:
    """Requests whose paths and errors are understood."""

    client: RestClient
    version: RestVersion

    def number(self) -> int:
        """The API version in use, such as 44 for v0.0.44."""
        return self.version.of(self.client)

    def ask(self, method: str, path: str, body: Record | None = None, *, family: str = "slurm") -> RestResponse:
        """A request to ``/slurm/VERSION/path``. Raises ``ClusterUnavailable`` also where there is no such path."""
        answer = self.client.ask(method, f"/{family}/{versions.spell(self.number())}/{path}", body)
        if answer.unknown_path:
            self.version.forget()
            where = f"slurmrestd at {self.client.address.text}: {method} {family}/{path}"
            raise NoSuchPath(f"{where}: no such path; was slurmrestd upgraded?")
        return answer

    def records(self, path: str, name: str, *, family: str = "slurm") -> list[Record]:
        """The list ``name`` in the answer to a GET, its entries not yet parsed.

        Raises ``ClusterUnavailable`` unless it is whole.
        """
        answer = self.ask("GET", path, family=family)
        if answer.errors:
            faults = RestErrors.read(answer.errors)
            if family == "slurmdb" and faults.found_nothing:
                return []
            if family == "slurmdb" and faults.not_understood:
                raise QueryRejected(f"slurmrestd at {self.client.address.text}: GET {path[:80]}: {faults.line}")
            self.unavailable(f"GET {path}", f"{faults.line} (asked as {self.client.credentials})")
        found = answer.body.get(name)
        if not isinstance(found, list):
            self.unavailable(f"GET {path}", f"the answer has no list of {name}")
        return found

    def unavailable(self, what: str, problem: str) -> NoReturn:
        """Raise ``ClusterUnavailable`` with place and problem."""
        raise ClusterUnavailable(f"slurmrestd at {self.client.address.text}: {what}: {problem}")


class RestCluster:
    """``Cluster`` through one slurmrestd, in the name of one user.

    A snapshot queries the jobs, the nodes and, only where expected links are not among the jobs, accounting for
    them. What accounting does not report stays as it was last seen. v0.0.36's nodes do not name their
    partitions: it queries those once, and its nodes never show that they drain. Slurm's accounting forgets
    comments unless ``AccountingStoreFlags`` has ``job_comment``: without it a link that has left the queue is
    found by id only.
    """

    def __init__(
        self, client: RestClient, clock: Clock, version: RestVersion | None = None, account: str = ""
    ) -> None:
        """``account``: as whom Slurm is queried; empty: as one who sees the jobs of all users."""
        self._rest = RestConnection(client, version or RestVersion())
        self._clock = clock
        self._partitions: list[Record] | None = None
        self._memory = LinkTracker(account, RestVisibility(self._rest, account))

    def snapshot(
        self,
        *,
        queue: bool = True,
        expected: Mapping[str, JobId] = NOTHING_EXPECTED,
        identities: Mapping[str, LinkIdentity] = NO_IDENTITIES,
    ) -> Snapshot:
        """The queue and the nodes now. Raises ``ClusterUnavailable``, also where the token is not accepted."""
        try:
            return self._snapshot(queue, expected, identities)
        except NotPermitted as error:
            raise ClusterUnavailable(str(error)) from None
        except BadSpelling as error:
            self._rest.unavailable("an answer is not as expected", str(error))

    def estimate_start(self, request: JobRequest) -> Seconds:
        """Raises ``ClusterUnavailable``: up to v0.0.46 slurmrestd cannot estimate starts.

        ``test_only`` of v0.0.38 is accepted but submits.
        """
        del request
        raise ClusterUnavailable("slurmrestd cannot report when a job would start")

    def past_jobs(self, start: Seconds, end: Seconds) -> JobTable:
        """The jobs that ran or ended at any time in [start, end) on Slurm's clock, as they are known now.

        One query. Up to v0.0.37 a running job counts as begun when it became eligible. Raises
        ``ClusterUnavailable``, also where slurmrestd runs without the accounting's paths.
        """
        which = f"start_time=uts{start}&end_time=uts{end}&skip_steps=true"
        try:
            records = self._rest.records(f"jobs?{which}", "jobs", family="slurmdb")
            found, left_out = read_history(records, self._shape(Kind.PAST_JOB))
        except NotPermitted as error:
            raise ClusterUnavailable(str(error)) from None
        except BadSpelling as error:
            self._rest.unavailable("accounting's answer is not as expected", str(error))
        if left_out:
            _log.warning("event=jobs_left_out source=slurmrestd jobs=%d start=%d end=%d", left_out, start, end)
        return found

    def keeps_comments(self) -> None:
        """Return ``None`` (unknown): slurmrestd does not report ``AccountingStoreFlags``."""

    def past_links(self, start: Seconds, end: Seconds, ids: Collection[JobId]) -> PastLinks | None:
        """Links in the queue in [start, end): see ``LinkAccounting``. Raises ``ClusterUnavailable``."""
        which = f"start_time=uts{start}&end_time=uts{end}&skip_steps=true"
        try:
            records = self._rest.records(f"jobs?{which}", "jobs", family="slurmdb")
            return read_past_links(records, self._shape(Kind.PAST_JOB), ids)
        except NoSuchPath:  # slurmrestd runs without the accounting's paths
            return None
        except NotPermitted as error:
            raise ClusterUnavailable(str(error)) from None

    def _snapshot(
        self, queue: bool, expected: Mapping[str, JobId], identities: Mapping[str, LinkIdentity]
    ) -> Snapshot:
        now = self._clock.now()
        jobs = self._rest.records("jobs", "jobs")
        wanted = set(expected.values()) - {NO_JOB}
        seen = read_queue(jobs, self._shape(Kind.JOB), user_name, wanted, columns=queue)
        partitions = self._nodes() if queue else ()
        links = self._links(seen, expected, now, identities)
        return self._memory.snapshot(now, seen, partitions, links)

    def _links(
        self,
        seen: Queue,
        expected: Mapping[str, JobId],
        now: Seconds,
        identities: Mapping[str, LinkIdentity],
    ) -> dict[str, Job]:
        last = self._memory.last
        links = self._memory.account(seen, expected, self._fates, now, identities)
        return {tag: _with_known_exit(job, last.get(tag)) for tag, job in links.items()}

    def _fates(self, ids: Collection[JobId]) -> Fates:
        """Return accounting's records of these jobs, or of all recent ones, with one query."""
        if ids:
            which = f"step={quote(','.join(str(job_id) for job_id in ids), safe='')}"
        else:
            # Without the letters v0.0.40 and v0.0.41 do not take it for a time.
            which = f"start_time=uts{self._clock.now() - _LOOK_BACK}"
        try:
            records = self._rest.records(f"jobs?{which}&skip_steps=true", "jobs", family="slurmdb")
            runs, unreadable = read_past_runs(records, self._shape(Kind.PAST_JOB))
            return Fates.of_runs(runs, unreadable)
        except NoSuchPath:  # slurmrestd runs without the accounting's paths: none of this will ever be known
            return Fates({}, lagging=False)
        except ClusterUnavailable as trouble:
            return no_answer(trouble)

    def _shape(self, kind: Kind) -> Callable[[Record], Record]:
        return partial(lift, kind, self._rest.number())

    def _nodes(self) -> tuple[PartitionState, ...]:
        nodes = self._rest.records("nodes", "nodes")
        if self._rest.number() < 37:
            if self._partitions is None:
                self._partitions = self._rest.records("partitions", "partitions")
            nodes = with_partitions(nodes, self._partitions)
        found, unreadable = read_partitions(nodes, self._shape(Kind.NODE))
        self._memory.report_unreadable("nodes", unreadable)
        return found


def _with_known_exit(job: Job, last: Job | None) -> Job:
    """Before v0.0.40 accounting reports no exit codes: the one that the queue showed, if it did."""
    if job.exit_code == ABSENT and last is not None and last.job_id == job.job_id and last.state is job.state:
        return replace(job, exit_code=last.exit_code)
    return job


def user_name(user_id: int) -> str:
    """The name of a user ID on this machine, the ID itself where it has none."""
    try:
        return pwd.getpwuid(user_id).pw_name
    except KeyError:
        return str(user_id)
