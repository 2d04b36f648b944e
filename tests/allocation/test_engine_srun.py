"""The command within a Slurm job, on executables that stand for Slurm's and break as it does."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from allocation.test_engine_processes import PREEMPTED, Runs, check_preempted, lines, tasks

from mirage.allocation.engine.status import bars, most_at_once
from mirage.allocation.engine.step_supervisor import leftovers

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

FAKE = Path(__file__).with_name("fake_job.py")


class JobRuns(Runs):
    """Runs within job 7: nodes n1 and n2 with four devices each."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.job = folder / "job"
        (self.job / "steps").mkdir(parents=True)
        programs = folder / "bin"
        programs.mkdir()
        for name in ("srun", "squeue", "scancel", "scontrol", "sinfo"):
            program = programs / name
            program.write_text(f"#!{sys.executable} -IS\n" + FAKE.read_text())
            program.chmod(0o755)

    def begin(self, *options: str, **more: str) -> subprocess.Popen[str]:
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        return self.start(*options, devices=None, PATH=path, FAKE_JOB=str(self.job), SLURM_JOB_ID="7", **more)

    def breaks(self, name: str, content: object = "") -> None:
        (self.job / name).write_text(str(content))


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[JobRuns]:
    found = JobRuns(tmp_path)
    yield found
    found.kill_all()


def test_steps_are_pinned_to_nodes_and_devices_in_uneven_shapes(runs: JobRuns) -> None:
    show = "echo $SLURMD_NODENAME/$CUDA_VISIBLE_DEVICES/$MIRAGE_RANK/$MIRAGE_LOCAL_RANK/$MIRAGE_RANKS"
    runs.write(
        tasks(
            ("first", "sleep 3", "devices = 3"),
            ("wide", show, "devices = 5\nmax_nodes = 2\nranks = 'device'"),
            ("here", f"cd sub; {show}; pwd", "devices = 0"),
        )
    )
    (runs.folder / "sub").mkdir()
    code, said = runs.finish(runs.begin("--engine=srun"))
    assert code == 0, said
    assert lines(runs.state / "logs/wide.log") == [
        "n1/3/0/0/5", "n2/0,1,2,3/1/0/5", "n2/0,1,2,3/2/1/5", "n2/0,1,2,3/3/2/5", "n2/0,1,2,3/4/3/5",
    ]  # fmt: skip
    assert lines(runs.state / "logs/here.log") == [str(runs.folder / "sub"), "n1//0/0/1"]
    assert max(most_at_once(bars(runs.ledger())).values()) == 1.0


def test_a_folder_that_is_missing_on_the_node_is_a_failure_not_another_folder(runs: JobRuns) -> None:
    runs.write(tasks(("a", "rmdir gone", ""), ("b", "touch wrong", "after = ['a']\ndirectory = 'gone'")))
    (runs.folder / "gone").mkdir()
    code, _ = runs.finish(runs.begin())
    assert code == 1
    assert [attempt.ended.code for attempt in runs.ledger().of("b") if attempt.ended] == [126]


def test_a_refused_srun_is_said_and_tried_again(runs: JobRuns) -> None:
    runs.breaks("refuse", 1)
    runs.write(tasks(("a", "echo ran >>marks", "")))
    code, said = runs.finish(runs.begin())
    assert code == 0
    assert "a.1: refused: Unable to create step for job 7: Requested node configuration is not available" in said
    assert runs.results("a") == ["refused", "succeeded"]
    assert lines(runs.folder / "marks") == ["ran"]


def test_output_that_no_folder_can_hold_keeps_no_other_task_back(runs: JobRuns) -> None:
    runs.write(tasks(("a", "true", "output = '/proc/nothing/a.log'"), ("b", "echo ran >>marks", "")))
    child = runs.begin()
    runs.until(
        lambda: (runs.results("b"), runs.results("a")[:1]) == (["succeeded"], ["refused"]), "the other task"
    )
    assert child.poll() is None


def test_state_is_closed_to_the_group_whatever_the_umask(runs: JobRuns) -> None:
    """In a project's directory with umask 002 others could otherwise write what decides whether a task is done."""
    os.umask(0o002)
    runs.write(tasks(("a", "umask >mask", "output = 'a.log'")))
    code, said = runs.finish(runs.begin())
    assert (code, lines(runs.folder / "mask")) == (0, ["0002"]), said
    no_content = {"a.1.said", "a.1.ended.0"}
    found = {path.name: path.stat().st_mode & 0o022 for path in runs.state.rglob("*")}
    assert {"a.1.began", "a.1.exit", "a.1", "status.json"} <= found.keys()
    assert {name for name, open_to in found.items() if open_to} <= no_content


