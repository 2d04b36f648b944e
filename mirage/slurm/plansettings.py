"""Settings in a batch script on which Slurm's plan for a job depends, as ``sbatch`` reads them."""

from __future__ import annotations

from hashlib import sha256
from io import StringIO
from typing import TYPE_CHECKING

from mirage.domain.script import StoredScript

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirage.domain.job import BatchScript

_DIRECTIVE = "#SBATCH"
_OPTION = "SBATCH_"


def plan_settings(batch: BatchScript) -> str:
    """A digest of the ``#SBATCH`` lines and the ``SBATCH_`` variables; equal for equal ones."""
    if isinstance(batch, StoredScript):
        return batch.reference.plan_settings
    variables = (f"{name}={value}" for name, value in batch.environment if name.startswith(_OPTION))
    told = "\0".join(("".join(_directives(batch.text)), *variables))
    return sha256(told.encode("utf-8", "surrogatepass")).hexdigest()


def _directives(script: str) -> Iterator[str]:
    """The lines for ``sbatch``; like it, this reads no further than the first command."""
    for line in StringIO(script):
        if line.startswith(_DIRECTIVE):
            yield line
        elif line.strip() and not line.startswith("#"):
            return
