"""Tasks within links on a real Slurm: what the tests of it share."""

from __future__ import annotations

import getpass
import itertools
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirage.allocation.engine.journal import JournalReader, StateFolder
from mirage.allocation.engine.status import bars, most_at_once
from mirage.allocation.engine.task_states import TaskStates

if TYPE_CHECKING:
    from pathlib import Path

    from slurm_testbed import Testbed

PATIENCE = 300.0


@dataclass(frozen=True)
class Work:
    """A task file and its state."""

    folder: Path
    testbed: Testbed

    @property
    def state(self) -> Path:
        return self.folder / "state"

    def write(self, text: str) -> None:
        (self.folder / "tasks.toml").write_text(text)

    def command(self, *options: str) -> str:
        words = [sys.executable, "-m", "mirage", "allocation", "run", f"{self.folder}/tasks.toml"]
        return " ".join([*words, f"--state={self.state}", *options])

    def submit(self, script: str, *options: str) -> int:
        """As the user who runs the tests; the script's output goes to ``out``."""
        argv = ["sbatch", "--parsable", f"--output={self.folder}/out", "--open-mode=append", *options]
        environment = {"PATH": os.environ["PATH"]}
        done = self.testbed.run(getpass.getuser(), argv, f"#!/bin/bash\n{script}\n", env=environment)
        return int(done.stdout)

    def ledger(self) -> TaskStates:
        ledger = TaskStates()
        if (self.state / "journal").is_dir():
            ledger.fold(JournalReader(StateFolder(self.state)).news())
        return ledger

    def results(self, name: str) -> list[str]:
        return [str(each.ended.result) if each.ended else "open" for each in self.ledger().of(name)]

    def ended(self, job: int) -> bool:
        return str(job) not in self.testbed.queue()

    def said(self) -> str:
        file = self.folder / "out"
        return file.read_text() if file.exists() else ""

    def wait(self, predicate: object, what: str) -> None:
        try:
            self.testbed.wait_until(predicate, PATIENCE, what)  # type: ignore[arg-type]
        except Exception as error:
            raise AssertionError(f"{error}\n{self.said()}") from error

    def check(self) -> None:
        """By the journal: no device was overcommitted, and no task ran twice at the same time."""
        ledger = self.ledger()
        assert max(most_at_once(bars(ledger)).values()) <= 1.0
        for task in ledger.attempts:
            tries = [each for each in ledger.of(task) if each.start is not None]
            for before, after in itertools.pairwise(tries):
                assert before.ended is not None
                assert before.ended.at <= (after.start or 0.0), f"{task}: {before} {after}"
