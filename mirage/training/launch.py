"""Run work in other processes: as jobs of the cluster with submitit, and workers that end with their parent."""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import parent_process
from threading import Thread
from typing import TYPE_CHECKING, Any

from mirage.domain.errors import ConfigError, MirageError, MissingExtra
from mirage.slurm.error_messages import refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from pathlib import Path


def leave_with_parent() -> None:
    """End this process when its parent has ended, for any reason.

    A worker whose parent was killed would otherwise wait for work indefinitely.
    """
    Thread(target=_wait_and_leave, daemon=True).start()


def _wait_and_leave() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


MINUTES = 12 * 60
"""Time limit of a job, unless ``SBATCH_TIMELIMIT`` is set."""
LOOK_EVERY = 1.0


class JobFailed(MirageError):
    """A job failed; the text has its last lines, and the directory with all of them."""


@dataclass(frozen=True, slots=True)
class SlurmJobs:
    """Jobs of one kind of the current user; ``SBATCH_PARTITION`` and similar set partition, account, GPUs.

    ``folder`` is for input and output of the jobs, on a file system that the nodes share, as this Python must be.
    submitit uses ``sacct`` to detect killed jobs.
    """

    folder: Path
    name: str
    cpus: int
    """CPUs of each job."""
    count: int = 1
    """Number of jobs for work that can be split freely."""
    cluster: str = "slurm"
    """submitit's name of the executor: ``local`` means processes of this machine."""

    def watched(self, work: Sequence[Callable[[], object]]) -> Generator[None]:
        """Submit a job for each function, and yield periodically until all have succeeded.

        Functions must be picklable; their results are dropped. Closing the iterator before its end cancels the
        jobs; a failed job cancels the others. Raises ``MissingExtra`` without submitit, ``ConfigError`` without
        Slurm, ``SubmissionRejected`` or ``ClusterUnavailable`` with sbatch's message, and ``JobFailed``.
        """
        jobs = self._submitted(work)
        waiting = list(jobs)
        try:
            while waiting:
                for job in [job for job in waiting if job.done()]:
                    self._check(job)
                    waiting.remove(job)
                yield
                time.sleep(LOOK_EVERY if waiting else 0)
        finally:
            for job in waiting:
                with suppress(Exception):  # it may just have ended, or Slurm may be unavailable
                    job.cancel()

    def check(self) -> None:
        """Raise ``MissingExtra`` without submitit, and ``ConfigError`` without Slurm."""
        self._library()

    def _submitted(self, work: Sequence[Callable[[], object]]) -> list[Any]:
        executor = self._executor()
        jobs: list[Any] = []
        try:
            for function in work:
                jobs.append(executor.submit(function))  # noqa: PERF401 (those before a rejection are cancelled)
        except Exception as error:
            for job in jobs:
                job.cancel()
            raise refusal(str(error), "sbatch") from error
        return jobs

    def _executor(self) -> Any:
        executor = self._library().AutoExecutor(folder=self.folder.absolute(), cluster=self.cluster)
        executor.update_parameters(name=self.name, cpus_per_task=self.cpus, timeout_min=MINUTES)
        return executor

    def _library(self) -> Any:
        try:
            import submitit
        except ModuleNotFoundError:
            raise MissingExtra("work as jobs of the cluster's", "slurm") from None
        if self.cluster == "slurm" and not (shutil.which("sbatch") and shutil.which("srun")):
            raise ConfigError("--launcher", "sbatch or srun not found; use local")
        return submitit

    def _check(self, job: Any) -> None:
        try:
            job.result()
        except Exception as error:  # submitit's exceptions, and those of the function on its node
            raise JobFailed(f"job {job.job_id}: {_last_words(error)}; full log in {self.folder}") from error


_WHERE = "You can check full logs"
"""Text with which submitit introduces the log of a failed job."""


def _last_words(error: Exception) -> str:
    """The error of a job, in one line."""
    said = [line.strip() for line in str(error).partition(_WHERE)[0].splitlines() if line.strip(" -")]
    return said[-1] if said else type(error).__name__
