"""The owner of a socket that a client has found: not every user who could put one there is accepted."""

from __future__ import annotations

import os
import pwd
import socket
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

import pytest
from sqlalchemy.engine import make_url
from sqlalchemy.exc import OperationalError

from mirage.backends.restclient import Credentials, RestAddress, RestClient
from mirage.client import listener as mirage_listener
from mirage.client.client import Client
from mirage.client.deadline import Deadline, TimedSocket
from mirage.client.errors import DaemonUnreachable, Unanswered
from mirage.domain.errors import ClusterUnavailable
from mirage.store.location import postgres_engine

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OTHER, THIRD = 54_321, 54_322
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="other users need root")


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A directory with the mode of /var/tmp."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


def own_folder(place: Path, uid: int, mode: int = 0o755) -> Path:
    place.mkdir()
    place.chmod(mode)
    os.chown(place, uid, uid)
    return place


@contextmanager
def listening(uid: int, folder: Path) -> Iterator[str]:
    """A socket whose listener the kernel takes for ``uid``."""
    path = str(folder / "api.sock")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        os.seteuid(uid)
        try:
            listener.listen()
        finally:
            os.seteuid(0)
        yield path


def connects(path: str) -> bool:
    try:
        TimedSocket.to_path(path, Deadline(5)).close()
    except PermissionError:
        return False
    return True


@needs_root
def test_listener_in_a_folder_of_its_own_among_everybodys_is_not_trusted(shared: Path) -> None:
    with listening(OTHER, own_folder(shared / "mirage-alice", OTHER)) as path:
        assert not connects(path)
        with pytest.raises(DaemonUnreachable, match=str(OTHER)) as raised:
            Client(path).chains()
        assert not isinstance(raised.value, Unanswered), "nothing was sent"


@needs_root
def test_listener_is_not_trusted_by_way_of_a_link(shared: Path, tmp_path: Path) -> None:
    target = own_folder(shared / "theirs", OTHER)
    (tmp_path / "link").symlink_to(target)
    (shared / "link").symlink_to(own_folder(tmp_path / "elsewhere", OTHER))
    os.lchown(shared / "link", OTHER, OTHER)
    with listening(OTHER, target), listening(OTHER, tmp_path / "elsewhere"):
        assert not connects(str(tmp_path / "link" / "api.sock"))
        assert not connects(str(shared / "link" / "api.sock"))


@needs_root
@pytest.mark.parametrize("mode", [0o775, 0o777])
def test_listener_where_others_may_replace_it_is_not_trusted(tmp_path: Path, mode: int) -> None:
    with listening(OTHER, own_folder(tmp_path / "run", OTHER, mode)) as path:
        assert not connects(path)


@needs_root
def test_listener_in_the_folder_of_a_third_is_not_trusted(tmp_path: Path) -> None:
    inner = own_folder(own_folder(tmp_path / "third", THIRD) / "run", OTHER)
    with listening(OTHER, inner) as path:
        assert not connects(path)


@needs_root
@pytest.mark.parametrize("owner", [0, OTHER])
def test_daemon_of_the_machine_is_trusted(tmp_path: Path, owner: int) -> None:
    """Like /run/mirage, or a directory below one of root's in /tmp."""
    with listening(OTHER, own_folder(tmp_path / "run", owner)) as path:
        assert connects(path)


def test_ones_own_daemon_is_trusted_anywhere(shared: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(shared / "api.sock"))
        listener.listen()
        assert connects(str(shared / "api.sock"))


@contextmanager
def port_of(uid: int, family: socket.AddressFamily, host: str) -> Iterator[str]:
    """The URL of a port on which the kernel takes ``uid`` for the listener."""
    os.seteuid(uid)
    try:
        listener = socket.socket(family)
        listener.bind((host, 0))
        listener.listen()
    finally:
        os.seteuid(0)
    with listener:
        name = f"[{host}]" if ":" in host else host
        yield f"http://{name}:{listener.getsockname()[1]}"


@needs_root
@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_token_is_not_sent_to_a_port_that_another_user_has_taken(
    family: socket.AddressFamily, host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirage_listener, "MACHINES_FOLDER", tmp_path / "none")
    with port_of(OTHER, family, host) as url, pytest.raises(DaemonUnreachable, match=str(OTHER)) as raised:
        Client(url, "secret").chains()
    assert not isinstance(raised.value, Unanswered), "nothing was sent"


@needs_root
@pytest.mark.parametrize(("server", "asked"), [("", False), ("nobody", False), ("alice", True)])
def test_slurmrestds_port_is_asked_only_where_its_account_listens(
    server: str, asked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    known = pwd.getpwnam("nobody")
    monkeypatch.setattr(pwd, "getpwnam", lambda name: struct_passwd({"alice": OTHER}.get(name, known.pw_uid)))
    with port_of(OTHER, socket.AF_INET, "127.0.0.1") as url:
        client = RestClient(RestAddress.parse(url, server), Credentials("alice", str(token)), timeout=0.5)
        with pytest.raises(ClusterUnavailable, match="time" if asked else "not trusted"):
            client.ask("GET", "/slurm/v0.0.38/jobs")


@needs_root
def test_port_of_an_address_of_this_machine_is_looked_at_as_well() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # nothing is sent
        own = probe.getsockname()[0]
    with port_of(OTHER, socket.AF_INET, own) as url:
        _, _, port = url.rpartition(":")
        with pytest.raises(PermissionError, match=str(OTHER)):
            mirage_listener.check_port(own, int(port))
    mirage_listener.check_port("192.0.2.1", int(port))


@needs_root
def test_password_of_the_store_is_not_sent_to_another_users_server() -> None:
    with port_of(OTHER, socket.AF_INET, "127.0.0.1") as url:
        _, _, port = url.rpartition(":")
        store = make_url(f"postgresql://mirage:secret@127.0.0.1:{port}/mirage")
        with pytest.raises(OperationalError, match="not trusted"):
            postgres_engine(store, 1.0).connect()
    with pytest.raises(OperationalError, match="refused"):
        postgres_engine(store, 1.0).connect()


def struct_passwd(uid: int) -> pwd.struct_passwd:
    return pwd.struct_passwd(("x", "x", uid, uid, "", "/", "/bin/sh"))


@pytest.mark.parametrize(
    ("uid", "service"), [(0, True), (999, True), (1_000, False), (65_534, True), (70_000, False)]
)
def test_accounts_of_services_are_known_by_their_numbers(uid: int, service: bool) -> None:
    assert mirage_listener.is_service(uid) is service


def test_every_user_from_outside_a_namespace_looks_like_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirage_listener, "_sees_all_users", lambda: False)
    assert not mirage_listener.is_service(65_534)
    assert mirage_listener.is_service(0)


@needs_root
@pytest.mark.parametrize(
    ("owner", "mode", "trusted"), [(OTHER, 0o755, True), (OTHER, 0o777, False), (THIRD, 0o755, False)]
)
def test_port_of_the_machines_daemon_is_trusted(
    owner: int, mode: int, trusted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirage_listener, "MACHINES_FOLDER", own_folder(tmp_path / "run", owner, mode))
    with port_of(OTHER, socket.AF_INET, "127.0.0.1") as url:
        _, _, port = url.rpartition(":")
        with nullcontext() if trusted else pytest.raises(PermissionError):
            mirage_listener.check_port("127.0.0.1", int(port))