def test_a_failing_nodes_tasks_go_elsewhere(runs: JobRuns) -> None:
    runs.write(tasks(("a", "echo $SLURMD_NODENAME >>marks; [ $MIRAGE_ATTEMPT = 2 ] || sleep 1000", "devices = 4")))
    child = runs.begin()
    runs.until(lambda: lines(runs.folder / "marks"), "the step")
    runs.breaks("down", lines(runs.folder / "marks")[0])
    code, said = runs.finish(child)
    assert code == 0, said
    assert runs.results("a") == ["node-failed", "succeeded"]
    assert lines(runs.folder / "marks") == ["n1", "n2"]
    assert "no more tasks start on" in said


def test_what_failed_with_its_node_while_no_agent_ran_has_not_succeeded(runs: JobRuns) -> None:
    """Its srun exited with 0, and Slurm lists its step indefinitely."""
    runs.write(
        tasks(("a", "echo $SLURMD_NODENAME >>marks; [ $SLURMD_NODENAME = n2 ] || sleep 1000", "devices = 4"))
    )
    child = runs.begin()
    runs.until(lambda: lines(runs.folder / "marks"), "the step")
    child.kill()
    child.wait()
    runs.breaks("down", "n1")
    runs.until((runs.state / "steps/a.1.exit").exists, "the end of its srun")
    assert (runs.state / "steps/a.1.exit").read_text() == "0\n"
    code, said = runs.finish(runs.begin())
    assert code == 0, said
    results = runs.results("a")
    assert (results[0], results[-1]) == ("lost", "succeeded")
    assert "n2" in lines(runs.folder / "marks")


def test_0_of_an_srun_whose_ranks_have_not_all_ended_is_not_believed(runs: JobRuns) -> None:
    """So does Slurm 22.05 where a node takes its step along."""
    runs.breaks("lies", 1)
    script = "[ $MIRAGE_RANK = 0 ] || [ $MIRAGE_ATTEMPT = 2 ] || kill -KILL $PPID"
    runs.write(tasks(("a", script, "devices = 2\nranks = 'device'\nretries = 1")))
    code, said = runs.finish(runs.begin())
    assert code == 0, said
    assert runs.results("a") == ["failed", "succeeded"]


def test_0_of_an_srun_whose_step_never_began_is_not_believed(runs: JobRuns) -> None:
    """A node may take a step along before its first process runs."""
    runs.breaks("vanish", 1)
    runs.write(tasks(("a", "echo ran >>marks", "devices = 2")))
    code, said = runs.finish(runs.begin())
    assert code == 0, said
    assert runs.results("a") == ["refused", "succeeded"]
    assert lines(runs.folder / "marks") == ["ran"]


def signal_steps(runs: JobRuns, name: str) -> None:
    """Like Slurm before the limit where --signal comes without B: to all of every step, not to the agent."""
    for file in (runs.job / "steps").iterdir():
        for pid in json.loads(file.read_text())["pids"]:
            os.killpg(pid, signal.Signals[name])


def test_a_task_that_somebody_else_told_to_save_has_not_succeeded(runs: JobRuns) -> None:
    saves = "trap 'echo saved >>marks; exit 0' USR1; touch ready.$MIRAGE_TASK; while :; do sleep 0.1; done"
    again = f"[ $MIRAGE_ATTEMPT = 2 ] || {{ {saves}; }}; echo $MIRAGE_TASK >>marks"
    runs.write(
        tasks(("a", again, "checkpoint = { signal = 'USR1', grace = 60 }"), ("b", again.replace("trap", ": "), ""))
    )
    child = runs.begin()
    runs.until(lambda: len(list(runs.folder.glob("ready.*"))) == 2, "both")
    signal_steps(runs, "SIGUSR1")
    code, said = runs.finish(child)
    assert code == 0, said
    assert runs.results("a") == ["checkpointed", "succeeded"]
    assert runs.results("b") == ["cut-off", "succeeded"]
    assert "a.1: checkpointed: received USR1 from outside" in said
    assert "b.1: cut-off: killed by USR1, which signalled its whole step" in said
    assert lines(runs.folder / "marks") == ["a", "b", "saved"]


def test_what_a_task_sends_itself_says_nothing_about_others(runs: JobRuns) -> None:
    runs.write(
        tasks(
            ("own", "kill -USR1 $$", ""),
            ("tidy", "trap 'trap : TERM; kill 0' EXIT; sleep 1000 & exit 0", "checkpoint = { signal = 'TERM' }"),
        )
    )
    code, said = runs.finish(runs.begin())
    assert code == 1, said
    assert runs.results("own") == ["failed"]
    assert runs.results("tidy") == ["succeeded"]


