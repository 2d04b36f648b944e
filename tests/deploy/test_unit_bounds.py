"""How much of the machine the units leave to the daemon, by systemd's own judgement."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from containers import ROOT

if TYPE_CHECKING:
    from pathlib import Path

UNITS = ROOT / "deploy" / "systemd"
UNIT = UNITS / "mirage.service"
EXPOSURE = {"mirage.service": 1.4, "mirage-user.service": 6.2, "with mirage-sudo.conf": 8.4}
"""At most; the user's systemd enforces of it what needs no root (systemd.exec(5))."""
pytestmark = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")


def judged(unit: Path, *options: str) -> subprocess.CompletedProcess[str]:
    argv = ["systemd-analyze", "security", "--offline=true", "--no-pager", *options, str(unit)]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def unit_of(name: str, folder: Path) -> Path:
    """A unit as it is installed: with the drop-in next to it where the name says so."""
    if name in ("mirage.service", "mirage-user.service"):
        return UNITS / name
    shutil.copy(UNIT, folder)
    (folder / "mirage.service.d").mkdir()
    shutil.copy(UNITS / "mirage-sudo.conf", folder / "mirage.service.d")
    return folder / "mirage.service"


@pytest.mark.parametrize(("name", "exposure"), EXPOSURE.items())
def test_the_unit_is_bounded(tmp_path: Path, name: str, exposure: float) -> None:
    """The threshold is the whole number that systemd compares: ten times the exposure that it shows."""
    done = judged(unit_of(name, tmp_path), f"--threshold={round(10 * exposure)}")
    assert done.returncode == 0, done.stdout[-200:]
    assert f"{exposure} of 10" in (ROOT / "docs" / "deploy.md").read_text()


def test_what_a_person_can_enforce_without_root_is_enforced_in_their_unit() -> None:
    """Filters of system calls, as the system's unit has them; nothing that takes namespaces or capabilities."""
    found = {name: directives(UNITS / name) for name in ("mirage.service", "mirage-user.service")}
    theirs, systems = found["mirage-user.service"], found["mirage.service"]
    assert {key: theirs.get(key) for key in WITHOUT_ROOT} == {key: systems.get(key) for key in WITHOUT_ROOT}
    assert all(systems[key] for key in WITHOUT_ROOT)
    assert not set(theirs) & {key for key in systems if key.startswith(("Protect", "Private", "Capability"))}


WITHOUT_ROOT = (
    *("NoNewPrivileges", "LockPersonality", "RestrictAddressFamilies", "RestrictNamespaces", "RestrictRealtime"),
    *("RestrictSUIDSGID", "SystemCallArchitectures", "SystemCallFilter", "SystemCallErrorNumber"),
)


def directives(unit: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for key, value in re.findall(r"(?m)^(\w+)=(.*)$", unit.read_text()):
        found.setdefault(key, []).append(value)
    return found


def test_whatever_stays_open_has_its_reason_in_the_documentation() -> None:
    document = (ROOT / "docs" / "deploy.md").read_text()
    table = document[document.index("| open | since |") :].split("\n\n")[0].replace("\\|", "|")
    explained = set(re.findall(r"`([A-Z]\w+(?:=~[^`]+)?)`(?=, `| \|)", table))
    found = json.loads(judged(UNIT, "--json=short").stdout)
    left_open = {each["json_field"] for each in found if not each["set"] and each["exposure"]}
    assert left_open == {re.sub(r"=~|[|]", "_", name).replace("(", "").replace(")", "") for name in explained}
