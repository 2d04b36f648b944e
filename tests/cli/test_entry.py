"""The installed programs in a shell whose ``PYTHONPATH`` is set to libraries of another Python."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = {"mirage": "--version", "mbatch": "--help", "act": "word"}
CHILD = (
    "import subprocess; from mirage.entry import _isolate; _isolate();"
    "from mirage.ownprocess import own_python;"
    "print(subprocess.run(own_python('-c', 'import typer, sys; print(typer.__file__)'), text=True, check=True))"
)


@pytest.fixture
def module(tmp_path: Path) -> dict[str, str]:
    """The environment after ``module load`` of a library that holds other versions of what Mirage needs."""
    for name in ("typer", "click", "pydantic", "numpy", "sqlalchemy"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise ImportError('made for another Python')\n")
    return os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}", "HOME": str(tmp_path)}


@pytest.mark.parametrize("program", PROGRAMS)
def test_libraries_of_the_users_jobs_do_not_end_mirage(module: dict[str, str], program: str) -> None:
    code = f"from mirage.entry import {program}; {program}()"
    argv = [sys.executable, "-c", code, PROGRAMS[program]]
    done = subprocess.run(argv, env=module, capture_output=True, text=True, check=False, cwd="/")
    assert "Traceback" not in done.stderr
    assert done.returncode == (program == "act"), done.stderr  # it takes no arguments


def test_processes_of_mirage_are_kept_apart_too(module: dict[str, str]) -> None:
    argv = [sys.executable, "-c", CHILD]
    done = subprocess.run(argv, env=module, capture_output=True, text=True, check=False, cwd="/")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("variable", [":/nowhere", "/nowhere:", "."])
@pytest.mark.parametrize("name", ["typer", "sysconfig", "pathlib", "datetime"])
def test_nothing_comes_from_the_working_directory(tmp_path: Path, variable: str, name: str) -> None:
    """``PYTHONPATH=$PYTHONPATH:/opt/lib`` has an empty part where the variable was empty."""
    (tmp_path / f"{name}.py").write_text("raise SystemExit(77)\n")
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from mirage.entry import mirage; mirage()"
    argv = [sys.executable, "-P", "-c", code, "--version"]
    environment = os.environ | {"PYTHONPATH": variable}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_python_m_obeys_the_variable(module: dict[str, str]) -> None:
    argv = [sys.executable, "-m", "mirage", "--version"]
    assert subprocess.run(argv, env=module, capture_output=True, check=False, cwd="/").returncode
