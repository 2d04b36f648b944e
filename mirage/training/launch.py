"""Work as jobs of the cluster's, by submitit: tables in parts, models each by itself, whole trainings."""

from __future__ import annotations

import shutil
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mirage.domain.errors import ConfigError, MirageError, MissingExtra
from mirage.slurm.wording import refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from pathlib import Path

MINUTES = 12 * 60
"""Time limit of a job, where ``SBATCH_TIMELIMIT`` names no other one."""
LOOK_EVERY = 1.0


class JobFailed(MirageError):
    """A job ended badly; the text has its last words, and where all of them are."""


@dataclass(frozen=True, slots=True)
class SlurmJobs:
    """Jobs of one kind, of whoever runs this; partition, account, GPUs as ``SBATCH_PARTITION`` and such say.

    ``folder`` is for what the jobs are given and what they say, on a file system that the nodes share, as this
    Python must be. submitit learns of jobs that were killed from ``sacct``.
    """

    folder: Path
    name: str
    cpus: int
    """Of each."""
    count: int = 1
    """Among how many work is split that can be split at will."""
    cluster: str = "slurm"
    """submitit's name of where jobs run: ``local`` are processes of this machine."""

    def watched(self, work: Sequence[Callable[[], object]]) -> Generator[None]:
        """Submit a job for each function, and yield periodically until all have ended well.

        Functions must be picklable; what they return is dropped. Whoever closes the iterator before its end
        cancels the jobs, and one that fails cancels the others. Raises ``MissingExtra`` without submitit,
        ``ConfigError`` without Slurm, ``SubmissionRejected`` or ``ClusterUnavailable`` with sbatch's words, and
        ``JobFailed``.
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
                with suppress(Exception):  # it may have ended just now, or Slurm may be away
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
            raise ConfigError("--launcher", "slurm needs sbatch and srun, which are not here: use local")
        return submitit

    def _check(self, job: Any) -> None:
        try:
            job.result()
        except Exception as error:  # submitit's own kinds, and what the function raised on its node
            raise JobFailed(f"job {job.job_id}: {_last_words(error)}; all of it is in {self.folder}") from error


_WHERE = "You can check full logs"
"""With which submitit begins what follows the last words of a job that failed."""


def _last_words(error: Exception) -> str:
    """What went wrong in a job, in a line."""
    said = [line.strip() for line in str(error).partition(_WHERE)[0].splitlines() if line.strip(" -")]
    return said[-1] if said else type(error).__name__
