"""Checks on a machine, for any way of installation; ``make package-test`` has built the packages."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mirage.store.schema import no_schema

if TYPE_CHECKING:
    from machines import Machine

FIRST_STORE = Path(__file__).parents[1] / "store" / "frozen" / "0001.sql"
SIMULATED = '[cluster]\nbackend = "simulated"\n'


def the_deb() -> Path:
    if not os.environ.get("MIRAGE_PACKAGE"):
        pytest.skip("no package: MIRAGE_PACKAGE does not name a deb (make package-test)")
    return Path(os.environ["MIRAGE_PACKAGE"]).resolve()


def field(package: Path, name: str) -> str:
    return subprocess.run(
        ["dpkg-deb", "-f", package, name], capture_output=True, text=True, check=True
    ).stdout.strip()


def files(machine: Machine) -> set[str]:
    """All that packages may bring; not what runs, nor what is kept."""
    kept = " -o ".join(f"-path {place}" for place in ("/var", "/root", "/tmp"))
    found = machine.run(f"find / -xdev '(' {kept} ')' -prune -o ! -name '*.cache' ! -name '*-' -print")
    return set(found.splitlines())


def check_installed(machine: Machine) -> None:
    """The account and the directories are there; nothing has been started."""
    assert machine.tries("systemctl is-enabled mirage").stdout == "disabled\n"
    assert machine.tries("systemctl is-active mirage").stdout == "inactive\n"
    assert machine.run("getent passwd mirage").split(":")[5:] == ["/var/lib/mirage", "/usr/sbin/nologin\n"]
    assert machine.run("stat -c '%U %a' /etc/mirage/tokens") == "mirage 700\n"
    assert machine.run("mirage config check /etc/mirage/mirage.toml") == "/etc/mirage/mirage.toml: ok\n"
    assert machine.tries("systemd-analyze verify mirage.service").stderr == ""


def check_started(machine: Machine) -> None:
    """``start`` returns after the daemon has reported that it is ready; all users may query it."""
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


def age(machine: Machine, tmp_path: Path) -> None:
    """The daemon runs on an earlier schema's store and a changed configuration."""
    with closing(sqlite3.connect(tmp_path / "mirage.db")) as connection:
        connection.executescript(FIRST_STORE.read_text())
    machine.run("systemctl stop mirage && rm /var/lib/mirage/mirage.db*")
    machine.put(tmp_path / "mirage.db", "/var/lib/mirage/mirage.db")
    machine.run("chown mirage:mirage /var/lib/mirage/mirage.db && chmod 600 /var/lib/mirage/mirage.db")
    machine.run("echo '# ours' >>/etc/mirage/mirage.toml && systemctl start mirage")


def check_upgraded(machine: Machine, before: str) -> None:
    """It runs again, as another process than ``before``, on the same chains and the same configuration."""
    assert machine.run("systemctl is-active mirage") == "active\n"
    assert main_process(machine) not in ("0", before)
    assert machine.run("tail -1 /etc/mirage/mirage.toml") == "# ours\n"
    status = json.loads(machine.run("mirage db status --json"))
    assert (status["schema"], status["state"]) == (no_schema().wanted, "current")
    kept = machine.run("ls /var/lib/mirage | grep backup").split()
    assert [name.split(".backup-")[1][:4] for name in kept] == ["0001"]
    names = {chain["name"] for chain in json.loads(machine.run("mirage chains --all --json"))["chains"]}
    assert {"svc", "other"} <= names


def main_process(machine: Machine) -> str:
    return machine.run("systemctl show mirage -p MainPID --value").strip()


def check_gone(machine: Machine) -> None:
    """Remove the daemon and its programs; the database stays."""
    assert machine.tries("systemctl is-active mirage").stdout == "inactive\n"
    assert machine.tries("ls /opt/mirage /usr/bin/mirage").stdout == ""
    machine.run("test -s /var/lib/mirage/mirage.db")
