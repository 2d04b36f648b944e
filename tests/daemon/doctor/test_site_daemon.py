"""A user of a site's daemon asks the doctor."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from mirage.config.model import ApiSection, Config, ServiceSection
from mirage.daemon.doctor import machine

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_site_daemon_that_the_environment_names_is_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, own = str(tmp_path / "site.sock"), str(tmp_path / "own" / "api.sock")
    config = Config(service=ServiceSection(state=str(tmp_path / "own")), api=ApiSection(socket=own))
    monkeypatch.setenv("MIRAGE_SOCKET", site)
    assert machine.look_at_daemon(config).found == "none runs"
    with socket.socket(socket.AF_UNIX) as daemon:
        daemon.bind(site)
        daemon.listen()
        found = [machine.look_at_daemon(config), machine.look_at_socket(config)]
    assert [(str(each.level), site in each.found, each.todo) for each in found] == [("ok", True, "")] * 2
