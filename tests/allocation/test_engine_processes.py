"""The whole command on this machine, with real processes: what they see, how they end, agents that are killed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mirage.allocation.engine.status import bars, most_at_once, read_status
from mirage.allocation.engine.step_supervisor import StepSupervisors, leftovers
from mirage.allocation.engine.steps import Launch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


from mirage.allocation.engine.journal import JournalReader, StateFolder
from mirage.allocation.engine.task_states import TaskStates

PATIENCE = 120.0
# The policy is another test's matter: without it nothing has to be compiled.
MAIN = """
import sys
import mirage.cli.allocation as run
from allocation.engine_world import first_fit, preempting
from mirage.allocation.engine.dependencies import AgentSettings as Settings
run._policy = lambda *_, preempt=False, **__: Settings(preempting() if preempt else first_fit, preempt)
from mirage.cli.main import main
main()
"""


class Runs:
    """Commands that are over, one way or another, when the test is."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[subprocess.Popen[str]] = []

    def write(self, text: str) -> Path:
        file = self.folder / "tasks.toml"
        file.write_text(text)
        return file

    def start(
        self, *options: str, devices: int | None = 2, file: str = "tasks.toml", **environment: str
    ) -> subprocess.Popen[str]:
        argv = [sys.executable, "-c", MAIN, "allocation", "run", file, *options]
        argv += [] if devices is None else [f"--devices={devices}"]
        tests = str(Path(__file__).resolve().parents[1])
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "MIRAGE_"))}
        child = subprocess.Popen(
            argv,
            cwd=self.folder,
            env=clean | {"PYTHONPATH": f"{tests}:{Path(tests).parent}"} | environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(child)
        return child

    def finish(self, child: subprocess.Popen[str]) -> tuple[int, str]:
        _, said = child.communicate(timeout=PATIENCE)
        return child.returncode, said

    def ledger(self) -> TaskStates:
        ledger = TaskStates()
        ledger.fold(JournalReader(StateFolder(self.state)).news())
        return ledger

    @property
    def state(self) -> Path:
        return self.folder / ".mirage" / "tasks"

    def until(self, predicate: Callable[[], Any], what: str) -> None:
        end = time.monotonic() + PATIENCE
        while not predicate():
            assert time.monotonic() < end, f"waited for {what}"
            time.sleep(0.05)

    def results(self, name: str) -> list[str]:
        return [str(a.ended.result) if a.ended else "open" for a in self.ledger().of(name)]

    def kill_all(self) -> None:
        for child in self.started:
            child.kill()
            child.wait()
            assert child.stderr is not None
            child.stderr.close()
        for path in self.state.glob("claims/*"):
            for pid in leftovers(self.state / "steps" / path.name):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    found = Runs(tmp_path)
    yield found
    found.kill_all()


def tasks(*entries: tuple[str, str, str]) -> str:
    """Id, script and further lines of each."""
    return "".join(f"[[task]]\nid = '{name}'\nscript = '''{script}'''\n{more}\n" for name, script, more in entries)


def lines(path: Path) -> Sequence[str]:
    return sorted(path.read_text().split()) if path.exists() else []


def test_tasks_run_on_their_devices_and_the_exit_code_says_how(runs: Runs) -> None:
    runs.write(
        tasks(
            ("one", "echo $CUDA_VISIBLE_DEVICES", ""),
            ("two", "echo $CUDA_VISIBLE_DEVICES/$MIRAGE_RANK", "devices = 2\nranks = 'device'"),
            ("none", 'echo "<$CUDA_VISIBLE_DEVICES>"', "devices = 0"),
            ("bad", "exit 7", ""),
        )
    )
    code, said = runs.finish(runs.start())
    assert code == 1
    assert "bad.1: failed: exit code 7" in said
    logs = runs.state / "logs"
    assert lines(logs / "two.log") == ["0,1/0", "0,1/1"]
    assert lines(logs / "none.log") == ["<>"]
    assert (logs / "one.log").read_text().strip() in ("0", "1")
    assert max(most_at_once(bars(runs.ledger())).values()) == 1.0
    status = json.loads((runs.state / "status.json").read_text())
    assert status["over"]
    assert status["counts"]["succeeded"] == 3
    assert read_status(runs.state, 0.0)["tasks"] == status["tasks"]


def test_all_mistakes_come_before_anything_starts(runs: Runs) -> None:
    runs.write(tasks(("a", "touch started", ""), ("b", "true", "devices = 3"), ("c", "true", "kinds = ['tpu']")))
    code, said = runs.finish(runs.start())
    assert code == 1
    assert "task 'b': devices: 3 on one node; at most 2 suitable" in said
    assert "task 'c': kinds: tpu not found here" in said
    assert not (runs.folder / "started").exists()
    assert not runs.state.exists()


@pytest.mark.parametrize("rounds", [1, 3])
def test_an_agent_killed_with_9_loses_nothing_and_runs_nothing_twice(runs: Runs, rounds: int) -> None:
    """Each task notes its start and end; the notes show a device that two tasks use at the same time."""
    script = (
        "mkdir held.$CUDA_VISIBLE_DEVICES || echo twice >>wrong; echo b$MIRAGE_TASK >>marks; sleep 0.5;"
        " echo e$MIRAGE_TASK >>marks; rmdir held.$CUDA_VISIBLE_DEVICES"
    )
    count = 12
    runs.write(tasks(*((f"t{i}", script, "") for i in range(count))))
    for round_ in range(1, rounds + 1):
        child = runs.start()
        runs.until(lambda least=2 * round_: len(lines(runs.folder / "marks")) >= least, "some tasks")
        child.kill()
        child.communicate()
    code, said = runs.finish(runs.start())
    assert code == 0, said
    assert lines(runs.folder / "marks") == sorted(f"{mark}t{i}" for i in range(count) for mark in "be")
    assert not (runs.folder / "wrong").exists()
    assert max(most_at_once(bars(runs.ledger())).values()) == 1.0
    assert all(set(runs.results(f"t{i}")) == {"succeeded"} for i in range(count))


def test_a_restarted_agent_follows_what_its_predecessor_left_running(runs: Runs) -> None:
    runs.write(tasks(("a", "touch ready; while ! [ -e go ]; do sleep 0.1; done; exit 3", "")))
    first = runs.start()
    runs.until((runs.folder / "ready").exists, "the task")
    first.kill()
    first.communicate()
    second = runs.start()
    dead = runs.ledger().of("a")[0].life
    runs.until(lambda: runs.ledger().of("a")[0].life != dead, "the second agent")
    (runs.folder / "go").touch()
    code, said = runs.finish(second)
    assert "a.1: still runs, and is monitored again" in said
    assert (code, runs.results("a")) == (1, ["failed"])
    assert "a.1: failed: exit code 3" in said


def test_a_second_agent_is_refused(runs: Runs) -> None:
    runs.write(tasks(("a", "touch started; sleep 60", "")))
    runs.start()
    runs.until((runs.folder / "started").exists, "the first one's task")
    code, said = runs.finish(runs.start())
    assert code == 1
    assert "already runs these tasks here" in said
    assert runs.results("a") == ["open"]


def test_told_to_end_it_lets_tasks_save_and_the_next_one_goes_on(runs: Runs) -> None:
    saves = "trap 'echo saved >>marks; exit 0' USR1; touch ready; while :; do sleep 0.1; done"
    again = f"if [ $MIRAGE_ATTEMPT = 2 ]; then echo again >>marks; else {saves}; fi"
    runs.write(tasks(("a", again, "checkpoint = { signal = 'USR1', grace = 60 }"), ("b", "true", "after = ['a']")))
    first = runs.start()
    runs.until((runs.folder / "ready").exists, "the task")
    first.send_signal(signal.SIGTERM)
    code, _ = runs.finish(first)
    assert code == 75
    assert lines(runs.folder / "marks") == ["saved"]
    assert runs.results("a") == ["checkpointed"]
    assert runs.finish(runs.start())[0] == 0
    assert lines(runs.folder / "marks") == ["again", "saved"]
    assert runs.results("b") == ["succeeded"]


# All devices are for "low", until "high" may begin, which needs them too and is shorter.
PREEMPTED = """
[[task]]
id = "gate"
devices = 0
expected = 1
script = "while ! [ -e ready ]; do sleep 0.1; done"

[[task]]
id = "low"
devices = 2
expected = 1000
checkpoint = { signal = "USR1", grace = 60, restart = 0 }
script = '''
trap 'saved=yes' USR1
count=$(cat saved 2>/dev/null || echo 0)
echo low$MIRAGE_ATTEMPT.from$count >>marks
while [ "$count" -lt 5 ] || [ $MIRAGE_ATTEMPT = 1 ]; do
  count=$((count + 1)); touch ready; sleep 0.1
  if [ "$saved" ]; then sleep 1; echo 5 >saved; echo low$MIRAGE_ATTEMPT.over >>marks; exit 9; fi
done
echo low$MIRAGE_ATTEMPT.over >>marks
'''

[[task]]
id = "high"
devices = 2
max_nodes = 1
expected = 10
after = ["gate"]
script = "[ $MIRAGE_RANK = 0 ] || exit 0; echo high.begins >>marks; sleep 0.5; echo high.over >>marks"
"""


def check_preempted(runs: Runs, code: int, said: str) -> None:
    assert code == 0, said
    assert (runs.folder / "marks").read_text().split() == [
        "low1.from0", "low1.over", "high.begins", "high.over", "low2.from5", "low2.over",
    ]  # fmt: skip
    assert runs.results("low") == ["preempted", "succeeded"]
    assert max(most_at_once(bars(runs.ledger())).values()) == 1.0
    row = next(row for row in json.loads((runs.state / "status.json").read_text())["tasks"] if row["id"] == "low")
    assert (row["preempted"], row["saving"], row["attempts"]) == (1, False, 2)
    assert "preempted by a task that comes first" in said


def test_who_makes_room_has_ended_before_the_other_begins_and_goes_on_later(runs: Runs) -> None:
    runs.write(PREEMPTED)
    code, said = runs.finish(runs.start("--preempt"))
    check_preempted(runs, code, said)


def test_to_move_means_to_preempt(runs: Runs) -> None:
    runs.write(tasks(("a", "true", "")))
    code, said = runs.finish(runs.start("--move"))
    assert code == 2
    assert "--move" in said
    assert "preempt" in said


@pytest.mark.parametrize("name", ["XCPU", "PROF", "POLL", "ABRT", "RTMIN"])
def test_any_signal_may_tell_to_save_and_nothing_around_the_task_dies_of_it(runs: Runs, name: str) -> None:
    number = int(signal.Signals[f"SIG{name}"])
    saves = f"trap 'sleep 0.5; echo saved >>marks; exit 0' {number}; touch ready; while :; do sleep 0.1; done"
    runs.write(tasks(("a", saves, f"checkpoint = {{ signal = '{name}', grace = 60 }}")))
    child = runs.start()
    runs.until((runs.folder / "ready").exists, "the task")
    child.send_signal(signal.SIGTERM)
    assert runs.finish(child)[0] == 75
    assert lines(runs.folder / "marks") == ["saved"]
    assert runs.results("a") == ["checkpointed"]


def test_every_rank_may_save(runs: Runs) -> None:
    saves = (
        "trap 'echo saved$MIRAGE_RANK >>marks; exit 0' TERM; touch ready$MIRAGE_RANK; while :; do sleep 0.1; done"
    )
    runs.write(tasks(("a", saves, "devices = 2\nranks = 'device'\ncheckpoint = { signal = 'TERM', grace = 60 }")))
    first = runs.start()
    runs.until(lambda: all((runs.folder / f"ready{n}").exists() for n in (0, 1)), "both ranks")
    first.send_signal(signal.SIGTERM)
    assert runs.finish(first)[0] == 75
    assert lines(runs.folder / "marks") == ["saved0", "saved1"]


def test_a_task_that_hangs_and_ignores_everything_is_killed_with_all_it_started(runs: Runs) -> None:
    hangs = "trap '' TERM; setsid sleep 1000 & trap '' INT; while :; do sleep 0.1; done"
    runs.write(tasks(("a", hangs, "time_limit = 1"), ("b", "true", "after = ['a']")))
    code, said = runs.finish(runs.start())
    assert code == 1
    assert "ran longer than its time_limit of 1 s" in said
    assert not leftovers(runs.state / "steps" / "a.1")


def test_what_a_task_leaves_behind_does_not_keep_its_device(runs: Runs) -> None:
    runs.write(tasks(("a", "setsid sleep 1000 & exit 0", ""), ("b", "true", "")))
    assert runs.finish(runs.start(devices=1))[0] == 0
    assert not leftovers(runs.state / "steps" / "a.1")


def test_a_keeper_that_is_killed_takes_nothing_along_that_lives_on(runs: Runs) -> None:
    runs.write(tasks(("a", "touch ready; sleep 1000", "retries = 0")))
    child = runs.start()
    runs.until((runs.folder / "ready").exists, "the task")
    keeper = runs.ledger().of("a")[0].pid
    os.kill(keeper, signal.SIGKILL)
    code, said = runs.finish(child)
    assert code == 1
    assert "a.1: failed" in said
    assert not leftovers(runs.state / "steps" / "a.1")


def test_within_a_chain_the_state_is_where_the_chain_says(runs: Runs) -> None:
    runs.write(tasks(("a", "true", "")))
    named = str(runs.folder / "chains")
    code, said = runs.finish(runs.start(MIRAGE_CHAIN_ID="c-1", MIRAGE_TASKS_STATE=named))
    assert code == 0
    assert (runs.folder / "chains" / "status.json").exists()
    assert not (runs.folder / ".mirage").exists()
    assert "--tasks-state" not in said
    code, said = runs.finish(runs.start("--state=other", MIRAGE_CHAIN_ID="c-1", MIRAGE_TASKS_STATE=named))
    assert code == 0
    assert f"--state is {runs.folder}/other, but the chain was submitted with --tasks-state {named}" in said
    assert (runs.folder / "other" / "status.json").exists()


def test_two_files_do_not_take_each_others_tasks_for_done(runs: Runs) -> None:
    runs.write(tasks(("a", "echo first >>marks", "")))
    assert runs.finish(runs.start("--state=both"))[0] == 0
    (runs.folder / "more.toml").write_text(tasks(("b", "true", ""), ("a", "echo second >>marks", "")))
    code, said = runs.finish(runs.start("--state=both", file="more.toml"))
    assert code == 1
    assert "holds results of task 'a' of tasks.toml" in said
    assert lines(runs.folder / "marks") == ["first"]


def test_within_a_chain_all_over_is_0_and_makes_the_done_file(runs: Runs) -> None:
    runs.write(tasks(("a", "false", "")))
    code, _ = runs.finish(runs.start("--done-file=over", MIRAGE_CHAIN_ID="c-1", MIRAGE_LINK="3"))
    assert code == 0
    assert (runs.folder / "over").exists()
    assert (runs.folder / ".mirage" / "c-1.tasks" / "journal").is_dir()


@pytest.mark.skipif(os.getuid() != 0, reason="a process of another user needs root")
def test_nobody_elses_process_is_taken_for_a_keeper(tmp_path: Path) -> None:
    """A user who reads a supervisor's command line can start a process with the same command line or the same
    mark."""
    path, keepers = tmp_path / "attempt", StepSupervisors()
    launch = Launch("task", path, (), {}, {}, {}, str(tmp_path), tmp_path / "output")
    step = keepers.start(launch, ["sleep", "60"], {}, tmp_path / "output", str(tmp_path))
    try:
        while not Path(f"/proc/{step.pid}/cmdline").read_bytes().startswith(b"/bin/sh\0"):
            time.sleep(0.01)
        argv = Path(f"/proc/{step.pid}/cmdline").read_bytes().split(b"\0")[:-1]
    finally:
        os.kill(step.pid, signal.SIGKILL)
    while keepers.living(step):
        time.sleep(0.01)
    marked = {"MIRAGE_STEP": str(path)}
    with subprocess.Popen([*argv[:4], "/bin/sleep", "60"], user="nobody", extra_groups=[], env=marked) as posing:
        try:
            while Path(f"/proc/{posing.pid}/cmdline").read_bytes().split(b"\0")[:4] != argv[:4]:
                time.sleep(0.01)
            assert posing.pid not in StepSupervisors.find([path]).values()
            assert not StepSupervisors().living(replace(step, pid=posing.pid))
            assert posing.pid not in leftovers(path)
        finally:
            posing.kill()
    for left in leftovers(path):
        os.kill(left, signal.SIGKILL)
