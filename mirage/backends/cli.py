"""The cluster as Slurm's commands show it: ``squeue``, ``sinfo`` and ``sacct``, also past jobs and links."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from mirage.backends.cli_links import LinkTracker
from mirage.backends.cluster_queries import CliVisibility
from mirage.backends.execution import ArgumentsRefused
from mirage.backends.jobquery import Fates, QueryRejected, no_answer
from mirage.backends.seldom import Seldom
from mirage.domain.chain import NOTHING_EXPECTED
from mirage.domain.errors import BadSpelling, ClusterUnavailable
from mirage.domain.job import ABSENT, JobState
from mirage.domain.link import NO_IDENTITIES, NO_JOB
from mirage.slurm import accounting, node_text, queuetext
from mirage.slurm.conf import read_settings
from mirage.slurm.error_messages import access_denied, one_line, unreachable
from mirage.slurm.rows import new_mark

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from mirage.backends.execution import CommandOutput, CommandRunner
    from mirage.domain.job import Job, JobId, Seconds
    from mirage.domain.jobtable import JobTable
    from mirage.domain.link import LinkIdentity
    from mirage.domain.snapshot import PartitionState, Snapshot
    from mirage.domain.tags import PastLinks
    from mirage.ports import Clock
    from mirage.slurm.queuetext import Queue

_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")

_RECENT_DAYS = 2
"""Age up to which jobs without a known ID are searched."""
_EPOCH = {"SLURM_TIME_FORMAT": "%s"}
NO_ACCOUNTING = "accounting storage is disabled"


class CliCluster:
    """The port ``Cluster``: one ``squeue``, one ``sinfo`` and, when a link has ended, one ``sacct``.

    One ``sacct`` more where accounting has another job with the ID of a link.

    ``clock`` is Slurm's; it only dates the snapshots. Not for several threads.
    """

    def __init__(self, commands: CommandRunner, clock: Clock, account: str = "") -> None:
        """``account``: as whom Slurm is queried; empty: as one who sees the jobs of all users."""
        self._commands = commands
        self._clock = clock
        self._memory = LinkTracker(account, CliVisibility(commands, account))
        self._rows = queuetext.KnownRows()
        self._seldom = Seldom()

    def snapshot(
        self,
        *,
        queue: bool = True,
        expected: Mapping[str, JobId] = NOTHING_EXPECTED,
        identities: Mapping[str, LinkIdentity] = NO_IDENTITIES,
    ) -> Snapshot:
        """The queue and the nodes now; without ``queue`` only the links. See the port.

        Where all links are the account's own, slurmctld is then asked for this user's jobs alone: two RPCs, whose
        cost does not grow with the queue. A link whose end cannot be learned because accounting is down stays as
        it was last seen.
        """
        now = self._clock.now()
        users = () if queue else self._own_jobs(expected, identities)
        seen = self._queue(expected, users, columns=queue)
        partitions = self._partitions() if queue else ()
        links = self._memory.account(seen, expected, self._fates, now, identities, self._runs)
        return self._memory.snapshot(now, seen, partitions, links)

    def _own_jobs(self, expected: Mapping[str, JobId], identities: Mapping[str, LinkIdentity]) -> tuple[str, ...]:
        """The option that leaves out jobs of other users; none where a link may be one of theirs."""
        account = self._memory.account_name
        owners = {identities[tag].owner if tag in identities else "" for tag in expected}
        # --local: jobs of other clusters of a federation are none of ours, and asking for it is one RPC more.
        return ("--local", f"--user={account}") if account and owners <= {account} else ()

    def _queue(self, expected: Mapping[str, JobId], users: tuple[str, ...], *, columns: bool) -> Queue:
        mark = new_mark()
        argv = ["squeue", *queuetext.ARGUMENTS, *users]
        wanted = {job_id for job_id in expected.values() if job_id != NO_JOB}
        return _read(
            argv,
            self._ask(argv, queuetext.queue_settings(mark)),
            lambda text: queuetext.read_queue(text, mark, wanted, columns=columns, known=self._rows),
        )

    def _partitions(self) -> tuple[PartitionState, ...]:
        mark = new_mark()
        argv = ["sinfo", *node_text.ARGUMENTS]
        answer = self._answer(argv, node_text.node_settings(mark))
        if answer.status and access_denied(answer.said):  # PrivateData=nodes: the queue is seen all the same
            if self._seldom.allows("nodes_hidden", ""):
                text = "event=nodes_hidden reason=%r; forecasts know the queue alone, as with PrivateData=nodes"
                _LOG.warning(text, one_line(answer.said))
            return ()
        text = _checked(argv, answer.status, answer.out, answer.said)
        found, unreadable = _read(argv, text, lambda text: node_text.read_partitions(text, mark))
        self._memory.report_unreadable("nodes", unreadable)
        return found

    def _fates(self, ids: Collection[JobId]) -> Fates:
        arguments = accounting.fate_arguments(ids) if ids else accounting.recent_arguments(_RECENT_DAYS)
        return self._accounted(arguments)

    def _runs(self, ids: Collection[JobId]) -> Fates:
        return self._accounted(accounting.run_arguments(ids))

    def _accounted(self, arguments: Sequence[str]) -> Fates:
        mark = new_mark()
        argv = ["sacct", *arguments]
        try:
            answer = self._commands.run(argv, environment=self._commands.environment | accounting.settings(mark))
            if NO_ACCOUNTING in answer.err:
                return Fates({}, lagging=False)
            if answer.status and not unreachable(answer.said):
                return no_answer(QueryRejected(f"sacct: exit {answer.status}: {one_line(answer.said)}"))
            text = _checked(argv, answer.status, answer.out, answer.said)
            runs, unreadable = _read(argv, text, lambda text: accounting.read_runs(text, mark))
            return Fates.of_runs(with_cancelled(self._commands, runs), unreadable)
        except ArgumentsRefused as trouble:
            return no_answer(QueryRejected(str(trouble)))
        except ClusterUnavailable as trouble:
            return no_answer(trouble)

    def _ask(self, argv: Sequence[str], settings: Mapping[str, str]) -> str:
        answer = self._answer(argv, settings)
        return _checked(argv, answer.status, answer.out, answer.said)

    def _answer(self, argv: Sequence[str], settings: Mapping[str, str]) -> CommandOutput:
        return self._commands.run(argv, environment=self._commands.environment | dict(settings))


def _checked(argv: Sequence[str], status: int, out: str, said: str) -> str:
    if status:
        raise ClusterUnavailable(f"{argv[0]}: exit {status}: {one_line(said)}")
    return out


def _read(argv: Sequence[str], text: str, read: Callable[[str], _T]) -> _T:
    try:
        return read(text)
    except BadSpelling as fault:
        raise ClusterUnavailable(f"{argv[0]}: {fault}") from fault


def with_cancelled(commands: CommandRunner, runs: Sequence[Job]) -> list[Job]:
    """``runs``; those cancelled by an unknown user that ended before slurmctld was started are CANCELLED.

    As slurmctld starts it reports cancelled jobs again, without the user. Jobs that it lost end later. Raises
    ``ClusterUnavailable``.
    """
    if not any(run.reason == accounting.CANCELLED_BY_UNKNOWN for run in runs):
        return list(runs)
    answer = commands.run(["scontrol", "show", "config"], environment=commands.environment | _EPOCH)
    started = read_settings(answer.out).get("boot_time", "")
    since = int(started) if answer.status == 0 and started.isdecimal() else 0
    return [
        replace(run, state=JobState.CANCELLED)
        if run.reason == accounting.CANCELLED_BY_UNKNOWN and ABSENT < run.end < since
        else run
        for run in runs
    ]


_log = logging.getLogger(__name__)


def past_jobs(commands: CommandRunner, start: Seconds, end: Seconds) -> JobTable:
    """The jobs that ran or ended at any time in [start, end) on Slurm's clock, as they are known now.

    One ``sacct``: a caller that reads more than a day gives slurmdbd a pause between two days. Raises
    ``ClusterUnavailable`` when slurmdbd does not answer.
    """
    mark = new_mark()
    answer = commands.run(
        ["sacct", *accounting.history_arguments(start, end)],
        environment=commands.environment | accounting.settings(mark),
    )
    if answer.status:
        raise ClusterUnavailable(f"sacct: exit {answer.status}: {one_line(answer.said)}")
    try:
        found, left_out = accounting.read_history(answer.out, mark)
    except BadSpelling as fault:
        raise ClusterUnavailable(f"sacct: {fault}") from fault
    if left_out:
        _log.warning("event=jobs_left_out source=sacct jobs=%d start=%d end=%d", left_out, start, end)
    return found


@dataclass(frozen=True, slots=True)
class CliLinkAccounting:
    """The port ``LinkAccounting`` by way of ``sacct``."""

    commands: CommandRunner

    def keeps_comments(self) -> bool:
        """Whether ``AccountingStoreFlags`` has ``job_comment``. Raises ``ClusterUnavailable``."""
        answer = self.commands.run(["scontrol", "show", "config"])
        _check("scontrol show config", answer)
        return "job_comment" in read_settings(answer.out).get("accountingstoreflags", "").lower()

    def past_links(self, start: Seconds, end: Seconds, ids: Collection[JobId]) -> PastLinks | None:
        """One ``sacct``. Raises ``ClusterUnavailable``."""
        mark = new_mark()
        argv = ["sacct", *accounting.past_link_arguments(start, end)]
        answer = self.commands.run(argv, environment=self.commands.environment | accounting.settings(mark))
        if NO_ACCOUNTING in answer.err:
            return None
        _check("sacct", answer)
        try:
            found = accounting.read_past_links(answer.out, mark, ids)
        except BadSpelling as error:
            raise ClusterUnavailable(f"sacct: {error}") from error
        return replace(found, jobs=tuple(with_cancelled(self.commands, found.jobs)))


def _check(command: str, answer: CommandOutput) -> None:
    if answer.status:
        raise ClusterUnavailable(f"{command}: exit {answer.status}: {one_line(answer.said)}")
