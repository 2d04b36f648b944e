"""The doctor's report on files that cannot be checked."""

from __future__ import annotations

import os
import pwd
import socket
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from api_world import definition, world

from mirage.api.server import ApiServer
from mirage.config.loading import load_config
from mirage.daemon.doctor.account import DaemonAccount
from mirage.daemon.doctor.examination import check_files

if TYPE_CHECKING:
    from pathlib import Path

    from api_world import World

    from mirage.config.model import Config

__all__ = ["world"]


def config(folder: Path, socket: Path, mode: str = "own") -> Config:
    file = folder / "mirage.toml"
    file.write_text(f'[api]\nsocket = "{socket}"\n[acting]\nmode = "{mode}"\n')
    return load_config(file).config


def test_chains_whose_files_are_unknown_are_named(world: World, tmp_path: Path) -> None:
    for number in range(12):
        world.call("POST", "/api/v1/chains", definition(f"train-{number}"))
    chains = sorted(record.chain.chain_id for record in world.loop.status.chains)
    unknown = dict.fromkeys(chains, "/home/ada: no search permission")
    assert list(check_files(config(tmp_path, world.socket))) == []
    service = replace(world.service, status=lambda: replace(world.loop.status, files_unknown=unknown))
    server = ApiServer(service, tmp_path / "api.sock")
    server.start()
    try:
        findings = list(check_files(config(tmp_path, tmp_path / "api.sock")))
    finally:
        server.stop()
    assert {finding.level for finding in findings} == {"warn"}
    assert len(findings) == 11
    assert f"{chains[0]}: /home/ada" in findings[0].found
    assert "2 more" in findings[-1].found


@pytest.mark.skipif(os.geteuid() != 0, reason="root asks as another user")
def test_files_of_chains_not_shown_are_not_looked_at(world: World, tmp_path: Path) -> None:
    world.call("POST", "/api/v1/chains", definition())
    configured = config(tmp_path, world.socket)
    account = DaemonAccount(pwd.getpwnam("nobody").pw_uid, "nobody", "the test")
    (found,) = account.look(lambda: check_files(configured))
    assert (found.level, found.check) == ("warn", "files")
    assert "of other users can be checked is unknown" in found.follows
    assert "administrator" in found.todo


def test_files_of_a_daemon_that_does_not_answer_are_named(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(tmp_path / "api.sock"))
    (found,) = check_files(config(tmp_path, tmp_path / "api.sock"))
    assert found.level == "warn"
    assert "is unknown" in found.follows


@pytest.mark.parametrize(("mode", "said"), [("own", 0), ("agent", 0), ("release", 1), ("token", 1)])
def test_who_checks_is_said_where_homes_may_be_closed(tmp_path: Path, mode: str, said: int) -> None:
    findings = list(check_files(config(tmp_path, tmp_path / "none.sock", mode)))
    assert [(finding.level, finding.check) for finding in findings] == [("ok", "files")] * said
