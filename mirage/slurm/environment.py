"""The environment that a link gets: its owner's at the time of submission, as ``sbatch`` would pass it on."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_SECRET = ("SLURM_JWT", "SLURMRESTD_")
"""Beginnings of the names of variables that would let a job act as its owner elsewhere."""

_OF_A_JOB = ("SLURM_", "SLURMD_", "PMI_", "PMIX_")
"""Beginnings of the names of variables that belong to one job, not to what is submitted from within it."""

_OF_A_LINK = "MIRAGE_"

_OF_THE_SITE = ("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_TIME_FORMAT")


def capture(environment: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The variables to pass on, by name.

    Left out are tokens, and what says "you are within job 123" where the submission is made inside a job.
    """
    dropped: tuple[str, ...] = (*_SECRET, _OF_A_LINK)
    if "SLURM_JOB_ID" in environment:
        dropped += _OF_A_JOB
    return tuple(
        sorted(
            (name, value)
            for name, value in environment.items()
            if name in _OF_THE_SITE or not name.startswith(dropped)
        )
    )
