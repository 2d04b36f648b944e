"""Commands that end, fail, hang with children, or are not there."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from mirage.backends.execution import ArgumentsRefused, CommandRunner, LaunchSettings
from mirage.domain.errors import ClusterUnavailable


def program(folder: Path, text: str) -> CommandRunner:
    path = folder / "squeue"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return CommandRunner({"PATH": f"{folder}:/usr/bin:/bin", "SLURM_CONF": "/etc/slurm/other.conf"}, timeout=1)


def runs(pid: int) -> bool:
    """Whether the process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_what_is_printed_and_how_it_ends(tmp_path: Path) -> None:
    answer = program(tmp_path, "echo out; echo err >&2; cat; exit 3").run(["squeue"], stdin=b"in\xff")
    assert (answer.status, answer.out, answer.err, answer.said) == (3, "out\nin\udcff", "err\n", "err")


def test_the_environment_is_the_clusters_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JWT", "secret")
    seen = program(tmp_path, "env").run(["squeue"]).out
    assert "SLURM_CONF=/etc/slurm/other.conf" in seen
    assert "SLURM_JWT" not in seen


def test_a_command_that_hangs_takes_its_children_with_it(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    commands = program(tmp_path, f"sleep 600 & echo $! >{pids}; echo $$ >>{pids}; wait")
    with pytest.raises(ClusterUnavailable, match="squeue: no answer within 1 s"):
        commands.run(["squeue"])
    left = [int(pid) for pid in pids.read_text().split()]
    for _ in range(100):  # the kernel needs a moment to bury them
        if not any(runs(pid) for pid in left):
            break
        time.sleep(0.05)
    assert [runs(pid) for pid in left] == [False, False]


def test_a_command_that_prints_for_ever_is_ended(tmp_path: Path) -> None:
    endless = CommandRunner({"PATH": "/usr/bin:/bin"}, timeout=60, most=1 << 20)
    began = time.monotonic()
    with pytest.raises(ClusterUnavailable, match="1 MiB"):
        endless.run(["yes"])
    assert time.monotonic() - began < 20


def test_what_a_users_environment_makes_sbatch_print_is_bounded(tmp_path: Path) -> None:
    with pytest.raises(ClusterUnavailable, match="1 MiB"):
        CommandRunner({"PATH": "/usr/bin:/bin"}, timeout=60).run(["yes"], launch=LaunchSettings())


def test_a_killed_command_says_so(tmp_path: Path) -> None:
    with pytest.raises(ClusterUnavailable, match="squeue: killed by SIGKILL"):
        program(tmp_path, "kill -9 $$").run(["squeue"])


def test_a_command_that_cannot_be_run_says_why(tmp_path: Path) -> None:
    commands = program(tmp_path, "")
    (tmp_path / "squeue").write_text("no program at all")
    with pytest.raises(ClusterUnavailable, match="squeue: cannot be run"):
        commands.run(["squeue"])


@pytest.mark.parametrize(
    ("folder", "entered"), [("a directory; with 'quotes'", True), ("not there", False), ("-", False)]
)
def test_a_command_works_in_the_folder_asked_for_where_there_is_one(
    tmp_path: Path, folder: str, entered: bool
) -> None:
    (tmp_path / "a directory; with 'quotes'").mkdir()
    asked = str(tmp_path / folder)
    answer = program(tmp_path, 'pwd; echo "$1"; env').run(["squeue", "--x"], launch=LaunchSettings(asked))
    place, argument, *environment = answer.out.splitlines()
    assert (place, argument, answer.status) == (asked if entered else "/", "--x", 0)
    assert not any(line.startswith(("OLDPWD", "PWD")) for line in environment if not line.endswith(place))


HERE = LaunchSettings("/")


def open_descriptors() -> list[Path]:
    return sorted(Path("/proc/self/fd").iterdir())


FUNCTION = "() {  echo loaded $*\n}"


def test_launch_keeps_exported_functions_and_raw_bytes(tmp_path: Path) -> None:
    variables = {"BASH_FUNC_module%%": FUNCTION, "a.b": "dot", "RAW": "\udcff", "PATH": "/usr/bin:/bin"}
    commands = program(tmp_path, "")
    (tmp_path / "squeue").write_text("#!/bin/bash\nmodule cuda\ncat /proc/$$/environ\n")
    answer = commands.run(["squeue"], environment=variables, launch=HERE)
    assert answer.out.startswith("loaded cuda\n"), answer.err
    assert {"a.b=dot", "RAW=\udcff"} <= set(answer.out.split("\0"))


def test_launch_gives_script_and_arguments_by_name(tmp_path: Path) -> None:
    script = b"#!/bin/sh\n\xff\n" + b"#" * 4_000_000
    launch = LaunchSettings("/", script=script, arguments=("a b", "", "-p", "ü\udcfe"))
    answer = program(tmp_path, 'printf "<%s>" "$@"; wc -c <"$2"; ls /proc/self/fd').run(
        ["squeue", "--x"], launch=launch
    )
    assert answer.out.startswith(f"<--x></dev/fd/3><a b><><-p><ü\udcfe>{len(script)}\n")
    assert answer.out.split()[-5:-1] == ["0", "1", "2", "3"], "and ls's own"


def test_launch_leaves_signals_at_their_defaults(tmp_path: Path) -> None:
    answer = program(tmp_path, "grep SigIgn /proc/self/status").run(["squeue"], launch=HERE)
    ignored = int(answer.out.split()[1], 16)
    assert [each for each in signal.valid_signals() if ignored >> (each - 1) & 1] == [], "libc keeps 32 and 33"


def test_launch_takes_the_nice_value_asked_for(tmp_path: Path) -> None:
    assert program(tmp_path, "nice").run(["squeue"], launch=LaunchSettings("/", nice=7)).out == "7\n"


def test_launch_leaves_no_descriptor_open(tmp_path: Path) -> None:
    commands, before = program(tmp_path, "exit 1"), open_descriptors()
    commands.run(["squeue"], launch=LaunchSettings("/", script=b"#!/bin/sh\n", arguments=("x",)))
    with pytest.raises(ArgumentsRefused):
        commands.run(["squeue", "x" * 200_000], launch=HERE)
    assert open_descriptors() == before


@pytest.mark.parametrize("launch", [None, HERE])
@pytest.mark.parametrize(
    ("argument", "variables"),
    [
        ("x" * 131_072, {}),
        ("x", {"A": "x" * 131_072}),
        ("x", {f"A{number}": "x" * 100_000 for number in range(100)}),
        ("a\0b", {}),
        ("x", {"A": "a\0b"}),
        ("x", {"A=B": "a"}),
    ],
    ids=["argument", "variable", "environment", "nul", "nul in variable", "name"],
)
def test_arguments_that_the_system_refuses_are_told_apart(
    tmp_path: Path, launch: LaunchSettings | None, argument: str, variables: dict[str, str]
) -> None:
    with pytest.raises(ArgumentsRefused, match="squeue: cannot be run"):
        program(tmp_path, "").run(["squeue", argument], environment=variables, launch=launch)


def test_launch_of_what_is_no_program_says_why(tmp_path: Path) -> None:
    commands = program(tmp_path, "")
    (tmp_path / "squeue").write_text("no program at all")
    with pytest.raises(ClusterUnavailable, match="Exec format error") as caught:
        commands.run(["squeue"], launch=HERE)
    assert not isinstance(caught.value, ArgumentsRefused)
