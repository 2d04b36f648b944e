"""The wrapper around a user's script: the script sees what it sees without."""

from __future__ import annotations

import os
import stat
import subprocess
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirage.domain.job import JobId, JobState
from mirage.slurm.batchscript import SBATCH_LINE, read_directives
from mirage.slurm.wrapper import Gate, gated, unwrapped, with_arguments, wrap

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def run(
    script: str, folder: Path, *arguments: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    path = folder / "slurm_script"
    path.write_text(script, errors="surrogateescape")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    variables = os.environ | {"TMPDIR": str(folder), "MIRAGE_HANDOVER_FILE": str(folder / "ready")}
    variables |= environment or {}
    nothing = subprocess.DEVNULL
    return subprocess.run([path, *arguments], capture_output=True, check=False, env=variables, stdin=nothing)


arguments = st.lists(st.text(st.characters(min_codepoint=1, max_codepoint=0x24F), max_size=8), max_size=4)
LOOKS = Gate(JobId(1), 0, "/no/such file", (JobState.FAILED, JobState.CANCELLED), warn_lead=60, limit=3_600)
FUNCTION = {"BASH_FUNC_module%%": "() {  echo loaded $*\n}"}
SPEAKS = r"""#!/bin/bash
printf '%s\n' "$0" "${BASH_SOURCE[0]}" "$@"
module cuda
env | sort
ls /proc/self/fd
echo loud >&2
"""


@settings(max_examples=25)
@given(arguments=arguments, body=st.text(st.characters(min_codepoint=32, max_codepoint=0x24F), max_size=40))
def test_a_wrapped_script_gets_its_arguments_and_is_unchanged(
    tmp_path_factory: pytest.TempPathFactory, arguments: list[str], body: str
) -> None:
    folder = tmp_path_factory.mktemp("job")
    script = (
        "#!/usr/bin/env python3\nimport sys\nprint(ascii((open(sys.argv[0]).read(), sys.argv[1:])))\n# " + body
    )
    done = run(wrap(script, "false"), folder, *arguments)
    assert done.stdout.decode() == ascii((script + "\n", arguments)) + "\n", done.stderr
    assert [path.name for path in folder.iterdir()] == ["slurm_script"]


@pytest.mark.parametrize("around", [lambda script: wrap(script, "false"), lambda script: gated(script, LOOKS)])
def test_a_wrapped_script_is_the_batch_shell_itself(tmp_path: Path, around: Callable[[str], str]) -> None:
    script = "#!/bin/bash -e\ntrap 'echo told; exit 7' USR1\n[ \"$1\" = 'a b' ]\nkill -USR1 $$\nsleep 60\n"
    done = run(around(script), tmp_path, "a b")
    assert (done.returncode, done.stdout) == (7, b"told\n"), done.stderr


def test_a_wrapped_script_sees_what_it_sees_without(tmp_path: Path) -> None:
    plain = run(SPEAKS, tmp_path, "a b", "", environment=FUNCTION)
    for wrapped in (
        run(wrap(SPEAKS, "false"), tmp_path, "a b", "", environment=FUNCTION),
        run(with_arguments(SPEAKS, ("a b", "")), tmp_path, environment=FUNCTION),
        run(with_arguments(wrap(SPEAKS, "false"), ("a b", "")), tmp_path, environment=FUNCTION),
        run(gated(SPEAKS, LOOKS), tmp_path, "a b", "", environment=FUNCTION),
        run(gated(wrap(SPEAKS, "false"), LOOKS), tmp_path, "a b", "", environment=FUNCTION),
    ):
        assert (wrapped.stdout, wrapped.stderr) == (plain.stdout, plain.stderr)
    assert b"\nloaded cuda\n" in plain.stdout
    assert plain.stderr == b"loud\n"
    assert plain.stdout.startswith(str(tmp_path / "slurm_script").encode())


def test_a_wrapped_script_runs_where_its_file_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "chmod").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "bin" / "chmod").chmod(0o755)
    environment = FUNCTION | {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    done = run(wrap(SPEAKS, "false"), tmp_path, "a b", environment=environment)
    assert done.stdout.startswith(b"/dev/fd/3\n/dev/fd/3\na b\nloaded cuda\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bin", "slurm_script"]


def test_a_wrapped_script_of_four_megabytes_is_unchanged(tmp_path: Path) -> None:
    script = "#!/bin/bash\ncksum <$0\n" + "# \udcff a line of a comment\n" * 170_000
    plain = run(script, tmp_path)
    assert len(script) > 4_000_000
    assert run(wrap(script, "false"), tmp_path).stdout == plain.stdout
    assert run(gated(script, LOOKS), tmp_path).stdout == plain.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
@pytest.mark.parametrize("size", [100, 200_000])
@pytest.mark.parametrize("shell", ["/bin/sh", "/bin/bash"])
def test_a_wrapped_script_runs_where_its_folder_for_temporary_files_is_full(
    tmp_path: Path, shell: str, size: int
) -> None:
    full = tmp_path / "full"
    full.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "none", full], check=True)
    try:
        (full / "filler").write_bytes(b"x" * 4096)
        script = f"#!{shell}\necho ran $1\nexit 5\n" + "#" * size + "\n"
        done = run(gated(script, LOOKS), tmp_path, "x", environment={"TMPDIR": str(full)})
        assert (done.returncode, done.stdout, done.stderr) == (5, b"ran x\n", b"")
        assert [path.name for path in full.iterdir()] == ["filler"]
    finally:
        subprocess.run(["umount", full], check=True)


