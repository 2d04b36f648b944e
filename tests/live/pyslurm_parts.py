"""What the acting process of the pyslurm tests is made of; imported there, where no test framework is."""

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
