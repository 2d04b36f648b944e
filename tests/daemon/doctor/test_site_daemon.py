"""A user of a site's daemon asks the doctor."""

from __future__ import annotations

import os
import socket
import subprocess
from functools import partial
from typing import TYPE_CHECKING

import pytest
from anyone import ANYONE, for_all_users

from mirage.config.model import ApiSection, Config, ServiceSection
from mirage.daemon.doctor import machine

if TYPE_CHECKING:
    from pathlib import Path


def test_a_site_daemon_that_the_environment_names_is_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, own = str(tmp_path / "site.sock"), str(tmp_path / "own" / "api.sock")
    config = Config(service=ServiceSection(state=str(tmp_path / "own")), api=ApiSection(socket=own))
    monkeypatch.setenv("MIRAGE_SOCKET", site)
    assert machine.check_daemon(config).found == "none runs"
    with socket.socket(socket.AF_UNIX) as daemon:
        daemon.bind(site)
        daemon.listen()
        found = [machine.check_daemon(config), machine.check_socket(config)]
    assert [(str(each.level), site in each.found, each.todo) for each in found] == [("ok", True, "")] * 2


@pytest.mark.skipif(os.geteuid() != 0, reason="to become another user needs root")
def test_a_state_directory_of_another_account_is_not_said_to_be_removed(tmp_path: Path) -> None:
    state, address = tmp_path / "site", tmp_path / "site.sock"
    state.mkdir(mode=0o700)
    ask = (
        "import sys; from mirage.config.model import ApiSection, Config, ServiceSection as State;"
        "from mirage.daemon.doctor.machine import check_daemon as ask;"
        "print(ask(Config(service=State(state=sys.argv[1]), api=ApiSection(socket=sys.argv[2]))).level)"
    )
    with socket.socket(socket.AF_UNIX) as daemon:
        daemon.bind(str(address))
        address.chmod(0o777)
        daemon.listen()
        argv = [ANYONE[0], "-c", ask, str(state), str(address)]
        packages = for_all_users(tmp_path)
        run = partial(subprocess.run, argv, env=packages, cwd="/", capture_output=True, text=True, check=True)
        levels = [run(user=user).stdout for user in (0, 65_534)]
    assert levels == ["fail\n", "ok\n"]
