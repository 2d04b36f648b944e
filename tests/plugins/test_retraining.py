"""Training again: when it is due, its input, the use of its result; and where it runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from learnable import USUAL, learnable, learnt, with_vectors

from mirage.daemon.proof import LEAST
from mirage.daemon.training import LocalLauncher, Retraining, RetrainingSettings, SlurmLauncher, TrainingFailed
from mirage.domain.errors import MirageError
from mirage.domain.objective import Weights
from mirage.plugin import write_artifact
from mirage.predictors.model_registry import ModelRegistry
from mirage.store.opening import open_store
from mirage.trace.generator import generate
from mirage.trace.readers import read_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mirage.domain.jobtable import JobTable

DAY, HOUR = 86_400, 3_600
EVERY = 7 * DAY
PATIENCE = 120.0


def artifact(folder: Path, seed: int) -> Path:
    return write_artifact(folder, replace(learnt(), seeds=(seed,)), with_vectors(learnable(0, 10), USUAL))


class FakeLauncher:
    """Writes down its arguments, and leaves the report and the model that the test sets."""

    workers = 3

    def __init__(self) -> None:
        self.orders: list[dict[str, str]] = []
        self.jobs: list[JobTable] = []
        self.seed = 0
        self.costs = {"reactive": 7.0, "quantile": 4.0, "made-up": 3.0}
        self.handovers = 40
        self.fails: Callable[[], bool] = lambda: True

    def run(self, argv: Sequence[str], folder: Path, stopped: threading.Event) -> bool:
        del stopped
        assert list(argv[:5]) == [sys.executable, "-P", "-m", "mirage", "evaluate"]
        self.orders.append(dict(zip(argv[6::2], argv[7::2], strict=True)))
        self.jobs.append(read_trace(Path(argv[5])).table)
        out = Path(self.orders[-1]["--output"])
        if not self.fails():
            return False
        artifact(out / "models/made-up" / f"seed-0-{self.seed:012x}", self.seed)
        rows = [
            {
                "method": {"name": name},
                "hand_overs": self.handovers,
                "interruption": {"mean": {"value": hours}},
                "overlap": {"mean": {"value": 0.0}},
            }
            for name, hours in self.costs.items()
        ]
        (out / "report.json").write_text(json.dumps({"rows": rows}))
        return True


class Setting:
    """A daemon's past of some weeks."""

    def __init__(self, folder: Path) -> None:
        self.past = generate("demo", 1, days=60)
        self.first = int(self.past.submit[0])
        self.time = self.first + 50 * DAY
        self.shelf = ModelRegistry(folder / "models")
        self.launcher = FakeLauncher()
        self.folder = folder
        self.changes = 0
        self.curriculum = RetrainingSettings(EVERY, ("made-up",), (1, 8, 1_000), 12 * HOUR, 60 * DAY, Weights())

    def run(self) -> str:
        return Retraining(
            self.curriculum,
            self.jobs,
            lambda work: "demo",
            self.launcher,
            self,
            self.folder / "training",
            self.shelf,
            self.changed,
            threading.Event(),
        ).run()

    def now(self) -> int:
        return self.time

    def changed(self) -> None:
        self.changes += 1

    def jobs(self, since: int) -> JobTable:
        return self.past.take(np.flatnonzero((self.past.submit >= since) & (self.past.submit < self.time)))

    def used(self) -> list[tuple[int, ...]]:
        return [version.manifest.seeds for version in self.shelf.versions() if version.current]

    def watched(self) -> list[str]:
        return [folder.name for folder in self.shelf.watched().values()]


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting(tmp_path)


def test_it_is_taught_and_tested_on_what_the_daemon_knows(setting: Setting) -> None:
    assert setting.run()
    (order,), (jobs,) = setting.launcher.orders, setting.launcher.jobs
    assert jobs.submit.tolist() == setting.jobs(0).submit.tolist()
    instants = [int(order[f"--{name}"]) for name in ("train-from", "validate-from", "test-from", "test-to")]
    assert instants == sorted(instants)
    assert instants[0] > setting.first
    assert instants[-1] < jobs.submit[-1] - 12 * HOUR
    assert order["--nodes"] == "1,8,16", "none larger than the partition"
    assert (order["--limit"], order["--cluster"], order["--workers"]) == ("43200s", "demo", "3")
    assert order["--methods"] == "reactive,quantile,made-up"
    assert not (setting.folder / "training/work").exists()


def test_a_model_that_costs_clearly_less_is_put_in_use(setting: Setting) -> None:
    setting.run()
    assert (setting.used(), setting.watched(), setting.changes) == ([(0,)], [], 1)


@pytest.mark.parametrize(
    ("cost", "naive", "handovers"),
    [(3.7, 7.0, 40), (4.5, 7.0, 40), (3.0, 2.9, 40), (3.0, 7.0, 19)],
    ids=["hardly better", "worse", "worse than waiting for the end", "too few handovers"],
)
def test_one_that_has_not_proven_itself_is_watched(
    setting: Setting, cost: float, naive: float, handovers: int
) -> None:
    setting.launcher.costs |= {"made-up": cost, "reactive": naive}
    setting.launcher.handovers = handovers
    setting.run()
    assert setting.used() == []
    assert setting.watched() == [version.version for version in setting.shelf.versions()]


def test_whoever_promotes_by_hand_has_it_watched(setting: Setting) -> None:
    setting.curriculum = replace(setting.curriculum, promote=False)
    setting.run()
    assert (setting.used(), len(setting.watched())) == ([], 1)
    (version,) = setting.shelf.versions()
    setting.shelf.promote(setting.folder / "models/made-up" / version.version)
    assert setting.watched() == [], "the model in use is active"