@pytest.mark.parametrize("options", ["noclobber", "errexit:nounset", "noclobber:pipefail:errexit"])
def test_a_wrapped_script_runs_under_options_of_the_shell_that_submitted_it(tmp_path: Path, options: str) -> None:
    done = run(gated("#!/bin/bash\necho ran\nexit 5\n", LOOKS), tmp_path, environment={"SHELLOPTS": options})
    assert (done.returncode, done.stdout) == (5, b"ran\n"), done.stderr


@pytest.mark.parametrize("name", ["cat", "exec", "rm", "mktemp", "chmod", "sleep", "timeout", "exit"])
def test_a_function_of_the_user_takes_the_place_of_no_command(tmp_path: Path, name: str) -> None:
    function = {f"BASH_FUNC_{name}%%": "() {  echo mine\n}"}
    done = run(gated("#!/bin/bash\necho ran\ncommand exit 5\n", LOOKS), tmp_path, environment=function)
    assert (done.returncode, done.stdout) == (5, b"ran\n"), done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["slurm_script"]


@pytest.mark.parametrize(("restarts", "left"), [("0", True), ("", True), ("1", False)])
def test_a_requeued_job_is_not_ready_by_what_its_last_run_said(tmp_path: Path, restarts: str, left: bool) -> None:
    ready = tmp_path / "ready"
    ready.touch()
    script = gated(f"#!/bin/sh\n[ -e {ready} ]\n", LOOKS)
    done = run(script, tmp_path, environment={"SLURM_RESTART_COUNT": restarts})
    assert (done.returncode, done.stderr) == (0 if left else 1, b"")


def test_the_health_command_announces_readiness(tmp_path: Path) -> None:
    ready, up = tmp_path / "new" / "svc.2.ready", tmp_path / "up"
    script = f"#!/bin/sh\ntouch '{up}'\nuntil [ -e '{ready}' ]; do sleep 0.05; done\necho taken over\n"
    done = run(wrap(script, f"test -e '{up}'"), tmp_path, environment={"MIRAGE_HANDOVER_FILE": str(ready)})
    assert done.stdout == b"taken over\n", done.stderr
    assert ready.exists()


def test_the_health_command_is_no_child_of_the_script(tmp_path: Path) -> None:
    """A supervisor that waits for any child would see it."""
    waits = "try:\n    print(os.waitpid(-1, os.WNOHANG))\nexcept ChildProcessError:\n    print('none')\n"
    script = f"#!/usr/bin/python3\nimport os\n{waits}"
    assert run(wrap(script, "sleep 1; false"), tmp_path).stdout == b"none\n"


def test_a_ready_file_that_cannot_be_made_is_reported_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    environment = {"MIRAGE_HANDOVER_FILE": str(tmp_path / "file" / "svc.2.ready")}
    script = f"#!/bin/sh\nuntil [ -e '{tmp_path}/xxx' ]; do /bin/sleep 0.1; done\n"
    third = f"cd '{tmp_path}'; if [ -e xx ]; then >xxx; elif [ -e x ]; then >xx; else >x; fi"
    done = run(wrap(script, third), tmp_path, environment=environment)
    assert done.stderr.decode().count("svc.2.ready") == 1


def test_health_is_watched_where_the_path_has_no_commands(tmp_path: Path) -> None:
    """Without a pause it would keep a CPU busy."""
    count = f"echo x >>{tmp_path}/count; false"
    run(wrap("#!/bin/sh\n/bin/sleep 2\n", count), tmp_path, environment={"PATH": "/nonexistent"})
    assert (tmp_path / "count").read_text() == "x\n"


def test_readiness_is_not_announced_through_a_link_that_another_user_laid(tmp_path: Path) -> None:
    victim, up, mirage = tmp_path / "victim", tmp_path / "up", tmp_path / ".mirage"
    victim.write_text("precious")
    mirage.mkdir()
    (mirage / "svc.2.ready").symlink_to(victim)
    script = f"#!/bin/sh\nwhile [ ! -e '{up}' ]; do sleep 0.05; done\nsleep 0.5\n"
    run(wrap(script, f"touch '{up}'"), tmp_path, environment={"MIRAGE_HANDOVER_FILE": str(mirage / "svc.2.ready")})
    assert victim.read_text() == "precious"


def test_a_link_that_looks_first_keeps_its_directives(tmp_path: Path) -> None:
    head = "#!/usr/bin/env python3\n# a comment\n#SBATCH --mem=1G  # why\n\n#SBATCH -J 'a b'\n"
    script = f"{head}print(1)\n#SBATCH --mem=2G\n"
    looks = gated(script, Gate(JobId(1), done_code=0))
    words = [word.text for word in read_directives(looks, SBATCH_LINE, "").words]
    assert words == ["--mem=1G", "-J", "a b"] == [w.text for w in read_directives(script, SBATCH_LINE, "").words]
    assert run(looks, tmp_path).stdout == b"1\n"


SCRIPTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), max_size=200)


@given(
    SCRIPTS, st.lists(st.sampled_from(["gate", "arguments", "health"]), max_size=3), st.lists(SCRIPTS, max_size=3)
)
def test_wrappers_are_taken_off_again(text: str, kinds: list[str], words: list[str]) -> None:
    script = wrapped = f"#!/bin/sh\n{text}"
    for kind in kinds:
        if kind == "gate":
            wrapped = gated(wrapped, LOOKS)
        elif kind == "arguments":
            wrapped = with_arguments(wrapped, words)
        else:
            wrapped = wrap(wrapped, "true")
    found = unwrapped(wrapped)
    if not kinds:
        assert found is None
        return
    assert found is not None
    assert (found.script, found.gated) == (script, "gate" in kinds)
    assert found.arguments == (tuple(words) if "arguments" in kinds else ())
