"""A Slurm cluster through libslurm in this process, by way of pyslurm.

A query blocks the whole process until Slurm answers, at most ``MessageTimeout``; only a separate process could end
it earlier. Where slurmctld is often slow, the ``cli`` backend serves better.
"""

from __future__ import annotations

import importlib
import os
import signal as signals
import socket
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mirage.backends.cli_links import LinkTracker
from mirage.backends.jobquery import Fates, no_answer
from mirage.backends.libslurm_records import arguments, changes, job_record, node_record, past_job_record
from mirage.backends.links_only import JobIdentity
from mirage.domain.chain import NOTHING_EXPECTED
from mirage.domain.errors import (
    BadSpelling,
    ClusterUnavailable,
    ConfigError,
    MissingExtra,
    NotPermitted,
    UnknownJob,
)
from mirage.domain.job import JobId, JobState, SignalReach, job_id_of
from mirage.domain.link import NO_IDENTITIES, NO_JOB
from mirage.slurm.rest.answers import RestErrors, instant, text
from mirage.slurm.rest.description import describe, describe_change
from mirage.slurm.rest.history import read_past_runs
from mirage.slurm.rest.queue import job_state, read_partitions, read_queue
from mirage.slurm.rest.queue import owner as owner_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from mirage.backends.cli_links import ShowsAll
    from mirage.domain.job import JobChange, JobRequest
    from mirage.domain.link import LinkIdentity
    from mirage.domain.snapshot import PartitionState, Snapshot
    from mirage.ports import Clock

_CONFIGURATIONS = ("/etc/slurm/slurm.conf", "/etc/slurm-llnl/slurm.conf", "/run/slurm/conf/slurm.conf")
_DAY = 86_400
_LOOK_BACK = 2 * _DAY
"""Age up to which a link without a known ID is searched."""
_REACHES = {SignalReach.BATCH: 0x01, SignalReach.STEPS: 0x00, SignalReach.ALL: 0x08}
"""KILL_JOB_BATCH and KILL_FULL_JOB of slurm.h; without a flag the steps alone are signalled."""
_SIGKILL = int(signals.SIGKILL)


@dataclass(frozen=True, slots=True)
class Libslurm:
    """The module ``pyslurm`` and its version."""

    module: Any
    version: tuple[int, int]

    @classmethod
    def load(cls) -> Libslurm:
        """Import pyslurm.

        Its import ends the whole process where no slurm.conf is readable, so that is looked at before. Raises
        ``ConfigError`` in that case and where a token stands in the environment, which pyslurm would pass on to
        every job; ``MissingExtra`` where pyslurm is not installed.
        """
        named = os.environ.get("SLURM_CONF")
        if not any(_readable(path) for path in ([named] if named else _CONFIGURATIONS)):
            raise ConfigError(named or _CONFIGURATIONS[0], "cannot be read, and pyslurm needs it: set SLURM_CONF")
        if "SLURM_JWT" in os.environ:
            raise ConfigError("SLURM_JWT", "pyslurm would pass this token on to every job: unset it")
        try:
            module = importlib.import_module("pyslurm")
        except ImportError:
            raise MissingExtra("the pyslurm backend", "pyslurm") from None
        return cls(module, _version(str(module.__version__)))

    def ask(self, question: Callable[[], Any], what: str) -> Any:
        """The answer of libslurm. Raises ``ClusterUnavailable`` where it does not answer."""
        try:
            return question()
        except self.module.RPCError as error:
            raise ClusterUnavailable(f"libslurm: {what}: {error}") from None

    def act(self, deed: Callable[[], Any], what: str) -> Any:
        """Do something to a job. Raises what Slurm's rejection amounts to; ``what`` names the act and the job."""
        try:
            return deed()
        except self.module.RPCError as error:
            raise _faults(error).of_act(what) from None


def _readable(path: str) -> bool:
    return os.access(path, os.R_OK)


def _version(text: str) -> tuple[int, int]:
    major, minor, *_ = text.split(".")
    return int(major), int(minor)


def _faults(error: Any) -> RestErrors:
    return RestErrors(str(error), (error.errno,) if type(error.errno) is int else ())


class LibslurmCluster:
    """``Cluster``: one RPC for the jobs, one for the nodes, one for accounting where a link has left."""

    def __init__(
        self, libslurm: Libslurm, clock: Clock, account: str = "", shows_all: ShowsAll = lambda seen: False
    ) -> None:
        """``account``: as whom Slurm is queried; empty: as one who sees the jobs of all users."""
        self._libslurm = libslurm
        self._slurm = libslurm.module
        self._clock = clock
        self._memory = LinkTracker(account, shows_all)

    def snapshot(
        self,
        *,
        queue: bool = True,
        expected: Mapping[str, JobId] = NOTHING_EXPECTED,
        identities: Mapping[str, LinkIdentity] = NO_IDENTITIES,
    ) -> Snapshot:
        """Query jobs and nodes now, and accounting where an expected link has left the queue."""
        now = self._clock.now()
        jobs = list(self._libslurm.ask(lambda: self._slurm.Jobs.load().values(), "jobs"))
        wanted = set(expected.values()) - {NO_JOB}
        try:
            seen = read_queue(jobs, job_record, str, wanted, columns=queue)
            partitions = self._partitions() if queue else ()
        except BadSpelling as error:
            raise ClusterUnavailable(f"libslurm: {error}") from None
        links = self._memory.account(seen, expected, self._fates, now, identities)
        return self._memory.snapshot(now, seen, partitions, links)

    def _partitions(self) -> tuple[PartitionState, ...]:
        nodes = self._libslurm.ask(lambda: self._slurm.Nodes.load().values(), "nodes")
        found, unreadable = read_partitions(list(nodes), node_record)
        self._memory.report_unreadable("nodes", unreadable)
        return found

    def _fates(self, ids: Collection[JobId]) -> Fates:
        """Rows of accounting for these jobs, or for all recent ones."""
        now = self._clock.now()  # without an end, the window would end at this machine's own now
        wish = {"ids": list(ids), "start_time": 1} if ids else {"start_time": now - _LOOK_BACK}
        db = self._slurm.db
        try:
            found = self._libslurm.ask(
                lambda: db.Jobs.load(db.JobFilter(**wish, end_time=now + _DAY)).values(), "accounting"
            )
            runs, unreadable = read_past_runs(found, past_job_record)
            return Fates.of_runs(runs, unreadable)
        except ClusterUnavailable as trouble:
            return no_answer(trouble)


