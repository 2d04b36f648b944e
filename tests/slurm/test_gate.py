"""The lines by which a link that was queued ahead sees that the chain is over, run by the shells that run them."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from mirage.domain.job import JobId, JobState
from mirage.slurm.wrapper import Gate, gated

if TYPE_CHECKING:
    from pathlib import Path

HOUR = 3_600
JOB = JobId(4711)
RUNS = 5
"""The exit code of the script itself."""
FAILURES = (JobState.FAILED, JobState.OUT_OF_MEMORY)
DONE = Gate(JOB, done_code=0)
STOP = Gate(JOB, done_code=0, stops=(*FAILURES, JobState.NODE_FAIL, JobState.CANCELLED))
WARNED = Gate(JOB, done_code=0, stops=FAILURES, warn_lead=600, limit=HOUR)


def squeue(folder: Path, answer: str) -> dict[str, str]:
    """The environment of a link on a node where ``squeue`` answers so, if it is asked for this job alone."""
    known = 'case " $* " in *" --jobs=4711 "*) ;; *) exit 1 ;; esac\n[ -z "$SQUEUE_PARTITION" ] || exit 0\n'
    (folder / "squeue").write_text(f"#!/bin/sh\n{known}{answer}\n")
    (folder / "squeue").chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}", "TMPDIR": str(folder), "SQUEUE_PARTITION": "other"}


def code_of(gate: Gate, folder: Path, answer: str, shell: str = "/bin/sh", **variables: str) -> int:
    """The exit code of a link that looks first; its script, if it runs, has the arguments and is quiet."""
    script = folder / "slurm_script"
    script.write_text(gated(f'#!{shell}\n[ "$*" = "a b" ] && [ -z "$mirage_state" ] && exit {RUNS}\n', gate))
    script.chmod(0o755)
    environment = squeue(folder, answer) | variables
    done = subprocess.run([script, "a", "b"], capture_output=True, text=True, check=False, env=environment)
    assert done.stdout == ""
    assert ("4711" in done.stderr) == (done.returncode != RUNS), done.stderr
    return done.returncode


def job(state: str, code: int | str = 0, start: object = 1000, end: object = 2000, limit: str = "1:00:00") -> str:
    """One line of ``squeue --Format``."""
    return f"echo '{state:>20}{code:>12}{start!s:>24}{end!s:>24}{limit:>20}'"


@pytest.mark.parametrize("shell", ["/bin/sh", "/bin/bash"])
@pytest.mark.parametrize(
    ("gate", "answer", "code"),
    [
        (DONE, job("COMPLETED"), 0),
        (DONE, job("COMPLETED", end=1000), 0),
        (DONE, job("TIMEOUT"), RUNS),
        (DONE, job("FAILED", 256), RUNS),
        (DONE, job("CANCELLED"), RUNS),
        (DONE, job("COMPLETING"), RUNS),
        (DONE, job("PENDING", start="N/A", end="N/A"), RUNS),
        (DONE, "echo Invalid job id specified >&2; exit 1", RUNS),
        (DONE, "exit 127", RUNS),
        (DONE, "echo COMPLETEDX", RUNS),
        (STOP, job("FAILED", 256), 1),
        (STOP, job("OUT_OF_MEMORY"), 1),
        (STOP, job("NODE_FAIL"), 1),
        (STOP, job("PREEMPTED"), RUNS),
        (STOP, job("CANCELLED"), 1),
        (STOP, job("CANCELLED", end=1000), RUNS),
        (STOP, job("CANCELLED", start="N/A", end="N/A"), RUNS),
        (STOP, job("RUNNING"), RUNS),
        (Gate(JOB, done_code=1, stops=(JobState.CANCELLED,)), job("CANCELLED"), 2),
        (Gate(JOB, done_code=3), job("FAILED", 3 << 8), 3),
        (Gate(JOB, done_code=3), job("FAILED", 3), RUNS),
        (Gate(JOB, done_code=3), job("COMPLETED"), RUNS),
        (Gate(JOB, done_code=3, stops=FAILURES), job("FAILED", 256), 1),
        (Gate(JOB, done_code=3), job("FAILED", "3:0"), 3),
        (DONE, job("COMPLETED", "0:0"), 0),
        (STOP, job("CANCELLED", "0:15"), 1),
        (WARNED, job("COMPLETED"), 0),
        (WARNED, job("FAILED", 256), 1),
        (WARNED, job("FAILED", 256, end=1000 + HOUR - 661), 1),
        (WARNED, job("FAILED", 256, end=1000 + HOUR - 660), RUNS),
        (WARNED, job("COMPLETED", end=1000 + HOUR - 600), RUNS),
        (WARNED, job("FAILED", 256, limit="2:00:00"), RUNS),
        (WARNED, job("FAILED", 256, start="Unknown"), RUNS),
    ],
)
def test_link_runs_unless_the_one_before_has_ended_the_chain(
    tmp_path: Path, gate: Gate, answer: str, code: int, shell: str
) -> None:
    assert code_of(gate, tmp_path, answer, shell) == code


@pytest.mark.parametrize("shell", ["/bin/sh", "/bin/bash"])
@pytest.mark.parametrize(
    ("gate", "states", "code"),
    [
        (Gate(JOB, alone=True), ("SUSPENDED", "SUSPENDED", "RUNNING", "COMPLETING", "COMPLETED"), RUNS),
        (Gate(JOB, alone=True), ("RUNNING", "DOWN", "DOWN", "RUNNING", "TIMEOUT"), RUNS),
        (Gate(JOB, alone=True), ("SUSPENDED", "DOWN", "GONE"), RUNS),
        (Gate(JOB, alone=True), ("DOWN", "TIMEOUT"), RUNS),
        (Gate(JOB, alone=True, bound=True), ("DOWN", "DOWN", "TIMEOUT"), RUNS),
        (Gate(JOB, alone=True, bound=True), ("DOWN", "RUNNING", "GONE"), RUNS),
        (Gate(JOB, done_code=0, alone=True, bound=True), ("DOWN", "COMPLETED"), 0),
        (Gate(JOB, alone=True, bound=True), ("GONE",), RUNS),
        (Gate(JOB, done_code=0, alone=True), ("SUSPENDED", "RUNNING", "COMPLETED"), 0),
        (Gate(JOB, alone=True), ("TIMEOUT",), RUNS),
        (Gate(JOB, alone=True), ("SUSPENDED", "GONE"), RUNS),
        (Gate(JOB, alone=True), ("STOPPED", "CONFIGURING", "SIGNALING", "RESIZING", "TIMEOUT"), RUNS),
        (Gate(JOB, alone=True), ("RUNNING", "STOPPED", "NEW_STATE_OF_SLURM", "CANCELLED"), RUNS),
        (Gate(JOB, alone=True), ("STAGE_OUT",), RUNS),
        (Gate(JOB, alone=True), ("REQUEUE_HOLD",), RUNS),
    ],
)
def test_link_of_one_writer_waits_until_the_one_before_is_over(
    tmp_path: Path, gate: Gate, states: tuple[str, ...], code: int, shell: str
) -> None:
    """Its nodes are free while that one is suspended; a Slurm that is away for a while does not release it."""
    done = waited(tmp_path, gate, states, shell, {})
    assert done.returncode == code, done.stderr
    waits = len(states) - 1 if gate.bound or states[0] != "DOWN" else 0
    assert done.stdout.split() == ([str(waits)] if code == RUNS else [])
    assert ("waits for its end" in done.stderr) == bool(waits)


def waited(
    tmp_path: Path, gate: Gate, states: tuple[str, ...], shell: str, variables: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """A gated link while the job before is in these states in turn; its script prints how often it waited."""
    for name, text in (("sleep", "#!/bin/sh\necho x >>$TMPDIR/slept\n"), ("slurm_script", "")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "slept").touch()
    failures = {
        "DOWN": "{ echo slurm_load_jobs error: Unable to contact slurm controller >&2; exit 1; }",
        "GONE": "{ echo slurm_load_jobs error: Invalid job id specified >&2; exit 1; }",
    }
    # Slurm 24.11 and newer print an exit code with the signal.
    told = [failures.get(state, f"{{ {job(state, '0:0')}; exit 0; }}") for state in states]
    answers = "".join(f'[ "$n" != {k} ] || {text}\n' for k, text in enumerate(told))
    answer = f'n=$(wc -l <"$TMPDIR/slept")\n{answers}'
    script = tmp_path / "slurm_script"
    script.write_text(gated(f"#!{shell}\necho $(wc -l <$TMPDIR/slept)\nexit {RUNS}\n", gate))
    environment = squeue(tmp_path, answer) | variables
    return subprocess.run([script], capture_output=True, text=True, check=False, env=environment, timeout=60)


@pytest.mark.parametrize("shell", ["/bin/sh", "/bin/bash"])
@pytest.mark.parametrize(
    "own",
    [
        "echo squeue: error: -o and -O options are incompatible >&2; exit 1",
        'echo "$JOB cpu    train R 1:00 n1"',
        "kill -9 $$",
        'echo "== QUEUE 7 of $(hostname) 4 ==" ; exec "$TMPDIR/squeue" "$@"',
    ],
)
def test_squeue_of_the_users_own_is_not_believed(tmp_path: Path, own: str, shell: str) -> None:
    """One in the user's PATH prints other columns, or fails: the next one in the path is asked."""
    users = tmp_path / "a b*"
    users.mkdir()
    (users / "squeue").write_text(f"#!/bin/sh\n{own}\n")
    (users / "squeue").chmod(0o755)
    states = ("RUNNING", "DOWN", "TIMEOUT")
    path = f"{users}:{tmp_path}:{os.environ['PATH']}"
    done = waited(tmp_path, Gate(JOB, alone=True, bound=True), states, shell, {"PATH": path})
    assert (done.returncode, done.stdout.split()) == (RUNS, [str(len(states) - 1)]), done.stderr


