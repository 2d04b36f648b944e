"""The packages under ``plugins/`` as if they were installed: importable, and with their entry points."""

from __future__ import annotations

import os
import sys
import tomllib
from pathlib import Path

import pytest

PLUGINS = Path(__file__).resolve().parents[2] / "plugins"
FOLDERS = sorted(path.parent for path in PLUGINS.glob("*/pyproject.toml"))

sys.path[:0] = [str(folder) for folder in FOLDERS]


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A ``PYTHONPATH`` with which a new process finds the plugins and their entry points."""
    site = tmp_path_factory.mktemp("site")
    for folder in FOLDERS:
        project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
        about = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
        about.mkdir()
        named = f"Name: {project['name']}\nVersion: {project['version']}\n"
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\n{named}")
        lines = []
        for group, points in project.get("entry-points", {}).items():
            lines += [f"[{group}]", *(f"{name} = {value}" for name, value in points.items())]
        (about / "entry_points.txt").write_text("\n".join(lines) + "\n")
    known = os.environ.get("PYTHONPATH", "")
    root = str(Path(__file__).resolve().parents[2])
    return os.pathsep.join([str(site), *map(str, FOLDERS), root, *([known] if known else [])])