class LibslurmActuator:
    """``Actuator`` as the user that this process is."""

    def __init__(self, libslurm: Libslurm, user: str, clock: Clock) -> None:
        self._libslurm = libslurm
        self._slurm = libslurm.module
        self._user = user
        self._clock = clock

    def submit(self, request: JobRequest) -> JobId:
        """Submit a batch job.

        Raises ``SubmissionRejected`` also naming an option for which this pyslurm has no argument.
        """
        self._only_own(request.user, "submit")
        description = describe(request, self._clock.now(), socket.gethostname())
        wishes = arguments(description, self._libslurm.version)
        with tempfile.NamedTemporaryFile("w", prefix="mirage-", suffix=".sh") as script:
            # given as text, pyslurm takes it for a path first, which fails for long ones
            script.write(description["script"])
            script.flush()
            try:
                return job_id_of(int(self._slurm.JobSubmitDescription(script=script.name, **wishes).submit()))
            except BadSpelling as error:
                raise ClusterUnavailable(f"libslurm: submission: {error}") from None
            except self._slurm.RPCError as error:
                raise _faults(error).of_submission("libslurm: submission") from None

    def cancel(self, job_id: JobId, owner: str) -> None:
        """Cancel a job of the process's own user with SIGKILL."""
        self._only_own(owner, f"cancel job {job_id}")
        try:
            self._kill(job_id, _SIGKILL, 0)
        except self._slurm.RPCError as error:
            faults = _faults(error)
            if not faults.already_ended:
                raise faults.of_act(f"cancel job {job_id}") from None

    def update(self, job_id: JobId, owner: str, change: JobChange) -> None:
        """Hold, release, nice or put off a pending job; never by ``Job.hold``, which ends the process in 22.5."""
        self._only_own(owner, f"change job {job_id}")
        self._expect(job_id, JobState.PENDING)
        wish = self._slurm.JobSubmitDescription(**changes(describe_change(change)))
        self._libslurm.act(lambda: self._slurm.Job(job_id).modify(wish), f"change job {job_id}")

    def signal(self, job_id: JobId, owner: str, signal: str, *, reach: SignalReach) -> None:
        """Send a signal to a running job of the process's own user."""
        self._only_own(owner, f"signal job {job_id}")
        self._expect(job_id, JobState.RUNNING)
        number = int(getattr(signals, f"SIG{signal}"))
        self._libslurm.act(lambda: self._kill(job_id, number, _REACHES[reach]), f"signal job {job_id}")

    def identify(self, job_id: JobId, owner: str) -> JobIdentity:
        """Owner, comment and submission time of a job."""
        self._only_own(owner, f"look at job {job_id}")
        record = job_record(self._libslurm.act(lambda: self._slurm.Job.load(job_id), f"look at job {job_id}"))
        return JobIdentity(owner_of(record, str), text(record, "comment"), instant(record, "submit_time"))

    def _kill(self, job_id: JobId, number: int, flags: int) -> None:
        """``slurm_kill_job``: by the old function while there is one, because it looks at what is returned.

        ``Job.send_signal`` looks at errno alone: one of the C library's, below Slurm's numbers, is no error.
        """
        old = getattr(self._slurm, "slurm_kill_job", None)
        if old is not None:
            try:
                old(job_id, number, flags)
            except ValueError as error:
                raise self._slurm.RPCError(error.args[-1]) from None
            return
        try:
            self._slurm.Job(job_id).send_signal(number, steps=_STEPS[flags])
        except self._slurm.RPCError as error:
            if not 0 < error.errno < _FIRST_OF_SLURM:
                raise

    def _expect(self, job_id: JobId, state: JobState) -> None:
        """Raise ``UnknownJob`` unless the job is in that state."""
        job = self._libslurm.act(lambda: self._slurm.Job.load(job_id), f"look at job {job_id}")
        seen = job_state(job_record(job))
        if seen is not state:
            raise UnknownJob(f"job {job_id} is not {state.name} but {seen.name}")

    def _only_own(self, owner: str, act: str) -> None:
        if owner != self._user:
            raise NotPermitted(f"cannot {act} for {owner}: libslurm acts as {self._user}, who Mirage runs as")


_STEPS = {0x00: "children", 0x01: "batch", 0x08: "all"}
_FIRST_OF_SLURM = 1_000
