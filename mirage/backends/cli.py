"""The cluster as Slurm's own commands show it: ``squeue``, ``sinfo`` and ``sacct``, text in formats of ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from mirage.backends.cli_links import LinkMemory
from mirage.backends.execution import ArgumentsRefused
from mirage.backends.jobquery import Fates, QueryRejected, no_answer
from mirage.domain.chain import NO_JOB, NOTHING_EXPECTED
from mirage.domain.errors import BadSpelling, ClusterUnavailable
from mirage.slurm import accounting, nodetext, queuetext
from mirage.slurm.rows import new_mark
from mirage.slurm.wording import one_line, unreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from mirage.backends.execution import Commands
    from mirage.domain.job import JobId
    from mirage.domain.snapshot import PartitionState, Snapshot
    from mirage.ports import Clock
    from mirage.slurm.queuetext import Queue

_T = TypeVar("_T")

_RECENT_DAYS = 2
"""How far back jobs are looked for whose id was never learnt."""
_NO_ACCOUNTING = "accounting storage is disabled"


class CliCluster:
    """The port ``Cluster``: one ``squeue``, one ``sinfo`` and, when a link has ended, one ``sacct``.

    ``clock`` is Slurm's; it only dates the snapshots. Not for several threads.
    """

    def __init__(self, commands: Commands, clock: Clock) -> None:
        self._commands = commands
        self._clock = clock
        self._memory = LinkMemory()

    def snapshot(self, *, queue: bool = True, expected: Mapping[str, JobId] = NOTHING_EXPECTED) -> Snapshot:
        """The queue and the nodes now; without ``queue`` only the links. See the port.

        A link whose end cannot be learnt because accounting is down stays as it was last seen.
        """
        now = self._clock.now()
        seen = self._queue(expected, columns=queue)
        partitions = self._partitions() if queue else ()
        links = self._memory.account(seen, expected, self._fates, now)
        return self._memory.snapshot(now, seen, partitions, links)

    def _queue(self, expected: Mapping[str, JobId], *, columns: bool) -> Queue:
        mark = new_mark()
        argv = ["squeue", *queuetext.queue_arguments(mark)]
        wanted = {job_id for job_id in expected.values() if job_id != NO_JOB}
        return _read(
            argv,
            self._ask(argv, queuetext.SETTINGS),
            lambda text: queuetext.read_queue(text, mark, wanted, columns=columns),
        )

    def _partitions(self) -> tuple[PartitionState, ...]:
        mark = new_mark()
        argv = ["sinfo", *nodetext.node_arguments(mark)]
        found, unreadable = _read(argv, self._ask(argv, {}), lambda text: nodetext.read_partitions(text, mark))
        self._memory.report_unreadable("nodes", unreadable)
        return found

    def _fates(self, ids: Collection[JobId]) -> Fates:
        mark = new_mark()
        arguments = (
            accounting.fate_arguments(mark, ids) if ids else accounting.recent_arguments(mark, _RECENT_DAYS)
        )
        argv = ["sacct", *arguments]
        try:
            answer = self._commands.run(argv, environment=self._commands.environment | accounting.SETTINGS)
            if _NO_ACCOUNTING in answer.err:
                return Fates({}, lagging=False)
            if answer.status and not unreachable(answer.said):
                return no_answer(QueryRejected(f"sacct: exit {answer.status}: {one_line(answer.said)}"))
            text = _checked(argv, answer.status, answer.out, answer.said)
            jobs, unreadable = _read(argv, text, lambda text: accounting.read_fates(text, mark))
            return Fates(jobs, unreadable=unreadable)
        except ArgumentsRefused as trouble:
            return no_answer(QueryRejected(str(trouble)))
        except ClusterUnavailable as trouble:
            return no_answer(trouble)

    def _ask(self, argv: Sequence[str], settings: Mapping[str, str]) -> str:
        answer = self._commands.run(argv, environment=self._commands.environment | dict(settings))
        return _checked(argv, answer.status, answer.out, answer.said)


def _checked(argv: Sequence[str], status: int, out: str, said: str) -> str:
    if status:
        raise ClusterUnavailable(f"{argv[0]}: exit {status}: {one_line(said)}")
    return out


def _read(argv: Sequence[str], text: str, read: Callable[[str], _T]) -> _T:
    try:
        return read(text)
    except BadSpelling as fault:
        raise ClusterUnavailable(f"{argv[0]}: {fault}") from fault
