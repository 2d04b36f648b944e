"""Background load: another user's jobs of random sizes, always a few of them waiting."""

from __future__ import annotations

import random
import subprocess
import threading
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from keepalive.surroundings import Surroundings

USER = "carol"
WAITING = 2
"""Pending jobs of the load in each partition."""
LOOK_EVERY = 2.0
"""Real seconds."""
SHAPES = {
    "v100": ("--gres=gpu:v100:4",),
    "a100": ("--gres=gpu:a100:4",),
    "npu": ("--gres=npu:ascend:8",),
    "cpu": ("--exclusive",),
}


class Load(threading.Thread):
    """Submits whenever fewer than ``WAITING`` of its jobs wait in a partition, until ``end``."""

    def __init__(self, around: Surroundings, seed: int) -> None:
        super().__init__(daemon=True)
        self._around = around
        self._random = random.Random(seed)  # noqa: S311 - a workload, no secret
        self._ended = threading.Event()
        self.submitted = 0

    def run(self) -> None:
        """Submit until ``end``."""
        while not self._ended.wait(LOOK_EVERY):
            try:
                self._top_up()
            except subprocess.SubprocessError:
                continue  # no load while the controller is away

    def end(self) -> None:
        """Submit no more."""
        self._ended.set()
        self.join()

    def _top_up(self) -> None:
        queued = self._around.run(USER, ["squeue", "-h", "-t", "PD", "-u", USER, "-o", "%P"], fast=True).split()
        waiting = Counter(queued)
        for partition in SHAPES:
            for _ in range(WAITING - waiting[partition]):
                self._submit(partition)

    def _submit(self, partition: str) -> None:
        minutes = self._random.choice((4, 8, 8, 15))
        nodes = self._random.choice((1, 1, 1, 2)) if partition != "cpu" else 1
        runs = 60 * minutes * self._random.uniform(0.4, 0.95)
        argv = ["sbatch", "-p", partition, f"-N{nodes}", *SHAPES[partition], f"-t{minutes}", "-o/dev/null"]
        self._around.run(USER, [*argv, "-J", "load", "--wrap", f"sleep {runs:.0f}"], fast=True)
        self.submitted += 1
