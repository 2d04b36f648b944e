"""Output of the scripts: the steps of a training run must appear once and in order, whatever was killed."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from chaos.steps import judge_step_numbers
from mirage.domain.job import JobId

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

GOAL = 24
"""Steps of one training run."""

TRAIN = """
steps="$HOME/steps-$MIRAGE_CHAIN_ID"
trap 'exit 0' USR1
n=$(tail -n 1 "$steps" 2>/dev/null | cut -d ' ' -f 1)
n=${n:-0}
while [ "$n" -lt @GOAL@ ]; do
    sleep 20 &
    wait $!
    n=$((n + 1))
    echo "$n $SLURM_JOB_ID $MIRAGE_LINK" >>"$steps"
done
""".replace("@GOAL@", str(GOAL))
"""Continues from the last recorded step, and exits with 0 when it is warned or has finished."""


def judge_steps(chain: str, text: str, *, done: bool) -> Iterator[str]:
    """Yield errors in the steps that the links of ``chain`` wrote; ``done``: Mirage reports it as done."""
    rows = [line.split() for line in text.splitlines()]
    written = [(int(row[0]), JobId(int(row[1]))) for row in rows]
    return judge_step_numbers(chain, written, GOAL if done else None)


def judge_one_writer(chain: str, runs: Sequence[tuple[int, int, int]]) -> Iterator[str]:
    """Yield runs (job id, start, end) that overlap: links of a one-writer chain never run together."""
    for one, other in pairwise(sorted(runs, key=lambda run: run[1:])):
        if other[1] < one[2]:
            yield f"{chain}: job {other[0]} started {one[2] - other[1]} s before job {one[0]} ended"