@pytest.mark.parametrize(
    "options",
    [
        {"SHELLOPTS": "nounset"},
        {"SHELLOPTS": "errexit:nounset:noclobber:noglob"},
        {"SHELLOPTS": "errexit:posix"},
        {"SHELLOPTS": "errexit:nounset", "BASHOPTS": "inherit_errexit"},
    ],
    ids=lambda options: "-".join(options.values()),
)
@pytest.mark.parametrize("states", [("SUSPENDED", "DOWN", "RUNNING", "GONE"), ("RUNNING", "DOWN", "COMPLETED")])
def test_gate_waits_under_any_shell_options_of_the_environment(
    tmp_path: Path, states: tuple[str, ...], options: dict[str, str]
) -> None:
    done = waited(tmp_path, Gate(JOB, alone=True), states, "/bin/bash", options)
    assert (done.returncode, done.stdout.split()) == (RUNS, [str(len(states) - 1)]), done.stderr
    assert "unbound" not in done.stderr


@pytest.mark.parametrize(
    ("limit", "spelled"),
    [(1_800, "30:00"), (36_000, "10:00:00"), (2 * 86_400, "2-00:00:00"), (90_000, "1-01:00:00")],
)
def test_limits_are_compared_as_slurm_spells_them(tmp_path: Path, limit: int, spelled: str) -> None:
    gate = Gate(JOB, stops=FAILURES, warn_lead=60, limit=limit)
    assert code_of(gate, tmp_path, job("FAILED", 256, limit=spelled)) == 1


