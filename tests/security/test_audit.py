"""``.ci/audit`` on a stand-in for pip-audit: what it finds, and that it knows when it has found out nothing."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
STAND_IN = """#!{python}
import os, sys
if sys.argv[1:3] != ["-m", "pip_audit"]:
    os.execv("{python}", ["{python}", *sys.argv[1:]])
kind = "control" if "--requirement" in sys.argv else "report"
said = os.environ[kind]
if said:
    open(sys.argv[sys.argv.index("--output") + 1], "w").write(said)
"""
FAULT = {"id": "CVE-1", "fix_versions": ["2.0"]}


def report(**packages: object) -> str:
    return json.dumps(
        {"dependencies": [{"name": name, "version": "1.0"} | found for name, found in packages.items()]}  # type: ignore[operator]
    )


KNOWN = report(pyyaml={"vulns": [FAULT]})
SKIPPED = report(pyyaml={"skip_reason": "not on PyPI"})


@pytest.mark.parametrize(
    ("control", "found", "status", "says"),
    [
        (KNOWN, report(numpy={"vulns": []}), 0, "1 packages audited, 0 known vulnerabilities"),
        (KNOWN, report(numpy={"vulns": []}, jinja2={"vulns": [FAULT]}), 1, "jinja2 1.0: CVE-1, fixed in 2.0"),
        (KNOWN, report(numpy={"vulns": []}, ours={"skip_reason": "?"}), 0, "not in the database: ours"),
        (SKIPPED, report(numpy={"vulns": []}), 75, "NOT AUDITED"),
        ("", "", 75, "NOT AUDITED"),
        (KNOWN, "", 75, "NOT AUDITED"),
    ],
)
def test_what_is_said(tmp_path: Path, control: str, found: str, status: int, says: str) -> None:
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "audit", tmp_path / ".ci")
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(STAND_IN.format(python=sys.executable))
    python.chmod(0o755)
    environment = {"PATH": "/usr/bin:/bin", "control": control, "report": found}
    done = subprocess.run(
        [tmp_path / ".ci" / "audit"], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, says in done.stdout) == (status, True), done.stdout + done.stderr


def test_continuous_integration_asks() -> None:
    assert ".ci/audit" in (ROOT / ".ci" / "run").read_text()
