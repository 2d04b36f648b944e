"""What a check of readiness finds, beside what ``tests/api/test_conventions.py`` asks through the interface."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from small_disks import mounted

from mirage.bootstrap.readiness import Readiness
from mirage.store.opening import open_store

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small disk")
def test_readiness_on_a_full_disk_names_the_store(tmp_path: Path) -> None:
    unused: Any = None
    with mounted(disk := tmp_path / "disk", "2m"):
        store = open_store(f"sqlite:///{disk}/mirage.db")
        ready = Readiness(unused, unused, unused, store, lambda: "another leads")
        assert ready()["store"] == ""
        with suppress(OSError), (disk / "filler").open("wb", buffering=0) as filler:
            while True:
                filler.write(b"x" * 4096)
        assert "disk is full" in [ready()["store"] for _ in range(200)][-1], "its log has no room left"
        (disk / "filler").unlink()
        assert ready()["store"] == ""
        store.close()
