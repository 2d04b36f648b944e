"""Whose rights the doctor checks: those of the daemon's account, whichever user runs it."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import socket
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from mirage.cli.main import app
from mirage.config.model import ApiSection, Config, ServiceSection
from mirage.daemon.doctor.account import DaemonAccount, find_account
from mirage.daemon.doctor.finding import Finding, ok
from mirage.domain.errors import MirageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ASSETS = Path(__file__).resolve().parents[2] / "assets" / "22.05.8"
NOBODY = pwd.getpwnam("nobody")
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root looks with the rights of another account")
Findings = dict[str, list[dict[str, str]]]

SCRIPT = """#!/bin/sh
case "$(basename "$0") $*" in
  "scontrol --version") cat {assets}/scontrol.version.txt ;;
  "scontrol show config") sed 's/^PrivateData.*/PrivateData = jobs/' {assets}/scontrol.config.txt ;;
  "scontrol -o show partition") cat {assets}/scontrol.partitions-oneline.txt ;;
  "sacctmgr -P show user nobody") printf 'User|Admin\\nnobody|{level}\\n' ;;
  "sacctmgr -nP show user nobody format"*) echo 'nobody|{level}' ;;
  "sacctmgr -P show user root") printf 'User|Admin\\nroot|Administrator\\n' ;;
  sacct*) true ;;
  squeue*) id -un >> {seen}; exit 1 ;;
  *) exit 1 ;;
esac
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that every account may enter, as those of a site."""
    folder = Path(tempfile.mkdtemp(prefix="mirage-doctor-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def examined(place: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Findings]:
    """The findings by check, of a site whose daemon's account is ``nobody`` and has the ``level`` in Slurm."""
    commands, state, assets = place / "bin", place / "state", place / "assets"
    shutil.copytree(ASSETS, assets)
    for folder in (commands, state):
        folder.mkdir(mode=0o755)
    state.chmod(0o700)
    os.chown(state, NOBODY.pw_uid, NOBODY.pw_gid)
    (place / "seen").touch(mode=0o666)
    (place / "seen").chmod(0o666)
    monkeypatch.setenv("PATH", f"{commands}{os.pathsep}/usr/bin:/bin")

    def examine(level: str = "None", mode: str = "release") -> Findings:
        text = SCRIPT.format(assets=assets, level=level, seen=place / "seen")
        for name in ("squeue", "sinfo", "sbatch", "scancel", "scontrol", "sacct", "sacctmgr", "sdiag"):
            (commands / name).write_text(text)
            (commands / name).chmod(0o755)
        file = place / "mirage.toml"
        service = f'[service]\nstate = "{state}"\nruntime = "{place}"\n'
        file.write_text(f'{service}[acting]\nmode = "{mode}"\n')
        result = CliRunner().invoke(app, ["doctor", "--json", "--config", str(file)], catch_exceptions=False)
        found: Findings = {}
        for finding in json.loads(result.stdout)["findings"]:
            found.setdefault(finding["check"], []).append(finding)
        return found

    return examine


def levels(findings: list[dict[str, str]]) -> list[tuple[str, str]]:
    return [(finding["level"], finding["found"]) for finding in findings]


@AS_ROOT
def test_doctor_of_root_judges_the_daemons_account(examined, place: Path) -> None:
    found = examined("None")
    assert ("fail", "nobody is no Operator (None)") in levels(found["acting"])
    assert levels(found["privacy"]) == [("fail", "PrivateData=jobs")]
    assert "nobody" in found["account"][0]["found"]
    assert set((place / "seen").read_text().split()) == {"nobody"}, "the queue is seen as the daemon sees it"
    found = examined("Operator")
    assert ("ok", "nobody is Operator") in levels(found["acting"])
    assert found["privacy"][0]["level"] == "ok"


@AS_ROOT
def test_doctor_of_root_finds_state_the_account_cannot_use(examined, place: Path) -> None:
    (place / "state").chmod(0o500)
    assert levels(examined()["state"]) == [("fail", f"{place}/state is not writable")]


@AS_ROOT
def test_doctor_of_root_makes_no_files_in_the_state(examined, place: Path) -> None:
    from mirage.store.opening import open_store

    open_store(f"sqlite:///{place}/state/mirage.db").close()
    for file in (place / "state").iterdir():
        os.chown(file, NOBODY.pw_uid, NOBODY.pw_gid)
    examined()
    assert {file.stat().st_uid for file in (place / "state").iterdir()} == {NOBODY.pw_uid}


@AS_ROOT
def test_doctor_of_root_says_nothing_of_an_unknown_account(examined, place: Path) -> None:
    (place / "state").rmdir()
    found = examined()
    assert {level for check in ("account", "privacy") for level, _ in levels(found[check])} == {"warn"}
    assert not [found for level, found in levels(found["acting"]) if level == "ok" and "root" in found]


def test_account_is_the_process_at_the_socket(place: Path) -> None:
    (place / "state").mkdir()
    path = place / "api.sock"
    config = Config(service=ServiceSection(state=str(place / "state")), api=ApiSection(socket=str(path)))
    if os.geteuid() == 0:
        os.chown(place / "state", NOBODY.pw_uid, NOBODY.pw_gid)
        assert find_account(config).name == "nobody"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        found = find_account(config)
    assert (found.uid, found.is_ours, list(found.findings())) == (os.geteuid(), True, [])


@AS_ROOT
def test_checks_of_an_account_that_fail_are_a_failure() -> None:
    account = DaemonAccount(NOBODY.pw_uid, "nobody", "the test")

    def raising() -> Iterator[Finding]:
        yield ok("first", str(os.getuid()))
        raise MirageError("no more")

    def ending() -> Iterator[Finding]:
        os._exit(0)
        yield ok("never", "")

    first, last = account.look(raising)
    assert (first, str(last.level)) == (ok("first", str(NOBODY.pw_uid)), "fail")
    assert "no more" in last.found
    assert [str(finding.level) for finding in account.look(ending)] == ["fail"]
    assert os.geteuid() == 0
