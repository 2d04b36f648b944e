"""Steps as processes of this machine: the engine where there is no Slurm."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from mirage.allocation.engine.keepers import Keepers, kill_leftovers, leftovers, signal_group
from mirage.allocation.engine.remains import LINGER, LISTEN, began_at, read_ending, written
from mirage.allocation.engine.steps import Step

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from mirage.allocation.engine.steps import Ending, Launch

# One process for each rank; the task has ended when all have, and failed with the first one that failed.
_RANKS = (
    LISTEN
    + written(': >"$MIRAGE_STEP.began"', "MIRAGE_STEP")
    + """\
_count=$1; shift
if [ "$_count" = 1 ]; then
"$@"
_code=$?
"""
    + LINGER
    + """\
exit "$_code"
fi
_rank=0 _ranks=""
while [ "$_rank" -lt "$_count" ]; do
  MIRAGE_RANK=$_rank MIRAGE_LOCAL_RANK=$_rank "$@" & _ranks="$_ranks $!"
  _rank=$((_rank + 1))
done
_code=0
for _rank in $_ranks; do
  wait "$_rank"; _found=$?
  while kill -0 "$_rank" 2>/dev/null; do wait "$_rank"; _found=$?; done  # the wait was cut short by a signal
  [ "$_code" != 0 ] || _code=$_found
done
exit "$_code"
"""
)


class ProcessEngine:
    """Starts tasks as processes in separate sessions; each sees its devices by ``CUDA_VISIBLE_DEVICES``."""

    name = "processes"

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._environment = dict(os.environ if environment is None else environment)
        self._keepers = Keepers()

    def launch(self, launch: Launch) -> Step:
        """See ``Engine``."""
        ((node, count),) = launch.ranks.items()
        environment = self._environment | dict(launch.environment) | dict(launch.visible.get(node, {}))
        argv = ["/bin/sh", "-c", _RANKS, "ranks", str(count), *launch.command]
        return self._keepers.start(launch, argv, environment | one_of_one(count), launch.output, launch.directory)

    def poll(self, step: Step) -> Ending | None:
        """See ``Engine``. Kills what a task leaves behind, because that would hold its devices."""
        if self._keepers.living(step) or kill_leftovers(step.path):
            return None
        self._keepers.forget(step)
        return read_ending(step.path)

    def began(self, step: Step) -> float | None:
        """See ``Engine``."""
        return began_at(step.path)

    def signal(self, step: Step, name: str) -> None:
        """See ``Engine``."""
        if name == "KILL" and not self._keepers.living(step):
            kill_leftovers(step.path)
        signal_group(step.pid, name)

    def find(self, wanted: Sequence[tuple[str, Path]]) -> dict[str, Step]:
        """See ``Engine``."""
        keepers = self._keepers.find(path for _, path in wanted)
        found = {key: Step(key, path, keepers[path]) for key, path in wanted if path in keepers}
        orphans = [(key, path) for key, path in wanted if key not in found and leftovers(path)]
        return found | {key: Step(key, path, 0) for key, path in orphans}


def one_of_one(count: int) -> dict[str, str]:
    """The rank variables of a single process, which the script does not set."""
    return {"MIRAGE_RANKS": str(count), "MIRAGE_RANK": "0", "MIRAGE_LOCAL_RANK": "0"}
