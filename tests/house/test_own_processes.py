"""This interpreter is started at one place, which keeps what lies in the working directory from being imported."""

from __future__ import annotations

import ast
import os
import re
import stat
import subprocess
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from mirage.kernel_compiler import cache_folder
from mirage.ownprocess import own_python, spawning

ROOT = Path(__file__).resolve().parents[2]
ELSEWHERE = {
    "mirage.backends.execution": "isolated altogether: a file of the package, without site-packages",
    "mirage.bench.references": "a script of a peer, which imports what lies next to it",
    "mirage.cli.demo": "where this program is, for people to read",
    "mirage.ownprocess": "the place",
    "mirage.training.launch": "asks only for its parent",
}
"""Modules that name the interpreter or ``multiprocessing``, and why they may."""
_STARTS = re.compile(r"sys\.executable|^\s*(import|from) multiprocessing\b(?!.*\bConnection$)", re.MULTILINE)


@pytest.fixture
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory: whatever is imported from it leaves the file ``sprung``."""
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    for name in ("multiprocessing", "importlib", "json", "runpy", "threading", "mirage", "numpy"):
        (tmp_path / f"{name}.py").write_text(
            f"open({str(tmp_path / 'sprung')!r}, 'w').close()\nraise SystemExit(7)\n"
        )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_interpreters_are_started_at_one_place() -> None:
    found = {
        ".".join(file.relative_to(ROOT).with_suffix("").parts)
        for file in sorted((ROOT / "mirage").rglob("*.py"))
        if _STARTS.search(ast.unparse(ast.parse(file.read_bytes())))
    }
    assert found - ELSEWHERE.keys() == set(), "use mirage.ownprocess"
    assert ELSEWHERE.keys() - found == set(), "these need no reason any more"


def test_own_interpreter_imports_nothing_from_the_working_directory(trap: Path) -> None:
    subprocess.run(own_python("-m", "mirage", "--version"), check=True, capture_output=True)
    subprocess.run(own_python("-c", "import multiprocessing, json, numpy"), check=True)
    assert not (trap / "sprung").exists()


@pytest.mark.parametrize("settings", ["chrome_trace: {victim}\n", "a: [b"], ids=["names a file", "is broken"])
def test_numba_takes_no_settings_from_the_working_directory(
    trap: Path, settings: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim = trap / "victim"
    victim.write_text("precious")
    (trap / ".numba_config.yaml").write_text(settings.format(victim=victim))
    monkeypatch.setenv("XDG_CACHE_HOME", str(trap / "cache"))
    code = "from mirage.simulator.kernel import bitsets; from mirage.numbaimport import njit; njit(lambda x: x)(3)"
    subprocess.run(own_python("-c", f"{code}; import yaml; assert yaml.safe_load('a: 1')"), check=True)
    assert victim.read_text() == "precious"


def test_the_runtime_of_models_reads_no_file_that_others_can_make(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its telemetry would open this one, and wait."""
    os.mkfifo(tmp_path / ".ses")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    code = "from mirage.onnximport import onnx_runtime; onnx_runtime()"
    subprocess.run(own_python("-c", code), check=True, timeout=120)


@pytest.mark.parametrize("library", ["numba", "onnxruntime"])
def test_library_is_imported_at_one_place(library: str) -> None:
    imports = re.compile(rf"^\s*(import|from) {library}\b", re.MULTILINE)
    files = [file for folder in ("mirage", "plugins") for file in sorted((ROOT / folder).rglob("*.py"))]
    found = [file.name for file in files if imports.search(file.read_text())]
    assert found == [{"numba": "numbaimport.py", "onnxruntime": "onnximport.py"}[library]]


def test_worker_processes_import_nothing_from_the_working_directory(trap: Path) -> None:
    with ProcessPoolExecutor(1, spawning()) as pool:
        assert pool.submit(abs, -3).result(60) == 3
    assert not (trap / "sprung").exists()


@pytest.mark.parametrize(
    ("mode", "owner", "kept"),
    [(0o755, 0, True), (0o700, 0, True), (0o1777, 0, True), (0o777, 0, False), (0o755, 4711, False)],
)
def test_compiled_code_is_kept_only_where_nobody_else_can_put_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, owner: int, kept: bool
) -> None:
    """Numba loads what lies in its cache: with ``sudo -E`` $HOME is that of a user who may write there."""
    if owner and os.geteuid() != 0:
        pytest.skip("needs root")
    base = tmp_path / "cache"
    base.mkdir()
    base.chmod(mode)
    if owner:
        os.chown(base, owner, owner)
    monkeypatch.setenv("XDG_CACHE_HOME", str(base))
    assert (cache_folder(ROOT / "mirage" / "simulator" / "kernel") is not None) is kept


def test_code_of_another_kernel_or_text_is_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numba itself would run the stale code of a function whose callee in another file has changed."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    kernel = tmp_path / "kernel"
    kernel.mkdir()
    (kernel / "callee.py").write_text("STEP = 1\n")
    before = cache_folder(kernel)
    assert cache_folder(kernel) == before
    (kernel / "callee.py").write_text("STEP = 2\n")
    assert cache_folder(kernel) != before


@pytest.mark.parametrize("shared", ["mirage", ""])
def test_code_compiled_by_others_is_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = cache_folder(ROOT / "mirage" / "simulator" / "kernel")
    assert folder is not None
    place = tmp_path / shared if shared else folder
    place.chmod(0o777 if shared else 0o777 | stat.S_ISVTX)
    assert cache_folder(ROOT / "mirage" / "simulator" / "kernel") is None


def test_code_compiled_below_a_directory_of_another_user_is_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner of a directory in the path can replace what root has made in it."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / ".cache"))
    assert cache_folder(ROOT / "mirage" / "simulator" / "kernel") is not None
    os.chown(home, 4711, 4711)
    assert cache_folder(ROOT / "mirage" / "simulator" / "kernel") is None
