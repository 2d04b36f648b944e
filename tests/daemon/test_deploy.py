"""The files under ``deploy``: systemd and sudo accept them, and they agree with the daemon."""

from __future__ import annotations

import configparser
import os
import shutil
import subprocess
from pathlib import Path

import pytest

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))


def read_unit(file: Path) -> configparser.ConfigParser:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(file)
    return unit


def run(*argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def needs(program: str) -> None:
    if shutil.which(program, path="/usr/bin:/usr/sbin:/bin:/sbin") is None:
        pytest.skip(f"{program} is not installed")


@pytest.mark.parametrize("file", UNITS, ids=lambda file: file.name)
def test_units_speak_to_the_daemon_as_it_listens(file: Path) -> None:
    service = read_unit(file)["Service"]
    assert service["Type"] == "notify"
    assert service["ExecReload"] == "/bin/kill -HUP $MAINPID"
    assert int(service["WatchdogSec"]) >= 3 * 30 + 30, "three queries that time out are no reason to be killed"


def test_the_daemon_works_in_an_empty_directory() -> None:
    """Relative names given by a model or a user must lead nowhere."""
    service = read_unit(DEPLOY / "systemd" / "mirage.service")["Service"]
    assert service["WorkingDirectory"] == "/var/lib/mirage/empty"
    assert "mirage/empty" in service["StateDirectory"].split()
    assert service["StateDirectoryMode"] == "0700"
    image = (DEPLOY / "container" / "Dockerfile").read_text()
    assert "\nWORKDIR /var/empty\nUSER 8421:8421\nENTRYPOINT" in image


def test_systemd_accepts_the_system_unit(tmp_path: Path) -> None:
    needs("systemd-analyze")
    unit = tmp_path / "mirage.service"
    unit.write_text((DEPLOY / "systemd" / "mirage.service").read_text().replace("/usr/bin/mirage", "/bin/true"))
    checked = run("systemd-analyze", "verify", str(unit))
    assert "mirage.service" not in checked.stderr, checked.stderr


def test_systemd_accepts_the_unit_of_a_person(tmp_path: Path) -> None:
    needs("systemd-analyze")
    unit = tmp_path / "mirage.service"
    unit.write_text(
        (DEPLOY / "systemd" / "mirage-user.service").read_text().replace("%h/.local/bin/mirage", "/bin/true")
    )
    argv = ["systemd-analyze", "verify", "--user", str(unit)]
    checked = subprocess.run(
        argv, capture_output=True, text=True, check=False, env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    )
    assert checked.returncode == 0, checked.stderr
    assert "mirage.service" not in checked.stderr, checked.stderr


IMPLY_NO_NEW_PRIVILEGES = """DynamicUser LockPersonality MemoryDenyWriteExecute PrivateDevices ProtectClock
ProtectHostname ProtectKernelLogs ProtectKernelModules ProtectKernelTunables RestrictAddressFamilies
RestrictNamespaces RestrictRealtime RestrictSUIDSGID SystemCallArchitectures SystemCallFilter SystemCallLog"""
"""By systemd.exec(5), for a service that is not root's, whatever NoNewPrivileges says."""


def test_with_the_drop_in_the_service_may_start_sudo() -> None:
    unit = read_unit(DEPLOY / "systemd" / "mirage.service")
    unit.read(DEPLOY / "systemd" / "mirage-sudo.conf")
    for name in ("NoNewPrivileges", *IMPLY_NO_NEW_PRIVILEGES.split()):
        assert unit["Service"].get(name, "no") in ("no", ""), name
    assert unit["Service"]["CapabilityBoundingSet"] == "~", "sudo changes users and groups, and writes its audit"
    assert unit["Service"]["ProtectSystem"] == "strict", "restrictions that hinder no feature stay"


def test_systemd_accepts_the_drop_in(tmp_path: Path) -> None:
    needs("systemd-analyze")
    unit = tmp_path / "mirage.service"
    unit.write_text((DEPLOY / "systemd" / "mirage.service").read_text().replace("/usr/bin/mirage", "/bin/true"))
    (tmp_path / "mirage.service.d").mkdir()
    shutil.copy(DEPLOY / "systemd" / "mirage-sudo.conf", tmp_path / "mirage.service.d" / "sudo.conf")
    checked = run("systemd-analyze", "verify", str(unit))
    assert "mirage.service" not in checked.stderr, checked.stderr
    assert "sudo.conf" not in checked.stderr, checked.stderr


def test_sudo_accepts_its_rules() -> None:
    needs("visudo")
    checked = run("visudo", "-cf", str(DEPLOY / "sudoers.d" / "mirage"))
    assert "parsed OK" in checked.stdout


def test_the_account_and_the_folders_are_accepted(tmp_path: Path) -> None:
    needs("systemd-sysusers")
    account = run("systemd-sysusers", "--dry-run", str(DEPLOY / "sysusers.d" / "mirage.conf"))
    assert account.returncode == 0, account.stderr
    lines = (DEPLOY / "tmpfiles.d" / "mirage.conf").read_text().replace(" mirage mirage ", " - - ")
    mine = tmp_path / "mirage.conf"
    mine.write_text(lines.replace("root root", "- -"))
    folders = run("systemd-tmpfiles", f"--root={tmp_path}", "--create", str(mine))
    assert folders.returncode == 0, folders.stderr
    assert (tmp_path / "etc/mirage/conf.d").is_dir()
    assert (tmp_path / "etc/mirage/tokens").stat().st_mode & 0o777 == 0o700
