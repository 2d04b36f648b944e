"""Where a daemon keeps its things by default, also where homes are on a network file system."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from mirage import ownplaces as mount_table
from mirage.cli.connection import _default
from mirage.client.address import default_address
from mirage.config import places
from mirage.config.loading import load_config
from mirage.config.places import Places, default_file, default_places, network_kind, remark_on, used_places
from mirage.store.location import locate

USER = 1_000_000
"""A UID without a user: a directory of this name is called by the number."""


class Machine:
    """A home on NFS, two shared directories, and a user."""

    def __init__(self, folder: Path) -> None:
        self.home, self.var, self.tmp = (folder / name for name in ("home", "var-tmp", "tmp"))
        for made in (self.home, self.var, self.tmp):
            made.mkdir()
        self.remote = {self.home}
        self.uid = os.getuid() or USER
        self.name = f"mirage-{USER}" if self.uid == USER else f"mirage-{pwd.getpwuid(self.uid).pw_name}"

    def places(self, **environ: str) -> places.Places:
        return default_places({"HOME": str(self.home)} | environ, self.uid)

    def kind(self, folder: Path) -> str:
        return "nfs4" if any(folder.is_relative_to(remote) for remote in self.remote) else ""

    def own(self, folder: Path) -> None:
        if os.geteuid() == 0:
            os.chown(folder, self.uid, self.uid)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(tmp_path)
    monkeypatch.setattr(places, "SHARED_FOLDERS", (made.var, made.tmp))
    monkeypatch.setattr(places, "network_kind", made.kind)
    return made


def test_at_home_where_that_is_local(machine: Machine) -> None:
    machine.remote.clear()
    found = machine.places()
    assert (found.state, found.runtime, found.remark) == (machine.home / ".local/state/mirage",) * 2 + ("",)
    assert machine.places(XDG_STATE_HOME="/s").state == Path("/s/mirage")


def test_every_session_finds_the_same_socket(machine: Machine) -> None:
    """One begun by ssh has a runtime directory, one begun by cron or su has none."""
    assert machine.places() == machine.places(XDG_RUNTIME_DIR="/run/user/1000")


def test_the_units_places_and_roots(machine: Machine) -> None:
    assert default_places({}, 0).state == Path("/var/lib/mirage")
    unit = machine.places(STATE_DIRECTORY="/var/lib/m:/x", RUNTIME_DIRECTORY="/run/m")
    assert (unit.state, unit.runtime, unit.remark) == (Path("/var/lib/m"), Path("/run/m"), "")


def test_beside_a_home_on_the_network(machine: Machine) -> None:
    found = machine.places()
    assert found.state == found.runtime == machine.var / machine.name
    assert f"{machine.home}/.local/state/mirage is on a network file system (nfs4)" in found.remark
    assert str(found.state) in found.remark
    found.state.mkdir(mode=0o700)
    machine.own(found.state)
    assert machine.places() == found, "also once it is made"


def test_the_place_is_taken_before_anything_is_looked_for_there(machine: Machine) -> None:
    """Where the directory does not exist yet, another user could create it between two checks."""
    place = places._users_place({"HOME": str(machine.home)}, os.geteuid()).state
    about = place.lstat()
    assert (about.st_uid, about.st_mode & 0o7777) == (os.geteuid(), 0o700)


def test_a_state_that_is_there_stays_the_place(machine: Machine) -> None:
    kept = machine.home / ".local/state/mirage/mirage.db"
    kept.parent.mkdir(parents=True)
    kept.touch()
    assert machine.places().state == kept.parent


@pytest.mark.parametrize("squatter", ["link", "dangling", "file", "other", "remote", "missing"])
def test_what_is_not_the_users_is_passed_over(machine: Machine, squatter: str, tmp_path: Path) -> None:
    place = machine.var / machine.name
    match squatter:
        case "link":
            place.symlink_to(tmp_path)
        case "dangling":
            place.symlink_to(tmp_path / "trap")
        case "file":
            place.touch()
        case "other":
            place.mkdir(mode=0o777)
            if os.getuid() != 0:
                machine.uid += 1
                machine.name = f"mirage-{machine.uid}"
                place.rename(machine.var / machine.name)
        case "remote":
            machine.remote.add(machine.var)
        case "missing":
            machine.var.rmdir()
    found = machine.places()
    assert found.state == machine.tmp / machine.name
    assert found.remark.endswith("a reboot may delete it")


def test_with_nowhere_to_go_it_stays_at_home_where_the_store_says_why_not(machine: Machine) -> None:
    machine.remote |= {machine.var, machine.tmp}
    assert machine.places().state == machine.home / ".local/state/mirage"


MOUNTS = """22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
40 22 0:35 / {home} rw,relatime shared:20 - {kind} server:/export/home rw,vers=4.2
41 22 254:2 / {home}/scratch rw,relatime shared:21 - ext4 /dev/vdb1 rw
"""


@pytest.mark.parametrize("kind", ["nfs4", "lustre", "gpfs", "beegfs", "fuse.sshfs"])
def test_the_kernel_tells_what_is_on_the_network(
    kind: str, machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS.format(home=machine.home, kind=kind))
    monkeypatch.setattr(mount_table, "_MOUNTS", mounts)
    assert network_kind(machine.home / ".local/state/mirage") == kind
    assert network_kind(machine.var / "mirage-x") == ""
    (machine.home / "scratch").mkdir()
    assert network_kind(machine.home / "scratch/state/mirage") == ""
    (machine.var / "way").symlink_to(machine.home)
    assert network_kind(machine.var / "way/mirage") == kind


def test_the_daemon_and_who_looks_for_it_agree(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS.format(home=machine.home, kind="nfs4"))
    monkeypatch.setattr(mount_table, "_MOUNTS", mounts)
    monkeypatch.setattr(os, "getuid", lambda: machine.uid)
    monkeypatch.setattr(places, "network_kind", network_kind)
    for name in ("MIRAGE_SOCKET", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "STATE_DIRECTORY", "RUNTIME_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(machine.home))
    config = load_config().config
    place = machine.var / machine.name
    assert config.service.state == str(place)
    assert config.store.url == f"sqlite:///{place}/mirage.db"
    place.mkdir(mode=0o700)
    machine.own(place)
    (place / "api.sock").touch()
    for session in ({}, {"XDG_RUNTIME_DIR": "/run/user/1"}):
        assert str(_default({"HOME": str(machine.home)} | session, machine.uid)) == config.api.socket
    assert "network file system (nfs4)" in remark_on(place)
    assert remark_on(tmp_path) == ""


@pytest.mark.parametrize("name", ["per%cent", "a%2Fb", "what?", "a b", "#1", "\xe9t\xe9", "a@b:c", "%"])
def test_the_default_database_is_in_the_directory_whatever_its_name(name: str) -> None:
    path = Path("/scratch", name, "mirage.db")
    assert locate(f"sqlite:///{places.in_url(path)}").file == path
    assert locate(f"directory://{places.in_url(path)}").directory == path


@pytest.mark.parametrize(
    ("text", "state", "socket"),
    [
        ('[service]\nstate = "/s"\n', "/s", "/s/api.sock"),
        ('[service]\nruntime = "/r"\n', "{home}/.local/state/mirage", "/r/api.sock"),
        ('[api]\nsocket = "/a/s"\n', "{home}/.local/state/mirage", "/a/s"),
        ("[log]\n", "{home}/.local/state/mirage", "{home}/.local/state/mirage/api.sock"),
    ],
)
def test_commands_look_where_the_configuration_puts_the_daemon(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, text: str, state: str, socket: str
) -> None:
    machine.remote.clear()
    for name in ("MIRAGE_SOCKET", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "STATE_DIRECTORY", "RUNTIME_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(machine.home))
    monkeypatch.setattr(os, "getuid", lambda: machine.uid)
    file = machine.home / ".config" / "mirage" / "mirage.toml"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    found = used_places(dict(os.environ), machine.uid)
    assert [str(path) for path in found] == [each.format(home=machine.home) for each in (state, socket)]
    monkeypatch.setenv("MIRAGE_SERVICE__STATE", "/v")
    assert str(used_places(dict(os.environ), machine.uid)[0]) == "/v"


def test_a_user_without_home_and_name_gets_a_place_that_can_be_named_in_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Like an engine that runs a container under a UID that the mounted user database lacks."""
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_000)
    for variables in ({}, {"HOME": "relative"}):
        assert default_places(variables, 4_000_000_000).state == Path("/nonexistent/.local/state/mirage")
        assert default_file(variables, 4_000_000_000) is None
    named = {"STATE_DIRECTORY": "/var/lib/mirage", "RUNTIME_DIRECTORY": "/run/mirage"}
    assert default_places(named, 4_000_000_000) == Places(Path("/var/lib/mirage"), Path("/run/mirage"))
    assert default_address({}, 4_000_000_000).socket == "/nonexistent/.local/state/mirage/api.sock"
