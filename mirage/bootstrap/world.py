"""The daemon's connection to a cluster, and how it runs Slurm's commands there."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from mirage.backends.backgroundfiles import BackgroundFiles, local_files
from mirage.control.wallclock import CorrectedClock, WallClock, read_clock
from mirage.domain.errors import ConfigError

if TYPE_CHECKING:
    from mirage.backends.acting.links_only import Identity
    from mirage.backends.acting.orderdesk import OrderDesk
    from mirage.config.model import ClusterSection
    from mirage.control.clockcheck import ClockCheck
    from mirage.control.wallclock import RealTimeClock
    from mirage.domain.job import JobId, JobRequest, Seconds
    from mirage.domain.jobtable import JobTable
    from mirage.ports import Actuator, Cluster, JobHistory, LinkAccounting, NodeSharing, Standings, StartEstimator
    from mirage.simulator.cluster import ClusterConfig

_PASSED_ON = ("PATH", "SLURM_CONF", "LD_LIBRARY_PATH")
"""Variables of the daemon's environment that Slurm's commands get: search paths, and nothing about a job."""

History = Callable[["Seconds", "Seconds"], "JobTable"]
"""Jobs that ran or ended between two times, at most a day apart, by the accounting."""


@dataclass(frozen=True, slots=True)
class Lore:
    """Information on a cluster beyond its queue, and how to refresh it."""

    history: History | None = None
    """``None``: the accounting is not asked."""
    links: LinkAccounting | None = None
    """Asked after a restored backup; ``None``: nothing is known of links that have left the queue."""
    jobs: JobHistory | None = None
    """``None``: those that the history brought and the database keeps."""
    standings: Standings | None = None
    sharing: NodeSharing | None = None
    """``None``: nothing is known of what runs next to a job on its nodes."""
    refresh: Callable[[], str] | None = None
    """Asks for standings again where that is due; not for the loop's thread. Says what it did."""
    hides_jobs: Callable[[], bool] = lambda: True
    """Whether users may not see the jobs of others, or that is not known. Waits for nothing."""
    name: Callable[[], str] | None = None
    """The cluster's name, empty if Slurm does not report it; raises ``ClusterUnavailable``. ``None``: unknown."""
    description: Callable[[], ClusterConfig] | None = None
    """The cluster as its configuration describes it; raises ``ConfigError`` and ``ClusterUnavailable``."""
    clock: ClockCheck | None = None
    """Keeps the world's clock in step with the controller's; ``None``: that one cannot be asked."""
    copied: Callable[[Path], str] | None = None
    """The same for another program: what its ``--cluster`` takes, once files were laid into the directory."""


NOTHING_KNOWN = Lore()


Identify = Callable[["JobId", str], "Identity"]
"""Raises ``UnknownJob``, ``NotPermitted`` and ``ClusterUnavailable``. Any thread."""


def takes_any(_request: JobRequest) -> None:
    """The check of a way to submit that carries every option."""


@dataclass(frozen=True, slots=True)
class World:
    """Connection of the daemon to a cluster."""

    cluster: Cluster
    actuator: Actuator
    estimator: StartEstimator
    clock: RealTimeClock
    lore: Lore = NOTHING_KNOWN
    user: str = ""
    """User as whom the daemon submits in acting mode ``own``; empty: not known."""
    desk: OrderDesk | None = None
    """Queue from which users' agents fetch their requests, in acting mode ``agent``."""
    files: BackgroundFiles = field(default_factory=local_files)
    """Checks of users' files, by an account that may see them."""
    check_request: Callable[[JobRequest], None] = takes_any
    """Raises ``SubmissionRejected`` for what no link could be submitted with; may take seconds."""
    identify: Identify | None = None
    """Asks Slurm about a job of an owner; may take seconds. ``None``: no job of a user's own can be there."""


def slurm_clock(section: ClusterSection) -> CorrectedClock:
    """The clock of the Slurm that the daemon speaks to. Raises ``ConfigError``."""
    return CorrectedClock(read_clock(Path(section.clock)) if section.clock else WallClock())


def own_user() -> str:
    """The name of the user that this process runs as. Raises ``ConfigError`` where the machine has none for it."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        problem = (
            f"UID {os.getuid()} has no name on this machine; add the account, or run the daemon as another user"
        )
        raise ConfigError("user", problem) from None


def command_environment(section: ClusterSection) -> dict[str, str]:
    """In which Slurm's commands run."""
    passed_on = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    return passed_on | ({"SLURM_CONF": section.slurm_conf} if section.slurm_conf else {})
