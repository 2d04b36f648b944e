"""Places of a training: a process on this machine, or a job on the cluster."""

from __future__ import annotations

import subprocess
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from mirage.backends.background import last_line, run_aside
from mirage.domain.errors import MirageError
from mirage.training.launch import JobFailed, SlurmJobs

if TYPE_CHECKING:
    from collections.abc import Sequence
    from threading import Event

_CPUS = 8
"""Resources that a training job requests."""


class TrainingFailed(MirageError):
    """A training ended badly; the text has its last words."""


class Launcher(Protocol):
    """Runs one training command to its end, on this machine or as a job."""

    workers: int
    """Processes that it has room for."""

    def run(self, argv: Sequence[str], folder: Path, stopped: Event) -> bool:
        """Whether it ended well; ``False``: it was ended because ``stopped`` was set.

        What it says is in ``folder``. Raises ``TrainingFailed``.
        """


class LocalLauncher:
    """A process of least priority next to the daemon."""

    workers = 1

    def run(self, argv: Sequence[str], folder: Path, stopped: Event) -> bool:
        """Run the command as a child process. See ``Launcher``."""
        log = folder / "train.log"
        status = run_aside(argv, folder, log, stopped.wait)
        if status:
            raise TrainingFailed(f"exit {status}: {last_line(log)}; full log in {log}")
        return status is not None


class SlurmLauncher:
    """A job of the daemon's user, by submitit; its partition and account are as ``SBATCH_PARTITION`` and such say.

    ``folder`` must be on a file system that the nodes share.
    """

    workers = _CPUS

    def __init__(self, cluster: str = "slurm") -> None:
        """``cluster``: submitit's name of where jobs run. Raises ``MissingExtra``; ``ConfigError``: no Slurm."""
        self._cluster = cluster
        self._jobs(Path()).check()

    def run(self, argv: Sequence[str], folder: Path, stopped: Event) -> bool:
        """Run the command as a Slurm job. See ``Launcher``."""
        work = [partial(_run_command, tuple(argv), str(folder))]
        with closing(self._jobs(folder).watched(work)) as job:
            try:
                for _ in job:
                    if stopped.is_set():
                        return False
            except JobFailed as error:
                raise TrainingFailed(str(error)) from error
        return True

    def _jobs(self, folder: Path) -> SlurmJobs:
        return SlurmJobs(folder / "jobs", "mirage-train", _CPUS, cluster=self._cluster)


def _run_command(argv: tuple[str, ...], folder: str) -> None:
    subprocess.run(argv, cwd=folder, check=True)  # noqa: S603 - this program itself
