"""What a job inherits from the submitting shell besides the environment: umask, resource limits, nice.

``sbatch`` reads those of its process and passes them on as ``SLURM_UMASK``, ``SLURM_RLIMIT_NOFILE`` and so on,
which slurmstepd applies (as far as ``PropagateResourceLimits`` says) and removes from the job's environment.
Another process submits the links, days later: ``mirage submit`` reads them, and they are sent as these variables.
"""

from __future__ import annotations

import os
import resource
from typing import TYPE_CHECKING

from mirage.domain.job import NO_RESOURCE_LIMIT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mirage.domain.job import BatchScript

RESOURCES = ("CPU", "FSIZE", "DATA", "STACK", "CORE", "RSS", "NPROC", "NOFILE", "MEMLOCK", "AS")
"""The limits that Slurm passes on (src/common/slurm_rlimits_info.c)."""

_UNLIMITED = (1 << 64) - 1


def read_umask() -> int:
    """The umask of this process. Not for several threads: there is no other way to read it than to set it."""
    umask = os.umask(0o077)
    os.umask(umask)
    return umask


def read_resource_limits() -> tuple[tuple[str, int], ...]:
    """The soft limits of this process, as ``BatchScript.resource_limits``."""
    return tuple((name, resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))[0]) for name in RESOURCES)


def process_variables(batch: BatchScript) -> dict[str, str]:
    """The variables by which these reach a job; a ``SLURM_UMASK`` of the user's own counts.

    ``sbatch`` overwrites the nice value with that of its process.
    """
    known = batch.umask is not None and "SLURM_UMASK" not in dict(batch.environment)
    umask = {"SLURM_UMASK": f"0{batch.umask:03o}"} if known else {}
    nice = {} if batch.process_nice is None else {"SLURM_PRIO_PROCESS": str(batch.process_nice)}
    return umask | nice | limit_variables(batch)


def limit_variables(batch: BatchScript) -> dict[str, str]:
    """The variables of the resource limits, as ``sbatch`` sets them.

    Without ``--propagate`` it sends all, and slurm.conf says which of them count. With it, it sends those that the
    option names, marked as asked for. ``--get-user-env`` has slurmd take the limits of a login instead.
    Empty: ``sbatch`` is to do what it would do without Mirage, also where it rejects the option.
    """
    if _given("--get-user-env", batch.options) is not None:
        return {}
    asked = _given("--propagate", batch.options)
    names, mark = (RESOURCES, "") if asked is None else (_named(asked), "U")
    return {
        f"SLURM_RLIMIT_{name}": mark + _spelled(value) for name, value in batch.resource_limits if name in names
    }


def _given(option: str, options: Iterable[str]) -> str | None:
    """The value of the last such option, empty where it has none; ``None``: it is not there."""
    values = [word.partition("=")[2] for word in options if word.partition("=")[0] == option]
    return values[-1] if values else None


def _named(asked: str) -> tuple[str, ...]:
    """The limits that ``--propagate=ALL`` or a list names; none where ``sbatch`` does not know one of them."""
    if asked in ("", "ALL"):
        return RESOURCES
    names = tuple(name.removeprefix("RLIMIT_") for name in asked.replace(",", " ").split())
    return names if set(names) <= set(RESOURCES) else ()


def _spelled(value: int) -> str:
    return str(_UNLIMITED if value == NO_RESOURCE_LIMIT else value)
