"""A daemon that is started while its disk is full reports that, and does not blame the cluster."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING

from daemons import wait_until
from sites import Site, running_site
from small_disks import mounted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_COMMANDS = (("chains",), ("queue",), ("chain", "show", "svc"), ("explain", "svc"), ("predict", "-t", "1:00:00"))


@contextlib.contextmanager
def filled(folder: Path) -> Iterator[None]:
    """No byte is left on the disk of ``folder``."""
    filler = folder / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4_096)
    try:
        yield
    finally:
        filler.unlink()


def test_daemon_started_on_a_full_disk_names_the_disk(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with running_site(tmp_path) as site:
        state.rmdir()
        with mounted(state, "3m"):
            state.chmod(0o700)
            site.configure(timeout=40)
            site.add_chain(links=1_000)
            with site.daemon():
                wait_until(lambda: site.slurm.count("squeue"), "the lease, and a question to Slurm")
            asked = site.slurm.count("squeue")
            with filled(state), site.daemon():
                wait_until(lambda: site.mirage("chains").returncode == 0, "an answer")
                check_says(site, "disk is full")
                assert site.slurm.count("squeue") == asked
            with site.daemon():
                wait_until(lambda: site.slurm.count("squeue") > asked, "a cycle")


def check_says(site: Site, cause: str) -> None:
    """Every command that shows or asks something."""
    for command in _COMMANDS:
        done = site.mirage(*command)
        said = " ".join((done.stdout + done.stderr).split())
        assert "has not answered" not in said, command
        if command[0] != "queue":
            assert cause in said, (command, said)
        assert " leads" not in said, command
    listed = json.loads(site.mirage("chains", "--json").stdout)
    assert listed["stale_since"] is None
    assert cause in listed["chains"][0]["sentence"]
