"""A training script whose links end at a checkpoint, and the steps that it has written."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

STEPS, PER_LINK = 75, 15
TRAIN = f"""#!/bin/bash
#SBATCH -J train -N1 --exclusive -t 20 -o train-%j.log
#MIRAGE --handover none
step=$(cat step 2>/dev/null || echo 0)
while [ $step -lt {STEPS} ]; do
  step=$((step + 1)); sleep 60; echo $step >step; echo "$SLURM_JOB_ID $step" >>steps
  [ $((step % {PER_LINK})) = 0 ] && [ $step -lt {STEPS} ] && exit 0
done
touch done
"""


def steps_of(home: Path) -> list[tuple[str, int]]:
    """Job and number of each step that the script has done in ``home``."""
    lines = [line.split() for line in (home / "steps").read_text().splitlines()]
    return [(job, int(step)) for job, step in lines]