@pytest.mark.parametrize(("before", "used"), [(2.9, [(0,)]), (3.1, [(1,)])])
def test_a_new_version_must_do_as_well_as_the_one_in_use(
    setting: Setting, before: float, used: list[tuple[int, ...]]
) -> None:
    setting.run()
    setting.time += EVERY
    setting.launcher.seed = 1
    setting.launcher.costs[f"made-up:{setting.folder / 'models/made-up'}"] = before
    setting.run()
    assert setting.launcher.orders[-1]["--methods"].endswith(f",made-up:{setting.folder / 'models/made-up'}")
    assert setting.used() == used


def test_it_is_due_once_in_its_span_also_after_a_restart(setting: Setting) -> None:
    assert setting.run()
    setting.time += EVERY - 1
    assert setting.run() == ""
    setting.time += 1
    assert setting.run()
    assert len(setting.launcher.orders) == 2


def test_a_short_past_teaches_nothing_yet(setting: Setting) -> None:
    setting.time = setting.first + LEAST - 1
    assert setting.run() == ""
    setting.time += 1
    assert setting.run()
    assert setting.used() == [], "two weeks are too few to prove anything"
    assert len(setting.watched()) == 1


def test_one_that_failed_is_not_tried_at_once(setting: Setting) -> None:
    def fails() -> bool:
        raise TrainingFailed("exit 1")

    setting.launcher.fails = fails
    with pytest.raises(TrainingFailed):
        setting.run()
    assert setting.run() == ""
    assert setting.shelf.versions() == ()


def test_one_that_the_daemons_end_cut_short_begins_anew(setting: Setting) -> None:
    setting.launcher.fails = lambda: False
    assert "the next start repeats it" in setting.run()
    assert setting.shelf.versions() == ()
    setting.launcher.fails = lambda: True
    assert setting.run()
    assert len(setting.shelf.versions()) == 1


def test_one_that_was_killed_with_the_daemon_begins_again_at_once_and_not_for_ever(setting: Setting) -> None:
    def killed() -> bool:
        """The note as a killed daemon leaves it."""
        notes.append((setting.folder / "training/last.json").read_text())
        return True

    notes: list[str] = []
    setting.launcher.fails = killed
    for _ in range(5):
        setting.run()
        (setting.folder / "training/last.json").write_text(notes[-1])
    assert len(notes) == 3, "it may be what ends the daemon"
    setting.time += EVERY
    setting.run()
    assert len(notes) == 4


@pytest.mark.parametrize("lacking", ["quantile", "reactive", "made-up"])
def test_a_report_that_lacks_a_method_is_an_error(setting: Setting, lacking: str) -> None:
    del setting.launcher.costs[lacking]
    with pytest.raises(MirageError, match=lacking):
        setting.run()
    assert setting.used() == []


# Where it runs


def python(text: str) -> list[str]:
    return [sys.executable, "-c", text]


def test_a_local_training_says_how_it_failed(tmp_path: Path) -> None:
    never = threading.Event()
    assert LocalLauncher().run(python("open('made', 'w')"), tmp_path, never)
    assert (tmp_path / "made").exists()
    with pytest.raises(TrainingFailed, match=r"exit 3: no trace; full log in .*train.log"):
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


def test_a_local_training_is_killed_with_the_daemon(tmp_path: Path) -> None:
    trained = "import os, time; open('pid', 'w').write(str(os.getpid())); time.sleep(600)"
    daemon = (
        "import pathlib, sys, threading; from mirage.daemon.training import LocalLauncher\n"
        f"place = pathlib.Path({str(tmp_path)!r})\n"
        f"LocalLauncher().run([sys.executable, '-c', {trained!r}], place, threading.Event())"
    )
    process = subprocess.Popen(python(daemon))
    deadline = time.monotonic() + PATIENCE
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.kill()
    process.wait()
    training = int((tmp_path / "pid").read_text())
    while Path(f"/proc/{training}").exists() and "State:\tZ" not in Path(f"/proc/{training}/status").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_job_of_the_clusters_trains(tmp_path: Path) -> None:
    """On processes of this machine, by the library that would submit jobs."""
    pytest.importorskip("submitit")
    launcher, never = SlurmLauncher("local"), threading.Event()
    assert launcher.run(python("open('made', 'w')"), tmp_path, never)
    assert (tmp_path / "made").exists()
    with pytest.raises(TrainingFailed, match=r"job .*full log in"):
        launcher.run(python("exit(3)"), tmp_path, never)


def test_a_daemons_own_history_makes_a_model(
    tmp_path: Path, installed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the jobs of the database to a version in the registry, by the command itself."""
    monkeypatch.setenv("PYTHONPATH", installed)
    store = open_store(f"sqlite:///{tmp_path}/mirage.db")
    jobs = generate("demo", 1, days=23)
    weights, shelf = Weights(), ModelRegistry(tmp_path / "models")
    store.jobs.add(jobs)

    class Now:
        def now(self) -> int:
            return int(jobs.submit[0]) + 22 * DAY

    retraining = Retraining(
        RetrainingSettings(EVERY, ("xgboost",), (1,), 3 * HOUR, 60 * DAY, weights),
        store.jobs.read,
        lambda work: "demo",
        LocalLauncher(),
        Now(),
        tmp_path / "training",
        shelf,
        lambda: None,
        threading.Event(),
    )
    said = retraining.run()
    store.close()
    (version,) = shelf.versions()
    assert said.startswith(f"xgboost:{version.version}: ")
    assert version.current or list(shelf.watched()) == ["xgboost"]
    assert version.manifest.training.handovers > 50
    assert version.manifest.training.known < int(jobs.submit[0]) + 22 * DAY - 3 * DAY, "the test came after it"
