"""A real daemon on a scripted cluster that outlives it: ``python fake_daemon.py CONFIG FOLDER``.

Options: ``--once``, ``--brief=EVERY,LINGER``.

The cluster's state is a file in DIRECTORY. Files next to it are what a test asks for:

- ``down``: the controller does not answer          - ``bug``: a snapshot raises an unexpected error
- ``die-before-submit``, ``die-after-submit``: the daemon is killed there, once
- ``die-after-save``: it is killed right after the submission is stored, once
- ``end-api``: the thread that answers people ends, once
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fakes import FakeCluster, Fate

from mirage.bootstrap.assembly import assemble
from mirage.bootstrap.cluster import ClusterConnection, slurm_clock
from mirage.config.loading import load_config
from mirage.control.clocks import AcceleratedClock
from mirage.daemon.brief import Term
from mirage.daemon.process import leave, run_daemon
from mirage.domain.errors import MirageError

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass
class LastingCluster(FakeCluster):
    """Every job starts immediately and runs to its limit; all jobs are in a file."""

    folder: Path = Path()
    clock: AcceleratedClock = field(default=AcceleratedClock(0, 1))
    end_api: Callable[[], None] = lambda: None

    def now(self) -> int:
        return self.clock.now()

    def snapshot(self, **asked):
        if (self.folder / "bug").exists():
            raise RuntimeError("nobody expects this")
        if (self.folder / "end-api").exists():
            (self.folder / "end-api").unlink()
            self.end_api()
        self.down = (self.folder / "down").exists()
        if self.down:
            with (self.folder / "asked-while-down").open("a") as file:
                file.write("x")
        self._catch_up()
        return super().snapshot(**asked)

    def submit(self, request):
        self._die_if_asked("die-before-submit")
        self._catch_up()
        job_id = super().submit(request)
        self._keep()
        self._die_if_asked("die-after-submit")
        return job_id

    def cancel(self, job_id, owner):
        super().cancel(job_id, owner)
        self._keep()

    def _catch_up(self) -> None:
        file = self.folder / "cluster"
        if file.exists():
            self.jobs, self.submissions, self._fates = pickle.loads(file.read_bytes())
        self.advance(max(self.time, self.now()))

    def _keep(self) -> None:
        new = self.folder / "cluster.new"
        new.write_bytes(pickle.dumps((self.jobs, self.submissions, self._fates)))
        new.replace(self.folder / "cluster")

    def _die_if_asked(self, name: str) -> None:
        file = self.folder / name
        if file.exists():
            file.unlink()
            os.kill(os.getpid(), signal.SIGKILL)


def at_once(request) -> Fate:
    return Fate()


def build(config, alive, tenure, folder: Path):
    clock = slurm_clock(config.cluster)
    cluster = LastingCluster(at_once, folder=folder, clock=clock)
    service = assemble(config, ClusterConnection(cluster, cluster, cluster, clock), alive, tenure)
    if (folder / "die-after-save").exists():
        _die_after_save(service.store.chains, folder / "die-after-save")
    cluster.end_api = lambda: service.interface._servers[0].handle_exit(signal.SIGTERM, None)
    return service


def _die_after_save(chains, file: Path) -> None:
    save = chains.save

    def saving(record, *entries):
        save(record, *entries)
        if record.links and record.links[-1].job_id and file.exists():
            file.unlink()
            os.kill(os.getpid(), signal.SIGKILL)

    chains.save = saving


def brief(words: list[str]) -> Term | None:
    given = [word.removeprefix("--brief=").split(",") for word in words if word.startswith("--brief=")]
    return Term(*map(float, given[0])) if given else None


if __name__ == "__main__":
    file, folder = Path(sys.argv[1]), Path(sys.argv[2])
    try:
        leave(
            run_daemon(
                lambda: load_config(file),
                lambda c, alive, tenure: build(c, alive, tenure, folder),
                once="--once" in sys.argv,
                brief=brief(sys.argv[3:]),
            )
        )
    except MirageError as error:
        sys.stderr.write(f"mirage: {error}\n")
        sys.exit(1)