def test_who_makes_room_is_told_within_its_step_and_goes_on_later(runs: JobRuns) -> None:
    runs.write(PREEMPTED.replace("devices = 2\nmax_nodes = 1", "devices = 8\nmax_nodes = 2"))
    code, said = runs.finish(runs.begin("--preempt"))
    check_preempted(runs, code, said)


def kill_commands(runs: JobRuns, word: str) -> None:
    """Kill the processes of this test that were started as ``word``."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (process / "cmdline").read_text(errors="replace").split("\0")
        except OSError:
            continue
        if word in arguments[:5] and str(runs.folder) in "".join(arguments):
            os.kill(int(process.name), signal.SIGKILL)


def test_a_step_whose_srun_was_killed_is_ended_before_it_is_tried_again(runs: JobRuns) -> None:
    runs.write(tasks(("a", "touch ready; [ $MIRAGE_ATTEMPT = 2 ] || sleep 1000", "retries = 1")))
    child = runs.begin()
    runs.until((runs.folder / "ready").exists, "the step")
    kill_commands(runs, str(runs.folder / "bin/srun"))
    assert leftovers(runs.state / "steps" / "a.1")
    code, said = runs.finish(child)
    assert code == 0, said
    assert runs.results("a") == ["failed", "succeeded"]
    assert not leftovers(runs.state / "steps" / "a.1")


def test_steps_that_alone_are_left_are_found_by_name_and_ended_first(runs: JobRuns) -> None:
    """The agent, its supervisors and sruns were killed, the step lives: it must not run twice."""
    runs.write(tasks(("a", "echo b$MIRAGE_ATTEMPT >>marks; [ $MIRAGE_ATTEMPT = 2 ] || sleep 1000", "")))
    child = runs.begin()
    runs.until(lambda: lines(runs.folder / "marks"), "the step")
    child.kill()
    for word in (str(runs.state / "steps" / "a.1"), str(runs.folder / "bin/srun")):
        kill_commands(runs, word)
    assert leftovers(runs.state / "steps" / "a.1")
    code, said = runs.finish(runs.begin())
    assert code == 0, said
    assert runs.results("a") == ["lost", "succeeded"]
    assert not leftovers(runs.state / "steps" / "a.1")


def test_an_agent_killed_with_9_follows_its_steps_on(runs: JobRuns) -> None:
    runs.write(tasks(("a", "touch ready; while ! [ -e go ]; do sleep 0.1; done; echo once >>marks", "")))
    child = runs.begin()
    runs.until((runs.folder / "ready").exists, "the step")
    child.kill()
    dead = runs.ledger().of("a")[0].life
    second = runs.begin()
    runs.until(lambda: runs.ledger().of("a")[0].life != dead, "the second agent")
    (runs.folder / "go").touch()
    code, said = runs.finish(second)
    assert code == 0, said
    assert lines(runs.folder / "marks") == ["once"]
    assert runs.results("a") == ["succeeded"]


def test_while_the_controller_does_not_answer_nothing_is_believed_to_have_ended(runs: JobRuns) -> None:
    runs.write(tasks(("a", "touch ready; sleep 1; exit 5", ""), ("b", "true", "after = ['a']")))
    child = runs.begin()
    runs.until((runs.folder / "ready").exists, "the step")
    runs.breaks("mute")
    runs.until((runs.state / "steps/a.1.exit").exists, "its end")
    time.sleep(1)
    assert runs.results("a") == ["open"]
    (runs.job / "mute").unlink()
    code, _ = runs.finish(child)
    assert (code, runs.results("a")) == (1, ["failed"])


def test_the_end_of_the_job_is_no_failure_of_its_steps(runs: JobRuns) -> None:
    runs.write(tasks(("a", "[ $MIRAGE_ATTEMPT = 2 ] || kill -TERM $$", "")))
    runs.breaks("state", "COMPLETING")
    assert runs.finish(runs.begin())[0] == 0
    assert runs.results("a") == ["cut-off", "succeeded"]


def test_before_the_limit_of_the_job_tasks_are_told(runs: JobRuns) -> None:
    saves = "trap 'echo saved >>marks; exit 0' USR2; touch ready; while :; do sleep 0.1; done"
    runs.breaks("end", int(time.time()) + 45)
    runs.write(tasks(("a", saves, "checkpoint = { signal = 'USR2', grace = 5, restart = 0 }\nexpected = 1")))
    code, said = runs.finish(runs.begin())
    assert code == 75, said
    assert lines(runs.folder / "marks") == ["saved"]
    assert runs.results("a") == ["checkpointed"]
