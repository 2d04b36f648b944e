"""The deb on a clean machine under its systemd unit: installed, used, upgraded, removed.

``make package-test`` runs it. It needs what ``make package`` has built (``MIRAGE_PACKAGE``) and a container engine
(``tests/containers.py``).
"""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from machines import Machine, started
from packaged import (
    age,
    check_gone,
    check_installed,
    check_started,
    check_upgraded,
    field,
    files,
    main_process,
    the_deb,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def package() -> Path:
    return the_deb()


@pytest.fixture
def older(package: Path, tmp_path: Path) -> Path:
    """The same with an earlier version's number."""
    tree = tmp_path / "tree"
    subprocess.run(["dpkg-deb", "-R", package, tree], check=True)
    control = tree / "DEBIAN" / "control"
    control.write_text(control.read_text().replace(f"Version: {field(package, 'Version')}", "Version: 0.0.1-1"))
    subprocess.run(["dpkg-deb", "-Znone", "--root-owner-group", "-b", tree, tmp_path / "older.deb"], check=True)
    shutil.rmtree(tree)
    return tmp_path / "older.deb"


@pytest.fixture
def machine(package: Path) -> Iterator[Machine]:
    with started(field(package, "Depends").replace(",", "")) as found:
        yield found


def test_install_use_upgrade_remove(machine: Machine, older: Path, package: Path, tmp_path: Path) -> None:
    machine.put(older, "/older.deb")
    machine.put(package, "/newer.deb")
    clean = files(machine)
    machine.run("dpkg -i /older.deb")
    check_installed(machine)
    check_started(machine)
    age(machine, tmp_path)
    before = main_process(machine)
    machine.run("dpkg -i /newer.deb")
    check_upgraded(machine, before)
    check_removed(machine, clean)


def check_removed(machine: Machine, clean: set[str]) -> None:
    machine.run("dpkg -r mirage-slurm")
    check_gone(machine)
    machine.run("test -s /etc/mirage/mirage.toml")
    said = machine.tries("dpkg -P mirage-slurm").stderr
    assert "the store stays in /var/lib/mirage" in said
    machine.run("test -s /var/lib/mirage/mirage.db && ! test -e /etc/mirage/mirage.toml")
    left = {"/etc/mirage", "/etc/mirage/conf.d", "/etc/mirage/conf.d/site.toml", "/etc/mirage/tokens"}
    assert files(machine) - clean == left
