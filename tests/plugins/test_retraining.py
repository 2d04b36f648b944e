"""Training anew: when it is due, what it is given, what becomes of its result; and where it runs."""

from __future__ import annotations

import os
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from learnable import USUAL, learnable, learnt, with_vectors

from mirage.daemon.launching import LocalLauncher, SlurmLauncher, TrainingFailed
from mirage.daemon.training import LEAST, WARM_UP, Curriculum, Retraining
from mirage.plugin import write_artifact
from mirage.predictors.artifacts.shelf import Shelf
from mirage.store.opening import open_store
from mirage.trace.generator import generate
from mirage.trace.readers import read_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mirage.domain.jobtable import JobTable

DAY = 86_400
EVERY = 7 * DAY
PATIENCE = 120.0


class FakeLauncher:
    """Writes down what it was told, and does what the test says."""

    workers = 3

    def __init__(self, artifact: Path) -> None:
        self.orders: list[dict[str, str]] = []
        self.jobs: list[JobTable] = []
        self.does: Callable[[Path], bool] = lambda out: bool(artifact.rename(out))

    def run(self, argv: Sequence[str], folder: Path, stopped: threading.Event) -> bool:
        del stopped
        assert list(argv[:6]) == [sys.executable, "-P", "-m", "mirage", "train", "made-up"]
        self.orders.append(dict(zip(argv[6::2], argv[7::2], strict=True)))
        self.jobs.append(read_trace(folder / "jobs.parquet").table)
        return self.does(Path(self.orders[-1]["--output"]))


class Setting:
    """A daemon's past of some weeks."""

    def __init__(self, folder: Path) -> None:
        self.past = generate("demo", 1)
        self.first = int(self.past.submit[0])
        self.time = self.first + WARM_UP + LEAST
        self.shelf = Shelf(folder / "models")
        self.launcher = FakeLauncher(artifact(folder / "made", 0))
        self.folder = folder
        self.run = Retraining(
            Curriculum(EVERY, "made-up", (1, 8), 12 * 3_600, 60 * DAY),
            self.jobs,
            lambda work: "demo",
            self.launcher,
            self,
            folder / "training",
            folder / "models",
            threading.Event(),
        ).run

    def now(self) -> int:
        return self.time

    def jobs(self, since: int) -> JobTable:
        return self.past.take(np.flatnonzero((self.past.submit >= since) & (self.past.submit < self.time)))


def artifact(folder: Path, seed: int) -> Path:
    return write_artifact(folder, replace(learnt(), seeds=(seed,)), with_vectors(learnable(0, 10), USUAL))


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting(tmp_path)


def test_it_is_trained_on_what_the_daemon_knows_and_kept_beside_what_is_in_use(setting: Setting) -> None:
    in_use = setting.shelf.promote(artifact(setting.folder / "first", 7))
    said = setting.run()
    (order,), (jobs,) = setting.launcher.orders, setting.launcher.jobs
    assert jobs.submit.tolist() == setting.jobs(0).submit.tolist()
    assert int(order["--start"]) == setting.first + WARM_UP
    assert int(order["--end"]) == jobs.submit[-1]
    assert (order["--nodes"], order["--limit"], order["--cluster"], order["--workers"]) == (
        "1,8",
        "43200s",
        "demo",
        "3",
    )
    new = next(version for version in setting.shelf.versions() if version.manifest.seeds == (0,))
    assert said.startswith(f"made-up:{new.version} is trained;")
    assert not new.current
    assert [version.version for version in setting.shelf.versions() if version.current] == [in_use.version]
    assert not (setting.folder / "training/work").exists()


def test_it_is_due_once_in_its_span_also_after_a_restart(setting: Setting) -> None:
    assert setting.run()
    setting.time += EVERY - 1
    assert setting.run() == ""
    setting.time += 1
    setting.launcher.does = lambda out: bool(artifact(out, 1))
    assert setting.run()
    assert len(setting.launcher.orders) == 2


def test_a_short_past_teaches_nothing_yet(setting: Setting) -> None:
    setting.time -= 1
    assert setting.run() == ""
    setting.time += 1
    assert setting.run()


def test_one_that_failed_is_not_tried_at_once(setting: Setting) -> None:
    def fails(out: Path) -> bool:
        raise TrainingFailed("exit 1")

    setting.launcher.does = fails
    with pytest.raises(TrainingFailed):
        setting.run()
    assert setting.run() == ""
    assert setting.shelf.versions() == ()


def test_one_that_the_daemons_end_cut_short_begins_anew(setting: Setting) -> None:
    setting.launcher.does = lambda out: False
    assert "begins anew" in setting.run()
    assert setting.shelf.versions() == ()
    setting.launcher.does = lambda out: bool(artifact(out, 1))
    assert "is trained" in setting.run()


# Where it runs


def python(text: str) -> list[str]:
    return [sys.executable, "-c", text]


def test_a_local_training_says_how_it_failed(tmp_path: Path) -> None:
    never = threading.Event()
    assert LocalLauncher().run(python("open('made', 'w')"), tmp_path, never)
    assert (tmp_path / "made").exists()
    with pytest.raises(TrainingFailed, match=r"exit 3: no trace; all of it is in .*train.log"):
        LocalLauncher().run(python("print('a'); print('no trace'); exit(3)"), tmp_path, never)


def test_a_local_training_ends_with_the_daemon(tmp_path: Path) -> None:
    stopped, answers = threading.Event(), []
    text = "import os, time; open('pid', 'w').write(str(os.getpid())); time.sleep(600)"

    def train() -> None:
        answers.append(LocalLauncher().run(python(text), tmp_path, stopped))

    thread = threading.Thread(target=train)
    thread.start()
    deadline = time.monotonic() + PATIENCE
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    stopped.set()
    thread.join(PATIENCE)
    assert answers == [False]
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_a_job_of_the_clusters_trains(tmp_path: Path) -> None:
    """On processes of this machine, by the library that would submit jobs."""
    pytest.importorskip("submitit")
    launcher, never = SlurmLauncher("local"), threading.Event()
    assert launcher.run(python("open('made', 'w')"), tmp_path, never)
    assert (tmp_path / "made").exists()
    with pytest.raises(TrainingFailed, match=r"job .*all of it is in"):
        launcher.run(python("exit(3)"), tmp_path, never)


def test_a_daemons_own_history_makes_a_model(
    tmp_path: Path, installed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the store's jobs to a version on the shelf, by the command itself."""
    monkeypatch.setenv("PYTHONPATH", installed)
    store = open_store(f"sqlite:///{tmp_path}/mirage.db")
    jobs = generate("demo", 1, days=23)
    store.jobs.add(jobs)

    class Now:
        def now(self) -> int:
            return int(jobs.submit[0]) + 22 * DAY

    retraining = Retraining(
        Curriculum(EVERY, "xgboost", (1,), 3 * 3_600, 60 * DAY),
        store.jobs.read,
        lambda work: "demo",
        LocalLauncher(),
        Now(),
        tmp_path / "training",
        tmp_path / "models",
        threading.Event(),
    )
    said = retraining.run()
    store.close()
    (version,) = Shelf(tmp_path / "models").versions()
    assert said.startswith(f"xgboost:{version.version} is trained;")
    assert not version.current
    assert version.manifest.training.handovers > 50