def test_what_its_owner_asks_squeue_by_default_hides_nothing(tmp_path: Path) -> None:
    assert code_of(DONE, tmp_path, job("COMPLETED"), SQUEUE_PARTITION="x", SQUEUE_FORMAT="%i") == 0


def test_done_file_that_is_there_ends_the_link_before_its_script(tmp_path: Path) -> None:
    done = tmp_path / "it's done"
    gate = Gate(JOB, done_file=str(done))
    assert code_of(gate, tmp_path, "exit 1") == RUNS
    done.touch()
    script = tmp_path / "slurm_script"
    script.write_text(gated(f"#!/bin/sh\nexit {RUNS}\n", gate))
    ended = subprocess.run([script], check=False, capture_output=True, text=True)
    assert ended.returncode == 0
    assert str(done) in ended.stderr


def test_script_runs_where_the_folder_for_temporary_files_is_missing(tmp_path: Path) -> None:
    assert code_of(DONE, tmp_path, job("TIMEOUT"), TMPDIR=str(tmp_path / "not there")) == RUNS


@pytest.mark.parametrize("shell", ["/bin/sh", "/bin/bash"])
@pytest.mark.parametrize("path", ["", "/nonexistent"])
def test_script_runs_where_its_path_has_no_commands(tmp_path: Path, shell: str, path: str) -> None:
    script = tmp_path / "slurm_script"
    script.write_text(gated(f'#!{shell}\necho "<$PATH> $1"\nexit {RUNS}\n', STOP))
    script.chmod(0o755)
    done = subprocess.run([script, "a"], capture_output=True, text=True, check=False, env={"PATH": path})
    assert (done.returncode, done.stdout, done.stderr) == (RUNS, f"<{path}> a\n", "")


def test_chain_that_nothing_ends_has_no_lines() -> None:
    assert not Gate(JOB).lines()
    assert not Gate(JOB, done_code=0, warn_lead=600).lines(), "without a known limit nothing is known of warnings"


@pytest.mark.parametrize("shell", ["/bin/sh", "/bin/bash"])
@pytest.mark.parametrize("name", ["plain", "two words", "it's %s $HOME", "-n", "\u00fc"])
def test_a_link_runs_in_its_directory_or_not_at_all(tmp_path: Path, shell: str, name: str) -> None:
    """Slurm starts it in ``/tmp`` where the node lacks the directory."""
    directory, script = tmp_path / "home" / name, tmp_path / "slurm_script"
    environment = squeue(tmp_path, job("TIMEOUT"))

    def run(place: Path, done_code: int | None) -> subprocess.CompletedProcess[str]:
        gate = Gate(JOB, done_code, directory=str(directory))
        script.write_text(gated(f"#!{shell}\npwd -P\nexit {RUNS}\n", gate))
        script.chmod(0o755)
        return subprocess.run([script], capture_output=True, text=True, check=False, cwd=place, env=environment)

    for done_code, code in ((0, 1), (1, 2), (None, 1)):
        missing = run(tmp_path, done_code)
        assert (missing.returncode, missing.stdout) == (code, "")
        assert f"{directory} is missing" in missing.stderr
    directory.mkdir(parents=True)
    for place in (directory, tmp_path):
        found = run(place, 0)
        assert (found.returncode, found.stdout, found.stderr) == (RUNS, f"{directory}\n", "")
