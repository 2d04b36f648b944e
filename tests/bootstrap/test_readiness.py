"""Results of the readiness check, in addition to the API tests in ``tests/api/test_conventions.py``."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest
from small_disks import mounted

from mirage.bootstrap import readiness
from mirage.bootstrap.readiness import ReadinessCheck
from mirage.control.clocks import Pace, Pacing
from mirage.control.status import Status
from mirage.domain.chain import Chain, ChainId, ChainRecord
from mirage.domain.job import JobRequest
from mirage.domain.snapshot import Snapshot
from mirage.store.opening import open_store

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small disk")
def test_readiness_on_a_full_disk_names_the_store(tmp_path: Path) -> None:
    unused: Any = None
    with mounted(disk := tmp_path / "disk", "2m"):
        store = open_store(f"sqlite:///{disk}/mirage.db")
        ready = ReadinessCheck(unused, unused, unused, store, lambda: "another leads")
        assert ready()["store"] == ""
        with suppress(OSError), (disk / "filler").open("wb", buffering=0) as filler:
            while True:
                filler.write(b"x" * 4096)
        assert "disk is full" in [ready()["store"] for _ in range(200)][-1], "its log has no room left"
        (disk / "filler").unlink()
        assert ready()["store"] == ""
        store.close()


class Hanging:
    """A database that blocks until the test releases it, like a server that stopped within a query."""

    def __init__(self) -> None:
        self.hangs = threading.Event()
        self.goes_on = threading.Event()
        self.asked = 0

    @property
    def database(self) -> Hanging:
        return self

    def write(self, change: object) -> None:
        self.asked += 1
        if self.hangs.is_set():
            self.goes_on.wait(60)


def test_readiness_tells_of_a_database_that_hangs_and_asks_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "_PATIENCE", 0.2)
    unused: Any = None
    store: Any = Hanging()
    ready = ReadinessCheck(unused, unused, unused, store, lambda: "another leads")
    assert ready()["store"] == ""
    store.hangs.set()
    for _ in range(5):
        assert "has not answered" in ready()["store"]
    assert store.asked == 2
    store.hangs.clear()
    store.goes_on.set()
    for _ in range(100):  # what hung ends first, then the next one begins
        if not (found := ready()["store"]):
            break
        time.sleep(0.1)
    assert found == ""


def test_a_loop_that_does_not_go_on_is_said_of_every_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cycle that hangs cannot say so: what it left would look like the present."""
    record = ChainRecord(Chain(ChainId("svc"), "svc", "ada", JobRequest("svc", "ada", 3_600)))
    status = Status(1_000, "held all", Snapshot.unseen(1_000), (record,), {ChainId("svc"): "hold"}, cycles=3)
    now, impediment = [1_030], [""]
    pace = Pace(Pacing(interval=60), np.random.default_rng(0))
    ready = ReadinessCheck(lambda: status, lambda: now[0], pace, cast("Any", Hanging()), lambda: impediment[0])
    assert ready.shown(leads=True) is status
    now[0] = 1_500
    assert ready.shown(leads=True) is status, "on a clock that runs fast a cycle takes many of its seconds"
    monkeypatch.setattr(readiness, "_AT_LEAST", 0.0)
    late = ready.shown(leads=True)
    assert late.sentence == late.explained[ChainId("svc")]
    assert late.sentence.startswith("stands by: no cycle has ended since 1970-01-01T00:16:40Z")
    assert ready.shown(leads=True) is late, "answers that are kept hold as long as it is the same object"
    now[0], impediment[0] = 1_030, "the lease could not be renewed in time: late"
    assert "lease" in ready.shown(leads=True).sentence
    assert ready.shown(leads=False) is status, "the standby has reported its status"
    impediment[0] = ""
    assert ready.shown(leads=True) is status
