"""The wheel, installed by name from a local index: a login node needs no checkout and no extras.

The packages that Mirage needs come from pip's usual index.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from containers import ROOT
from running_demo import Demo

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MOST_MB = 410
"""Disk space of the packages of a plain installation; llvmlite, numba and numpy are 280 of it."""
CAN_HIDE = subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode == 0
pytestmark = pytest.mark.xdist_group("wheel")


def run(*argv: str | Path) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd="/")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index with the wheel of Mirage, as pip reads it (PEP 503)."""
    index = tmp_path_factory.mktemp("index")
    built = index / "built"
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", built, ROOT)
    for wheel in built.iterdir():
        project = index / wheel.name.partition("-")[0].replace("_", "-")
        project.mkdir()
        shutil.move(wheel, project / wheel.name)
        (project / "index.html").write_text(f'<a href="{wheel.name}">{wheel.name}</a>')
    return index


@pytest.fixture(scope="module")
def installed(index: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of programs of an environment in which ``mirage-slurm`` was installed by its name."""
    venv = tmp_path_factory.mktemp("login") / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", venv)
    pip = [sys.executable, "-m", "pip", "--python", venv / "bin" / "python", "install", "--quiet"]
    run(*pip, "--extra-index-url", index.as_uri(), "-c", ROOT / "constraints.txt", "mirage-slurm")
    return venv / "bin"


@pytest.fixture(scope="module")
def demo(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """The demo of the installed wheel, in a mount namespace whose checkout is empty."""
    hidden = ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs none {ROOT} && cd / && exec "$@"', "sh"]
    demo = Demo(tmp_path_factory.mktemp("d"), [*(hidden if CAN_HIDE else []), str(installed / "mirage")])
    yield demo
    demo.end()


def test_the_environment_is_small(installed: Path) -> None:
    size = sum(file.lstat().st_blocks * 512 for file in installed.parent.rglob("*"))
    assert size <= MOST_MB << 20


def test_chains_page_and_look_ahead_work(demo: Demo, installed: Path) -> None:
    assert str(ROOT) not in run(installed / "python", "-c", "import mirage; print(mirage.__file__)")
    demo.wait_until(lambda: demo.get("/healthz")[0] == 200, "an answer")
    demo.wait_until(lambda: "train-llm" in demo.mirage("chains"), "a chain")
    target = f"{demo.link.path}?{demo.link.query}"
    cookie = demo.get(target)[1]["set-cookie"].partition(";")[0]
    assert "train-llm" in demo.get("/", cookie)[2]
    told = demo.mirage("predict", "--predictor", "lookahead", "-N", "1", "-t", "1:00:00", "--json")
    assert "lookahead" in told
