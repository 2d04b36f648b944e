"""The state directory says who is asked, with keys of tenants: only a directory that is its owner's alone
counts."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import stat
import time
from typing import TYPE_CHECKING, Any

import pytest

from mirage.allocation.inference.serving.addressbook import GatewayAddress, GatewayStateFolder
from mirage.allocation.inference.serving.front import Front
from mirage.allocation.inference.serving.run import take_over
from mirage.cli.allocation_serving import front_command
from mirage.domain.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import MutableMapping
    from pathlib import Path

OWN = GatewayAddress("http://127.0.0.1:1", "token")
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes directories of others")


def nobody() -> int:
    return pwd.getpwnam("nobody").pw_uid


def refused(folder: Path) -> str:
    """Why the directory is taken by none of those who read or write there."""
    state, said = GatewayStateFolder(folder), set[str]()
    for use in (state.make, state.check, state.read_address, lambda: state.write_address(OWN)):
        with pytest.raises(ConfigError) as raised:
            use()
        said.add(str(raised.value))
    with pytest.raises(ConfigError):
        asyncio.run(take_over(state, OWN))
    assert not list(folder.iterdir()), "no key is written there"
    (why,) = said
    assert why.startswith(f"{folder}: ")
    return why


def test_state_folder_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    umask = os.umask(0o002)
    try:
        GatewayStateFolder(tmp_path / "a" / "b").make()
    finally:
        os.umask(umask)
    assert stat.S_IMODE((tmp_path / "a" / "b").stat().st_mode) == 0o700
    GatewayStateFolder(tmp_path / "a" / "b").make()


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o750, 0o701])
def test_state_folder_open_to_others_is_refused(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    folder.chmod(mode)
    assert "open to others" in refused(folder)
    assert "chmod 700" in refused(folder)


def test_state_folder_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "true").mkdir(mode=0o700)
    (tmp_path / "state").symlink_to(tmp_path / "true")
    assert "is a symbolic link" in refused(tmp_path / "state")


@AS_ROOT
def test_state_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    os.chown(folder, nobody(), -1)
    assert "another user" in refused(folder)


def address_file(folder: Path) -> Path:
    state = GatewayStateFolder(folder)
    state.make()
    state.write_address(OWN)
    assert state.read_address() == OWN
    return folder / "address.json"


def test_address_behind_a_link_or_fifo_is_not_read(tmp_path: Path) -> None:
    file = address_file(tmp_path / "state")
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    assert GatewayStateFolder(file.parent).read_address() is None
    file.unlink()
    os.mkfifo(file)
    began = time.monotonic()
    assert GatewayStateFolder(file.parent).read_address() is None
    assert time.monotonic() - began < 2.0


@AS_ROOT
def test_address_of_another_user_is_not_read(tmp_path: Path) -> None:
    file = address_file(tmp_path / "state")
    os.chown(file, nobody(), -1)
    assert GatewayStateFolder(file.parent).read_address() is None


def test_front_of_an_open_state_folder_does_not_start(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(ConfigError, match="open to others"):
        front_command(folder, listen="127.0.0.1:0")


def test_front_asks_nobody_once_its_folder_is_open(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    address_file(tmp_path / "state")
    front = Front(GatewayStateFolder(tmp_path / "state"), 0.5, 1 << 20)
    (tmp_path / "state").chmod(0o777)
    (tmp_path / "state" / "address.json").write_text(json.dumps({"url": OWN.url, "token": "theirs"}))
    status, body = asyncio.run(asked(front))
    assert (status, b"no gateway" in body) == (503, True)
    assert [record.getMessage().split()[0] for record in caplog.records] == ["event=state_folder_refused"]


async def asked(front: Front) -> tuple[int, bytes]:
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/v2",
        "raw_path": b"/v2",
        "query_string": b"",
        "headers": [],
    }
    whole, said = [{"type": "http.request", "body": b"", "more_body": False}], []

    async def receive() -> dict[str, Any]:
        return whole.pop() if whole else await asyncio.get_running_loop().create_future()

    async def send(message: MutableMapping[str, Any]) -> None:
        said.append(message)

    await front(scope | {"client": ("127.0.0.1", 1)}, receive, send)
    return said[0]["status"], b"".join(message.get("body", b"") for message in said)
