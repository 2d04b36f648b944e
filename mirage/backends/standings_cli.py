"""``Standings`` of a cluster that is seen by Slurm's commands: asked periodically, next to the loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from mirage.backends.standings import Granted, Limits, RunningJob
from mirage.domain.errors import BadSpelling, ClusterUnavailable, ConfigError
from mirage.simulator.configuration.accountdump import parse_associations, parse_qos
from mirage.slurm import sharetext
from mirage.slurm.configtext import ENFORCED, read_settings
from mirage.slurm.reservationtext import (
    PARTITION_ARGUMENTS,
    RESERVATION_ARGUMENTS,
    SETTINGS,
    read_partition_nodes,
    read_reservations,
)
from mirage.slurm.wording import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mirage.backends.execution import Commands
    from mirage.domain.decision import Standing
    from mirage.domain.job import JobRequest, Seconds
    from mirage.ports import Clock

_T = TypeVar("_T")

EVERY: Seconds = 3_600
"""Maximum age of an answer."""

_ASSOCIATIONS = (
    *("--parsable2", "show", "assoc"),
    "format=Cluster,Account,User,ParentName,Partition,GrpJobs,MaxJobs",
)
_QOS = ("--parsable2", "show", "qos", "format=Name,GrpJobs,MaxJobsPU,MaxJobsPA")
_RUNNING = ("--noheader", "--states=RUNNING,SUSPENDED", "--format=%u|%a|%q")


class CliStandings:
    """Answers from the result of the last ``refresh``; before that nothing is known."""

    def __init__(self, commands: Commands, clock: Clock) -> None:
        self._commands = commands
        self._clock = clock
        self._granted = Granted()
        self._asked: Seconds | None = None
        self._hides_jobs = True

    def standing(self, request: JobRequest) -> Standing:
        """That of the request's user; asks nothing."""
        return self._granted.standing(request, self._clock.now())

    def default_partition(self) -> str:
        """The default partition of the last ``refresh``; sends no query."""
        return self._granted.default_partition

    def hides_jobs(self) -> bool:
        """Whether ``PrivateData`` hides the jobs of others from users; true until Slurm has answered."""
        return self._hides_jobs

    def refresh(self) -> str:
        """Query again where an hour has passed; returns what is missing, or an empty text where nothing is due.

        The queries run one after the other, each about all users. What is not answered counts as not known.
        """
        now = self._clock.now()
        if self._asked is not None and 0 <= now - self._asked < EVERY:
            return ""
        self._asked = now
        silent: list[str] = []
        self._granted = self._ask_all(silent)
        return (
            f"not available: {'; '.join(silent)}"
            if silent
            else "fair shares, limits and reservations are available"
        )

    def _ask_all(self, silent: list[str]) -> Granted:
        def ask(argv: Sequence[str], read: Callable[[str], _T], otherwise: _T) -> _T:
            try:
                return read(self._answer(argv))
            except (BadSpelling, ClusterUnavailable, ConfigError) as trouble:
                silent.append(str(trouble))
                return otherwise

        unknown = Granted()
        return Granted(
            ask(("sshare", *sharetext.SHARE_ARGUMENTS), sharetext.read_shares, unknown.shares),
            ask(("sacctmgr", *sharetext.USER_ARGUMENTS), sharetext.read_default_accounts, unknown.accounts),
            ask(("scontrol", "show", "config"), self._limits, unknown.limits),
            ask(("scontrol", *RESERVATION_ARGUMENTS), read_reservations, unknown.reservations),
            ask(("scontrol", *PARTITION_ARGUMENTS), read_partition_nodes, unknown.partitions),
        )

    def _limits(self, config: str) -> Limits:
        """Without any where the configuration enforces none."""
        settings = read_settings(config)
        self._hides_jobs = "jobs" in settings.get("privatedata", "jobs").lower()
        if not ENFORCED & set(settings.get("accountingstorageenforce", "").lower().split(",")):
            return Limits({}, {}, ())
        name = settings.get("clustername", "")
        rows, _ = parse_associations(self._answer(("sacctmgr", *_ASSOCIATIONS)), "sacctmgr show assoc", name)
        qos, _ = parse_qos(self._answer(("sacctmgr", *_QOS)), "sacctmgr show qos")
        running = self._answer(("squeue", *_RUNNING)).splitlines()
        return Limits(
            {(row.account, row.user): row for row in rows},
            {quality.name: quality for quality in qos},
            tuple(RunningJob(*cells) for cells in (line.split("|") for line in running) if len(cells) == 3),
        )

    def _answer(self, argv: Sequence[str]) -> str:
        environment = self._commands.environment | SETTINGS
        answer = self._commands.run(argv, environment=environment)
        if answer.status:
            raise ClusterUnavailable(f"{argv[0]}: exit {answer.status}: {one_line(answer.said)}")
        return answer.out
