"""The packages of ``deploy/package/build``, and the scripts for a site's machine; no environment is built."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tarfile
from typing import TYPE_CHECKING

import pytest
from containers import ROOT

if TYPE_CHECKING:
    from pathlib import Path

BUILD = ROOT / "deploy" / "package" / "build"
SCRIPTS = sorted((ROOT / "deploy" / "package" / "debian").glob("p*"))
NEEDS_DPKG = pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="dpkg-deb is not installed")
NEEDS_RPM = pytest.mark.skipif(shutil.which("rpmbuild") is None, reason="rpmbuild is not installed (Debian: rpm)")


def function(name: str) -> str:
    found = re.search(rf"^{name}\(\) \{{\n.*?^\}}$", BUILD.read_text(), re.MULTILINE | re.DOTALL)
    assert found
    return found[0]


def run(*argv: str | Path, **environment: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env={**os.environ, **environment})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of what the program reads, so that it writes next to that, not into the checkout."""
    for name in ("deploy", "docs"):
        shutil.copytree(ROOT / name, tmp_path / "project" / name)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path / "project" / name)
    return tmp_path / "project"


@pytest.fixture
def tree(project: Path, tmp_path: Path) -> Path:
    """Files to pack: all but the packages of the environment."""
    programs = tmp_path / "tree" / "opt" / "mirage" / "bin"
    pages = programs.parent / "share" / "man" / "man1"  # the wheel brings them
    pages.mkdir(parents=True)
    (pages / "mirage.1").write_text(".TH mirage 1\n")
    programs.mkdir(parents=True)
    (programs / "python3").symlink_to(shutil.which("python3") or "")
    (programs / "mirage").write_text(
        f"#!{programs}/python3\n# -*- coding: utf-8 -*-\nimport sys\nfrom platform import python_version as main\n"
        "if __name__ == '__main__':\n    print(sys.argv[1:], main())\n"
    )
    (programs / "mirage").chmod(0o755)
    (programs.parent / "pyvenv.cfg").write_text(f"home = /usr/bin\ncommand = python3 -m venv {programs}\n")
    script = f"set -eu; work={programs}; name=mirage-slurm\n{function('relocate')}\n{function('add_files')}\n"
    script += f"cd {project}; relocate {tmp_path}/tree {programs.parent}; add_files {tmp_path}/tree"
    run("bash", "-c", script)
    return tmp_path / "tree"


@pytest.mark.parametrize("script", [BUILD, *SCRIPTS], ids=lambda path: path.name)
def test_the_shell_accepts_the_scripts(script: Path) -> None:
    run("bash" if script == BUILD else "sh", "-n", script)
    if shutil.which("shellcheck"):
        run("shellcheck", script)


def test_programs_find_their_environment_wherever_it_is(tree: Path, tmp_path: Path) -> None:
    (tree / "opt" / "mirage").rename(tmp_path / "with blank")
    (tmp_path / "link").symlink_to(tmp_path / "with blank" / "bin" / "mirage")
    for program in (tmp_path / "with blank" / "bin" / "mirage", tmp_path / "link"):
        assert run(program, "a b", "$c").startswith("['a b', '$c'] 3.")


def test_nothing_tells_where_it_was_built(tree: Path, tmp_path: Path) -> None:
    files = [path for path in (tree / "opt").rglob("*") if path.is_file() and not path.is_symlink()]
    assert files
    assert [path for path in files if str(tmp_path) in path.read_text()] == []


@NEEDS_DPKG
def test_the_deb(project: Path, tree: Path) -> None:
    program = project / "deploy" / "package" / "build"
    run(program, "deb", PACKAGE_TREE=str(tree), PACKAGE_PYTHON="python3", PACKAGE_VERSION="9.8.7")
    [package] = (project / "dist").glob("*.deb")
    assert package.name.startswith("mirage-slurm_9.8.7-1_")
    assert re.fullmatch(r"python3\.\d+, procps", run("dpkg-deb", "-f", package, "Depends").strip())
    assert run("dpkg-deb", "-I", package, "conffiles") == "/etc/mirage/mirage.toml\n"
    listed = [line.split(maxsplit=5) for line in run("dpkg-deb", "-c", package).splitlines()]
    assert {line[1] for line in listed} == {"root/root"}
    names = {line[5].split(" -> ")[0].removeprefix(".") for line in listed}
    assert {
        "/usr/bin/mirage",
        "/usr/bin/mbatch",
        "/usr/bin/mirage-act",
        "/usr/lib/systemd/system/mirage.service",
        "/usr/lib/systemd/user/mirage.service",
        "/usr/lib/sysusers.d/mirage.conf",
        "/usr/lib/tmpfiles.d/mirage.conf",
        "/usr/share/doc/mirage-slurm/deploy.md",
        "/usr/share/doc/mirage-slurm/examples/serve.toml",
        "/usr/share/man/man1/mirage-db.1",
        "/opt/mirage/bin/mirage",
    } <= names


def test_the_tar_needs_no_root(project: Path, tree: Path, tmp_path: Path) -> None:
    run(project / "deploy" / "package" / "build", "tar", PACKAGE_TREE=str(tree), PACKAGE_VERSION="9.8.7")
    [package] = (project / "dist").glob("*.tar.gz")
    with tarfile.open(package) as archive:
        archive.extractall(tmp_path / "mine", filter="tar")
    assert run(tmp_path / "mine" / "mirage-slurm-9.8.7" / "bin" / "mirage").startswith("[] 3.")
    assert (tmp_path / "mine" / "mirage-slurm-9.8.7" / "share" / "mirage.toml").exists()


@NEEDS_RPM
def test_the_rpm(project: Path, tree: Path) -> None:
    program = project / "deploy" / "package" / "build"
    run(program, "rpm", PACKAGE_TREE=str(tree), PACKAGE_PYTHON="python3", PACKAGE_VERSION="9.8.7")
    [package] = (project / "dist").glob("*.rpm")
    assert re.search(r"^python3\.\d+$", run("rpm", "-qp", "--requires", package), re.MULTILINE)
    assert run("rpm", "-qpc", package) == "/etc/mirage/mirage.toml\n"
    assert "/opt/mirage/bin/mirage" in run("rpm", "-qpl", package).splitlines()
    scripts = run("rpm", "-qp", "--scripts", package)
    assert "systemd-sysusers mirage.conf" in scripts
    assert "systemctl enable" not in scripts
