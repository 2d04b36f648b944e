"""The deb on a clean machine under its systemd unit: installed, used, upgraded, removed.

``make package-test`` runs it. It needs what ``make package`` has built (``MIRAGE_PACKAGE``) and a container engine
(``tests/containers.py``).
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from machines import Machine, started

from mirage.store.schema import no_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

FIRST_STORE = Path(__file__).parents[1] / "store" / "frozen" / "0001.sql"
SIMULATED = '[cluster]\nbackend = "simulated"\n'


def field(package: Path, name: str) -> str:
    return subprocess.run(
        ["dpkg-deb", "-f", package, name], capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.fixture
def package() -> Path:
    if not os.environ.get("MIRAGE_PACKAGE"):
        pytest.skip("no package: MIRAGE_PACKAGE does not name a deb (make package-test)")
    return Path(os.environ["MIRAGE_PACKAGE"]).resolve()


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
    check_installed(machine)
    check_started(machine)
    check_upgraded(machine, tmp_path)
    check_removed(machine)


def check_installed(machine: Machine) -> None:
    machine.run("dpkg -i /older.deb")
    assert machine.tries("systemctl is-enabled mirage").stdout == "disabled\n"
    assert machine.tries("systemctl is-active mirage").stdout == "inactive\n"
    assert machine.run("getent passwd mirage").split(":")[5:] == ["/var/lib/mirage", "/usr/sbin/nologin\n"]
    assert machine.run("stat -c '%U %a' /etc/mirage/tokens") == "mirage 700\n"
    assert machine.run("mirage config check /etc/mirage/mirage.toml") == "/etc/mirage/mirage.toml: ok\n"
    assert machine.tries("systemd-analyze verify mirage.service").stderr == ""


def check_started(machine: Machine) -> None:
    """``start`` returns once the daemon has said that it is ready; everybody may ask it."""
    machine.run(f"printf '{SIMULATED}' >/etc/mirage/conf.d/site.toml && systemctl enable --now mirage")
    told = machine.run("systemctl show mirage -p Type,User,ActiveState,SubState,StatusText,WatchdogUSec,NRestarts")
    about = dict(line.split("=", 1) for line in told.splitlines())
    assert (about["ActiveState"], about["SubState"], about["User"]) == ("active", "running", "mirage")
    assert about["StatusText"]
    assert about["NRestarts"] == "0"
    for user in ("root", "alice"):
        assert json.loads(machine.run("mirage chains --json", user))["chains"] == []
    assert machine.run("stat -c '%U %a' /var/lib/mirage /var/lib/mirage/mirage.db") == "mirage 700\nmirage 600\n"
    assert machine.tries("cat /var/lib/mirage/mirage.db", "alice").returncode != 0


def check_upgraded(machine: Machine, tmp_path: Path) -> None:
    """With an earlier schema's store, a changed configuration and the daemon running."""
    with closing(sqlite3.connect(tmp_path / "mirage.db")) as connection:
        connection.executescript(FIRST_STORE.read_text())
    machine.run("systemctl stop mirage && rm /var/lib/mirage/mirage.db*")
    machine.put(tmp_path / "mirage.db", "/var/lib/mirage/mirage.db")
    machine.run("chown mirage:mirage /var/lib/mirage/mirage.db && chmod 600 /var/lib/mirage/mirage.db")
    machine.run("echo '# ours' >>/etc/mirage/mirage.toml && systemctl start mirage")
    machine.run("dpkg -i /newer.deb")
    assert machine.run("systemctl is-active mirage") == "active\n"
    assert machine.run("tail -1 /etc/mirage/mirage.toml") == "# ours\n"
    status = json.loads(machine.run("mirage db status --json"))
    assert (status["schema"], status["state"]) == (no_schema().wanted, "current")
    kept = machine.run("ls /var/lib/mirage | grep backup").split()
    assert [name.split(".backup-")[1][:4] for name in kept] == ["0001"]
    names = {chain["name"] for chain in json.loads(machine.run("mirage chains --all --json"))["chains"]}
    assert {"svc", "other"} <= names


def check_removed(machine: Machine) -> None:
    machine.run("dpkg -r mirage-slurm")
    assert machine.tries("systemctl is-active mirage").stdout == "inactive\n"
    assert machine.tries("ls /opt/mirage /usr/bin/mirage").stdout == ""
    machine.run("test -s /var/lib/mirage/mirage.db && test -s /etc/mirage/mirage.toml")
    said = machine.tries("dpkg -P mirage-slurm").stderr
    assert "the store stays in /var/lib/mirage" in said
    machine.run("test -s /var/lib/mirage/mirage.db && ! test -e /etc/mirage/mirage.toml")
