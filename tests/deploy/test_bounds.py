"""How much of the machine the system's unit leaves to the daemon, by systemd's own judgement."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import pytest
from containers import ROOT

UNIT = ROOT / "deploy" / "systemd" / "mirage.service"
EXPOSURE = 1.4
pytestmark = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")


def judged(*options: str) -> subprocess.CompletedProcess[str]:
    argv = ["systemd-analyze", "security", "--offline=true", "--no-pager", *options, str(UNIT)]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def test_the_unit_is_bounded() -> None:
    """By the whole number that systemd compares: ten times what it shows."""
    done = judged(f"--threshold={round(10 * EXPOSURE)}")
    assert done.returncode == 0, done.stdout[-200:]
    assert f"systemd-analyze security` gives it {EXPOSURE} of 10" in (ROOT / "docs" / "deploy.md").read_text()


def test_whatever_stays_open_has_its_reason_in_the_documentation() -> None:
    document = (ROOT / "docs" / "deploy.md").read_text()
    table = document[document.index("| open | since |") :].split("\n\n")[0].replace("\\|", "|")
    explained = set(re.findall(r"`([A-Z]\w+(?:=~[^`]+)?)`(?=, `| \|)", table))
    found = json.loads(judged("--json=short").stdout)
    left_open = {each["json_field"] for each in found if not each["set"] and each["exposure"]}
    assert left_open == {re.sub(r"=~|[|]", "_", name).replace("(", "").replace(")", "") for name in explained}
