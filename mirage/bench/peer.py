"""The C++ peer of the pool simulator: compiled where ``g++`` exists, run on the same columns.

Both sides time the simulation alone, the trace already in memory, the fastest of several repetitions.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mirage.domain.errors import MirageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

SOURCE = Path(__file__).with_name("easy_reference.cpp")
FLAGS = ("-O3", "-std=c++17")


@dataclass(frozen=True, slots=True)
class PeerResult:
    """Measurements of the C++ program; times in seconds."""

    jobs: int
    """Jobs that ran; those wider than the pool are skipped."""
    seconds: float
    """Of the fastest repetition."""
    mean_wait: float
    mean_bounded_slowdown: float
    """Bounded at 10 s."""
    compiler: str
    """Its first line of ``--version`` and the flags."""

    @property
    def jobs_per_second(self) -> float:
        """Simulated jobs per second, in the fastest repetition."""
        return self.jobs / self.seconds


def compiler() -> str | None:
    """The path of ``g++``, or None where it is not installed."""
    return shutil.which("g++")


def run_peer(
    submit: NDArray[np.int64],
    runtime: NDArray[np.int64],
    request: NDArray[np.int64],
    procs: NDArray[np.int64],
    *,
    capacity: int,
    repetitions: int = 9,
) -> PeerResult | None:
    """Simulate EASY in C++ on columns of equal length (seconds, CPUs); None where ``g++`` is missing.

    ``submit`` ascends. A request of 0 or less is taken as the run time, and the run time is capped at the
    request. Raises ``MirageError`` with the compiler's or the program's own words when one of them fails.
    """
    gxx = compiler()
    if gxx is None:
        return None
    wanted = np.where(request > 0, request, runtime)
    shape = np.array([len(submit), capacity])
    columns = np.concatenate([shape, submit, np.minimum(runtime, wanted), wanted, procs]).astype(np.int64)
    with tempfile.TemporaryDirectory(prefix="mirage-bench-") as folder:
        program, trace = Path(folder, "easy_reference"), Path(folder, "trace.bin")
        columns.tofile(trace)
        _answer([gxx, *FLAGS, "-o", str(program), str(SOURCE)])
        measured = json.loads(_answer([str(program), str(trace), str(repetitions)]))
    version = _answer([gxx, "--version"]).splitlines()[0]
    return PeerResult(**measured, compiler=f"{version} {' '.join(FLAGS)}")


def _answer(command: list[str]) -> str:
    """The output of ``command``; raises ``MirageError`` with its error output where it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - fixed programs
    if done.returncode:
        raise MirageError(f"{' '.join(command)} failed ({done.returncode}): {done.stderr.strip()}")
    return done.stdout
