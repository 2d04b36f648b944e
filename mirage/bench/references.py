"""Reference simulators: a C++ peer of the pool simulator, and Muri's, where the user has it.

The C++ peer is compiled where ``g++`` exists and runs on the same columns. Both sides time the simulation
alone, the trace already in memory, the fastest of several repetitions. Muri: github.com/Rivendile/Muri, its
directory ``simulator``.
"""

from __future__ import annotations

import csv
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mirage.domain.errors import ConfigError, MirageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

# It imports cvxpy for a policy that is not asked for here.
_STAND_IN = "SolverError = Exception\n"


@dataclass(frozen=True, slots=True)
class PeerRun:
    """One run of its shortest-remaining-service-first on 8 nodes of 8 devices."""

    cpu_seconds: float
    """Of the whole process, Python's start included."""
    mean_jct: float


def trace_path(simulator: Path, trace: str) -> Path:
    """Where it keeps a trace. Raises ``ConfigError`` where ``simulator`` is not its directory."""
    path = simulator / "trace-data" / f"{trace}.csv"
    if not path.exists() or not (simulator / "run_sim.py").exists():
        raise ConfigError("--muri", f"{simulator} is not the directory 'simulator' of Muri: no {path.name} there")
    return path


def run_muri(simulator: Path, trace: str) -> PeerRun:
    """Run the simulator; on failure raises ``MirageError`` with the last lines of its output."""
    trace_path(simulator, trace)
    with tempfile.TemporaryDirectory(prefix="mirage-bench-") as folder:
        Path(folder, "cvxpy.py").write_text(_STAND_IN)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(  # noqa: S603 - this interpreter, the user's own directory, no shell
            (sys.executable, "run_sim.py", *_arguments(trace, folder)),
            cwd=simulator,
            env={**os.environ, "PYTHONPATH": folder},
            capture_output=True,
            text=True,
            check=False,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode:
            raise MirageError(f"Muri's simulator failed ({done.returncode}): {done.stderr.strip()[-500:]}")
        spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return PeerRun(spent, _mean_jct(Path(folder, "log", "job.csv")))


def _arguments(trace: str, folder: str) -> tuple[str, ...]:
    return (
        "--cluster_spec=cluster_spec/n8g8.csv",
        "--print",
        "--scheme=yarn",
        f"--trace_file=trace-data/{trace}.csv",
        "--schedule=shortest-gpu",
        f"--log_path={folder}/log",
        "--multi_resource",
        "4",
    )


def _mean_jct(path: Path) -> float:
    """Read the mean in seconds as ``calc.py`` of the simulator does: from the fifth column from the end."""
    with path.open() as file:
        times = [float(row[-5]) for row in csv.reader(file) if row[-5].replace(".", "", 1).isdigit()]
    return sum(times) / len(times)


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
