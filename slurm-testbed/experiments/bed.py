"""A running testbed as experiments see it: commands as some user, and Slurm's clock."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Testbed:
    """A running testbed: commands as some user, and Slurm's clock."""

    state: Path
    partition: str
    environment: dict[str, str]
    epoch: float
    rate: float

    @classmethod
    def open(cls, state: Path, partition: str) -> Testbed:
        """The testbed whose state is in ``state``; its clock is the real one where there is no ``clock.json``."""
        words = shlex.split((state / "env").read_text().replace("export ", " "))
        clock = state / "clock.json"
        fast = json.loads(clock.read_text()) if clock.exists() else {"t0": 0.0, "rate": 1}
        environment = os.environ | dict(w.split("=", 1) for w in words) | {"SLURM_TIME_FORMAT": "%s"}
        return cls(state, partition, environment, float(fast["t0"]), float(fast["rate"]))

    def now(self) -> float:
        """Slurm's clock (s)."""
        return self.epoch + (time.time() - self.epoch) * self.rate

    def sleep_until(self, instant: float) -> None:
        """Wait until Slurm's clock shows ``instant``."""
        time.sleep(max(0.0, (instant - self.now()) / self.rate))

    def run(self, user: str, *argv: str) -> tuple[int, str]:
        """(exit status, output and errors) of a command as ``user``."""
        switch = [] if user == "root" else ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"]
        done = subprocess.run(
            [*switch, *argv],
            env=self.environment,
            cwd="/" if user == "root" else f"/home/{user}",
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        return done.returncode, done.stdout.strip()

    def submit(self, user: str, *options: str) -> str:
        """Submit a job that sleeps a day; returns its id."""
        fixed = ("sbatch", "--parsable", "-p", self.partition, "-o", "/dev/null", "--wrap", "sleep 86400")
        status, text = self.run(user, *fixed[:4], *options, *fixed[4:])
        if status:
            raise RuntimeError(f"sbatch as {user}: {text}")
        return text.split(";")[0]

    def setting(self, name: str) -> str:
        """One value of ``scontrol show config``."""
        found = re.search(rf"^{name}\s*= (.*)$", self.run("root", "scontrol", "show", "config")[1], re.MULTILINE)
        return found.group(1).strip() if found else ""

    def nodes(self) -> int:
        """How many nodes the partition has."""
        return int(self.run("root", "sinfo", "-h", "-p", self.partition, "-o", "%D")[1])

    def show(self, job: str) -> dict[str, str]:
        """The fields of ``scontrol show job``."""
        text = self.run("root", "scontrol", "-o", "show", "job", job)[1]
        return dict(w.split("=", 1) for w in text.split() if "=" in w)

    def cancel(self, *jobs: str) -> None:
        """Cancel jobs and wait until they have left the queue."""
        self.run("root", "scancel", *jobs)
        while re.match(r"\d", self.run("root", "squeue", "-h", "-j", ",".join(jobs), "-o", "%i")[1]):
            time.sleep(0.1)
