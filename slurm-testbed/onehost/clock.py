"""The fast clock: libfaketime in every Slurm process, all of them joined to one shared start time.

One supervisor process owns that shared start. munged and MariaDB stay on the real clock, and so may clients: times
that Slurm reports to them are Slurm's, and ``clock.json`` lets them convert.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from onehost.errors import TestbedError
from onehost.people import myself
from onehost.processes import Daemon, end, launch, recorded
from onehost.programs import CLOCK_LIBRARIES, glob_one, need
from onehost.waiting import wait_until

if TYPE_CHECKING:
    from onehost.layout import Layout

KEEPER = "clock"
SAMPLES = 9
KEEPER_TIMEOUT_S = 60.0
KEEPER_PROGRAM = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from onehost.clockkeeper import main
main()
"""


def shared_names(layout: Layout) -> list[str]:
    """Semaphore and shared memory of the start time, as libfaketime names them."""
    path = layout.run / "clock.shared"
    return path.read_text().split() if path.exists() else []


def environment(layout: Layout) -> dict[str, str]:
    """Environment of a process on Slurm's clock; empty on the real clock."""
    path = layout.run / "clock.environment"
    if not path.exists():
        return {}
    found: dict[str, str] = json.loads(path.read_text())
    return found


def now(layout: Layout) -> float:
    """Slurm's time, in seconds since the epoch."""
    real = time.time()
    if not layout.clock.exists():
        return real
    clock = json.loads(layout.clock.read_text())
    return float(clock["t0"] + (real - clock["t0"]) * clock["rate"])


def start(layout: Layout, speed: int) -> None:
    """Start the supervisor and write ``clock.json``.

    A testbed that was stopped continues where its clock stood, because Slurm expects that time never goes back.
    """
    ahead = max(0, round(now(layout) - time.time())) if layout.clock.exists() else 0
    ahead = max(ahead, left_ahead(layout))
    if speed == 1:
        if ahead:
            raise TestbedError(f"{layout.directory}: its Slurm is {ahead} s ahead of real time; wipe it first")
        return
    library = glob_one(CLOCK_LIBRARIES)
    (layout.run / "clock.shared").unlink(missing_ok=True)
    spelling = f"+{ahead} x{speed}"
    keeper = ("env", "-u", "LD_PRELOAD", sys.executable, "-I", "-c", KEEPER_PROGRAM)
    argv = (need("faketime"), "-m", "-f", spelling, *keeper, str(layout.run / "clock.shared"))
    launch(Daemon(KEEPER, argv, myself(), {"PATH": os.environ["PATH"]}), layout)
    wait_until(lambda: bool(shared_names(layout)), KEEPER_TIMEOUT_S, "the supervisor of the fast clock")
    for path in shared_files(layout):
        path.chmod(0o666)  # Slurm's user and the jobs' users join, too
    joined = {"LD_PRELOAD": str(library), "FAKETIME": spelling, "FAKETIME_SHARED": " ".join(shared_names(layout))}
    (layout.run / "clock.environment").write_text(json.dumps(joined))
    layout.clock.write_text(json.dumps({"t0": measure_start(joined, speed), "rate": speed}) + "\n")


def left_ahead(layout: Layout) -> int:
    """Seconds by which Slurm was ahead of the real clock when it was stopped, less the time since."""
    path = layout.directory / "stopped-at"
    return max(0, round(float(path.read_text()) - time.time())) if path.exists() else 0


def stop(layout: Layout) -> None:
    """End the supervisor, record where its clock stood and remove what it shared."""
    if recorded(KEEPER, layout):
        (layout.directory / "stopped-at").write_text(str(now(layout)))
        end_group(layout)
    for path in shared_files(layout):
        path.unlink(missing_ok=True)
    for name in ("clock.shared", "clock.environment"):
        (layout.run / name).unlink(missing_ok=True)
    layout.clock.unlink(missing_ok=True)


def end_group(layout: Layout) -> None:
    """End supervisor and wrapper: the supervisor is the wrapper's child, in its process group."""
    keeper = recorded(KEEPER, layout)
    if keeper:
        os.killpg(keeper.pid, signal.SIGTERM)
    end([KEEPER], layout)


def shared_files(layout: Layout) -> list[Path]:
    """The files behind ``shared_names``."""
    names = [name.lstrip("/") for name in shared_names(layout)]
    return [Path("/dev/shm", prefix + name) for prefix, name in zip(("sem.", ""), names, strict=False)]  # noqa: S108


def measure_start(joined: dict[str, str], speed: int) -> float:
    """Where Slurm's and real time were equal, from the fastest of a few readings of the fast clock."""
    readings = []
    for _ in range(SAMPLES):
        before = time.time()
        answer = subprocess.run(["date", "+%s.%N"], env={**os.environ, **joined}, capture_output=True, check=True)
        after = time.time()
        real = (before + after) / 2
        readings.append((after - before, (real * speed - float(answer.stdout)) / (speed - 1)))
    return min(readings)[1]
