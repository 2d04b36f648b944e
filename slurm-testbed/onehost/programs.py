"""The required programs, their paths, and the Debian packages that contain them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from onehost.errors import TestbedError

if TYPE_CHECKING:
    from onehost.settings import Settings

SEARCH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"))

PACKAGES = {
    "munged": "munge",
    "munge": "munge",
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "slurmstepd": "slurmd",
    "scontrol": "slurm-client",
    "slurmrestd": "slurmrestd",
}
ACCOUNTING_PACKAGES = {
    "slurmdbd": "slurmdbd",
    "mariadbd": "mariadb-server",
    "mariadb-install-db": "mariadb-server",
    "mariadb": "mariadb-client",
}
JWT_PLUGINS = "/usr/lib/*/slurm-wlm/auth_jwt.so"
CLOCK_LIBRARIES = "/usr/lib/*/faketime/libfaketimeMT.so.1"


def find(program: str) -> Path | None:
    """The program's path; administrators' directories are searched too.

    Debian's slurm-wlm-emulator takes over the daemons' names; the real daemons then have names that end in
    ``-wlm``.
    """
    found = shutil.which(f"{program}-wlm", path=SEARCH) or shutil.which(program, path=SEARCH)
    return Path(found) if found else None


def glob_one(pattern: str) -> Path | None:
    """The first file that matches an absolute pattern."""
    return next(iter(sorted(Path("/").glob(pattern.lstrip("/")))), None)


def missing_packages(settings: Settings) -> list[str]:
    """Debian packages to install before this testbed can start."""
    wanted = PACKAGES | (ACCOUNTING_PACKAGES if settings.privileged else {})
    missing = {package for program, package in wanted.items() if find(program) is None}
    if glob_one(JWT_PLUGINS) is None:
        missing.add("slurm-wlm-jwt-plugin")
    if settings.speed > 1 and (find("faketime") is None or glob_one(CLOCK_LIBRARIES) is None):
        missing.add("faketime")
    return sorted(missing)


def check_programs(settings: Settings) -> None:
    """Raise ``TestbedError`` with the missing packages."""
    missing = missing_packages(settings)
    if missing:
        raise TestbedError(
            f"not installed: {' '.join(missing)} (apt-get install --no-install-recommends {' '.join(missing)})"
        )


def need(program: str) -> str:
    """The program's path; ``check_programs`` has already reported what is missing."""
    found = find(program)
    if found is None:
        raise TestbedError(f"not installed: {program}")
    return str(found)


def slurm_version() -> str:
    """Version of Slurm, such as ``22.05.8``."""
    answer = subprocess.run([need("slurmctld"), "-V"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"\d+\.\d+\.\d+", answer)
    if not found:
        raise TestbedError(f"slurmctld -V printed {answer!r}")
    return found.group()
