"""Muri's simulator as a peer, where the user has it (github.com/Rivendile/Muri, its directory ``simulator``)."""

from __future__ import annotations

import csv
import os
import resource
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from mirage.domain.errors import ConfigError, MirageError

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
