"""Mirage run by a Python that every user may run: the one of the tests may lie in root's home."""

from __future__ import annotations

import subprocess
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ANYONE = ("/usr/bin/python3", "-c", "from mirage.cli.main import main; main()")


def for_all_users(folder: Path) -> dict[str, str]:
    """The environment in which every user may run Mirage, with ``folder`` open to them; skips without one."""
    for place in (folder, *folder.parents):
        if place.is_relative_to("/tmp") and place != Path("/tmp"):
            place.chmod(0o755)
    packages = {"PYTHONPATH": f"{ROOT}:{sysconfig.get_path('purelib')}"}
    tried = [*ANYONE[:2], "import mirage.cli.db, sqlalchemy"]
    if subprocess.run(tried, env=packages, check=False, user=65_534).returncode:
        pytest.skip("no /usr/bin/python3 of this version, which every user may run")
    return packages
