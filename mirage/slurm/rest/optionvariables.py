"""The variables that ``sbatch`` puts into a job's environment because of the options it was given.

slurmctld and slurmd set others, also for jobs of slurmrestd; these they do not. As in src/sbatch/opt.c
(``set_envs`` and ``_opt_verify``) and src/common/env.c (``set_env_from_opts``) of Slurm.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mirage.slurm.batchscript import SBATCH_LINE, read_directives
from mirage.slurm.sbatch import sbatch_arguments
from mirage.slurm.sbatchoptions import SBATCH, Word

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirage.domain.job import JobRequest

_COUNTS = {
    "cpus-per-task": ("SLURM_CPUS_PER_TASK",),
    "ntasks": ("SLURM_NPROCS", "SLURM_NTASKS"),
    "ntasks-per-core": ("SLURM_NTASKS_PER_CORE",),
    "ntasks-per-node": ("SLURM_NTASKS_PER_NODE",),
    "ntasks-per-socket": ("SLURM_NTASKS_PER_SOCKET",),
    "threads-per-core": ("SLURM_THREADS_PER_CORE",),
}
_TEXTS = {
    "dependency": "SLURM_JOB_DEPENDENCY",
    "gpus": "SLURM_GPUS",
    "gpus-per-node": "SLURM_GPUS_PER_NODE",
    "gpus-per-task": "SLURM_GPUS_PER_TASK",
}
_MULTIPLY = ("sockets-per-node", "threads-per-core")
"""``sbatch`` multiplies the nodes by these if no number of tasks is given."""

_PLAIN = re.compile(r"[0-9]{1,9}", re.ASCII)

_LAST_GPUS_PER_TASK, _LAST_OPEN_MODE = 39, 41
"""The newest versions of the API whose Slurm (23.02, 24.05) has an ``sbatch`` that sets these."""


def option_variables(request: JobRequest, version: int) -> dict[str, str]:
    """Those of the options of the script and the request, with which ``sbatch`` would have been called.

    A count that is no plain number sets none. Raises ``BadSpelling`` for options that cannot be read.
    """
    given = _given(request)
    found = {name: str(count) for option, count in _counts(given).items() for name in _COUNTS[option]}
    found |= {name: given[option] for option, name in _TEXTS.items() if given.get(option)}
    if version > _LAST_GPUS_PER_TASK:
        found.pop("SLURM_GPUS_PER_TASK", None)
    if "open-mode" in given and version <= _LAST_OPEN_MODE:
        found["SLURM_OPEN_MODE"] = "a" if given["open-mode"].lower().startswith("a") else "t"
    if "container" in given and request.batch and "SLURM_CONTAINER" not in dict(request.batch.environment):
        found["SLURM_CONTAINER"] = given["container"]
    return found


def _given(request: JobRequest) -> dict[str, str]:
    """The last value of each option: those of the script count less."""
    script = read_directives(request.batch.text, SBATCH_LINE, "script").words if request.batch else ()
    own = [Word(text, "options") for text in sbatch_arguments(request)]
    return {option.name: option.value or "" for words in (script, own) for option in SBATCH.read(words)[0]}


def _counts(given: Mapping[str, str]) -> dict[str, int]:
    plain = {option: int(value) for option, value in given.items() if _PLAIN.fullmatch(value)}
    counts = {option: plain[option] for option in _COUNTS if option in plain}
    low, _, high = given.get("nodes", "").partition("-")
    multiply = [plain[option] for option in _MULTIPLY if option in plain]
    if (
        multiply
        and _PLAIN.fullmatch(low)
        and high in ("", low)
        and not {"ntasks", "ntasks-per-node"} & counts.keys()
    ):
        counts["ntasks"] = max(int(low), 1)
        for factor in multiply:
            counts["ntasks"] *= factor
    return counts
