"""Parts of the acting process in the pyslurm tests; imported there, where no test framework exists."""

from __future__ import annotations

import getpass
from typing import TYPE_CHECKING, Any

from mirage.backends.libslurm import Libslurm, LibslurmActuator, LibslurmCluster

if TYPE_CHECKING:
    from mirage.ports import Clock


def make(clock: Clock) -> dict[str, Any]:
    libslurm = Libslurm.load()
    return {
        "cluster": LibslurmCluster(libslurm, clock),
        "actuator": LibslurmActuator(libslurm, getpass.getuser(), clock),
    }
