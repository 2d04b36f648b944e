"""The rpm by dnf, on a machine whose rpm database is empty: installed, used, upgraded, removed.

Of a Red Hat release there is only its package manager here: the machine is a Debian under systemd, and what the
package requires is provided by a stub, since Debian's packages are in another database. ``make
package-test`` runs it, on the files that are in the deb.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from containers import ROOT
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

DNF = "dnf -q -y --disablerepo='*' --releasever=9"
STUB = """Name: system
Version: 1
Release: 1
Summary: What Debian brings
License: none
BuildArch: noarch
Provides: /bin/sh systemd {python}
%description
%files
"""
KEPT = {"", "/conf.d", "/conf.d/site.toml", "/tokens", "/mirage.toml.rpmsave"}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The deb's files."""
    package = the_deb()
    if shutil.which("rpmbuild") is None:
        pytest.skip("no rpm: rpmbuild is not installed (Debian: rpm)")
    subprocess.run(["dpkg-deb", "-x", package, tmp_path / "tree"], check=True)
    return tmp_path / "tree"


@pytest.fixture
def python() -> str:
    return field(the_deb(), "Depends").split(",")[0]


@pytest.fixture
def stub(python: str, tmp_path: Path) -> Path:
    (tmp_path / "stub.spec").write_text(STUB.format(python=python))
    argv = ["rpmbuild", "--quiet", "-bb", "--define", f"_topdir {tmp_path}", str(tmp_path / "stub.spec")]
    subprocess.run(argv, check=True, capture_output=True)
    return tmp_path / "RPMS" / "noarch" / "system-1-1.noarch.rpm"


@pytest.fixture
def packages(tree: Path, python: str, tmp_path: Path) -> tuple[Path, Path]:
    """An older one and a newer one, of the same files."""
    project = tmp_path / "project"
    shutil.copytree(ROOT / "deploy", project / "deploy")
    versions = ("0.0.1", "9.8.7")
    for version in versions:
        mine = {"PACKAGE_TREE": str(tree), "PACKAGE_PYTHON": f"/usr/bin/{python}", "PACKAGE_VERSION": version}
        argv = [str(project / "deploy" / "package" / "build"), "rpm"]
        subprocess.run(argv, check=True, capture_output=True, env={**os.environ, **mine})
    older, newer = (next((project / "dist").glob(f"mirage-slurm-{version}-*.rpm")) for version in versions)
    return older, newer


@pytest.fixture
def machine(tree: Path, python: str) -> Iterator[Machine]:
    with started(f"{python} procps dnf rpm") as found:
        yield found


def test_install_use_upgrade_remove(
    machine: Machine, packages: tuple[Path, Path], stub: Path, python: str, tmp_path: Path
) -> None:
    for name, package in zip(("older", "newer", "stub"), (*packages, stub), strict=True):
        machine.put(package, f"/{name}.rpm")
    refused = machine.tries(f"{DNF} install /older.rpm")
    assert refused.returncode != 0
    assert f"nothing provides {python} needed by mirage-slurm" in refused.stderr
    machine.run(f"{DNF} install /stub.rpm")
    clean = files(machine)
    machine.run(f"{DNF} install /older.rpm")
    check_installed(machine)
    check_as_packed(machine)
    check_started(machine)
    age(machine, tmp_path)
    before = main_process(machine)
    machine.run(f"{DNF} upgrade /newer.rpm")
    assert machine.run("rpm -q --qf '%{VERSION}' mirage-slurm") == "9.8.7"
    check_upgraded(machine, before)
    machine.run(f"{DNF} remove mirage-slurm")
    check_gone(machine)
    assert files(machine) - clean == {f"/etc/mirage{name}" for name in KEPT}


def check_as_packed(machine: Machine) -> None:
    """Every file as the package has it: contents, owner, mode, links."""
    assert machine.tries("rpm --verify mirage-slurm").stdout == ""
