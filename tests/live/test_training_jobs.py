"""Tables and models as jobs of a real Slurm, submitted by the command line and by a daemon that trains again."""

from __future__ import annotations

import getpass
import json
import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest
from small_models import LIMIT, PARTITION, drawn_trace

from mirage.backends.execution import CommandRunner
from mirage.bootstrap.backends import copied_from_slurm
from mirage.daemon.training import Retraining, RetrainingSettings, SlurmLauncher
from mirage.domain.objective import Weights
from mirage.predictors.model_registry import ModelRegistry

for _library in ("submitit", "sklearn", "onnx"):
    pytest.importorskip(_library)

if TYPE_CHECKING:
    from pathlib import Path

    from slurm_testbed import Testbed

SPAN = ("--start", "2025-01-07", "--end", "2025-01-10", "--every", "6h", "--grid", "2h")
TRAIN = ("train", "random-forest", "--trace", "generated:demo:1", "--cluster", "demo", "--limit", "12h", "--nodes")


@pytest.fixture
def surroundings(testbed: Testbed) -> dict[str, str]:
    """On the real clock. Jobs run on the fast one, but see files' true times: compiled code is kept by these."""
    more = {"NO_FAKE_STAT": "1", "OMP_NUM_THREADS": "1", "SBATCH_TIMELIMIT": "2-0", "SBATCH_PARTITION": PARTITION}
    return testbed.plain_environment(getpass.getuser()) | more


def mirage(surroundings: dict[str, str], folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "mirage", *arguments]
    return subprocess.run(argv, capture_output=True, text=True, check=False, cwd=folder, env=surroundings)


class Ended:
    """Jobs that ended well since this was made; Slurm shows those of earlier tests for a day."""

    def __init__(self, testbed: Testbed) -> None:
        self._testbed = testbed
        self._before = self._names()

    @property
    def names(self) -> list[str]:
        return sorted(name for job, name in self._names().items() if job not in self._before)

    def _names(self) -> dict[str, str]:
        told = self._testbed.ask("squeue", "-h", "-a", "-t", "COMPLETED", "-o", "%i %j")
        return {line.split()[0]: line.split()[1] for line in told.splitlines() if line.strip()}


@pytest.fixture
def ended(testbed: Testbed) -> Ended:
    return Ended(testbed)


def test_tables_and_models_of_two_seeds_are_made_by_jobs(
    testbed: Testbed, surroundings: dict[str, str], ended: Ended, tmp_path: Path
) -> None:
    launched = ("--tables", "tables", "--launcher", "slurm", "--workers", "2", "--seed", "0,1", "--json")
    apart = mirage(surroundings, tmp_path, *TRAIN, "1", *SPAN, "-o", "apart", *launched)
    assert apart.returncode == 0, apart.stderr
    assert [manifest["seeds"] for manifest in json.loads(apart.stdout)] == [[0], [1]]
    testbed.wait_until(lambda: len(ended.names) == 4, 300, "the end of all jobs")
    assert ended.names == ["mirage-table", "mirage-table", "mirage-train", "mirage-train"]
    here = mirage(surroundings, tmp_path, *TRAIN, "1", *SPAN, "--tables", "others", "-o", "here")
    assert here.returncode == 0, here.stderr
    assert contents(tmp_path / "tables/demo-20-nodes-v2") == contents(tmp_path / "others/demo-20-nodes-v2")
    assert contents(tmp_path / "apart/seed-0") == contents(tmp_path / "here")


def contents(folder: Path) -> dict[str, bytes]:
    found = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert found
    return found


def test_what_cannot_be_is_one_line(testbed: Testbed, surroundings: dict[str, str], tmp_path: Path) -> None:
    launched = (*SPAN, "-o", "never", "--launcher", "slurm")
    unshared = mirage(surroundings, tmp_path, *TRAIN, "1", *launched)
    astray = surroundings | {"SBATCH_PARTITION": "nowhere"}
    refused = mirage(astray, tmp_path, *TRAIN, "1", *launched, "--tables", "tables")
    for done, code, words in (
        (unshared, 2, "--tables: required with --launcher slurm"),
        (refused, 1, "Invalid partition name specified"),
    ):
        assert done.returncode == code
        last = done.stderr.splitlines()[-1]
        assert last.startswith("mirage: ")
        assert words in last
    assert testbed.queue() == []


def test_a_daemon_trains_anew_by_a_job(
    testbed: Testbed,
    surroundings: dict[str, str],
    ended: Ended,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Trained on its history, for the cluster as Slurm describes it."""
    for name, value in surroundings.items():
        monkeypatch.setenv(name, value)
    begin = int(testbed.now()) - 21 * 86_400 - 3_600
    shelf = ModelRegistry(tmp_path / "models")
    past = drawn_trace(2, begin, 1, days=22)
    retraining = Retraining(
        RetrainingSettings(7 * 86_400, ("random-forest",), (1,), LIMIT, 60 * 86_400, Weights(), PARTITION),
        lambda since: past.take((past.submit >= since) & (past.submit < testbed.now())),
        lambda folder: copied_from_slurm("", CommandRunner(dict(os.environ)), folder),
        SlurmLauncher(),
        _Now(testbed),
        tmp_path / "training",
        shelf,
        lambda: None,
        threading.Event(),
    )
    said = retraining.run()
    (kept,) = shelf.versions()
    assert said.startswith(f"random-forest:{kept.version}: ")
    assert kept.manifest.cluster.name == "testbed"
    testbed.wait_until(lambda: ended.names == ["mirage-train"], 300, "the end of the job")


class _Now:
    """Slurm's clock."""

    def __init__(self, testbed: Testbed) -> None:
        self._testbed = testbed

    def now(self) -> int:
        return int(self._testbed.now())
