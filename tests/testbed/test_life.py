"""A testbed's life: started twice, stopped and started again, broken, ended with all it has started."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from slurm_testbed import PROGRAM, NoTestbed, Testbed, free_ports, state_directory

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("test_life")]
HOLD = ["sbatch", "--parsable", "-t", "600", "-o", "/dev/null", "--wrap", "sleep 10h"]


@pytest.fixture
def own() -> Iterator[Testbed]:
    """A small testbed of the test's own, at another speed than the shared one."""
    try:
        testbed = Testbed.start(
            state_directory("life"), speed=120, nodes="cpu=1,a100=1", conf_lines=["MaxJobCount=77"]
        )
    except NoTestbed as missing:
        if os.environ.get("CI") == "true":
            pytest.fail(str(missing))
        pytest.skip(f"no Slurm to test on: {missing}")
    with testbed.stopped_after():
        yield testbed


def processes_of(directory: Path) -> list[str]:
    """Command lines of living processes that have a file of the testbed open or were started from it."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                links = [(process / "exe").readlink(), *(fd.readlink() for fd in (process / "fd").iterdir())]
            except OSError:
                continue
            if any(str(link).startswith(f"{directory}/") for link in links):
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return found


def start_again(own: Testbed, *options: str) -> subprocess.CompletedProcess[str]:
    settings = json.loads((own.directory / "settings.json").read_text())
    argv = [
        "start",
        "--dir",
        own.directory,
        "--speed",
        "120",
        "--nodes",
        settings["nodes"],
        "--conf-line",
        "MaxJobCount=77",
    ]
    argv += ["--base-port", str(settings["base_port"]), *options]
    return subprocess.run([sys.executable, PROGRAM, *argv], capture_output=True, text=True, check=False)


def test_life(own: Testbed) -> None:
    # 1. As asked for; started again it says so, unless something else is asked for.
    assert "MaxJobCount             = 77" in own.ask("scontrol", "show", "config")
    again = start_again(own)
    assert (again.returncode, again.stderr.strip()) == (0, f"already running in {own.directory}")
    other = start_again(own, "--priority-flags", "ACCRUE_ALWAYS")
    assert other.returncode == 1
    assert "priority_flags is '', asked for 'ACCRUE_ALWAYS'; stop it first" in other.stderr
    # 2. A node that fails loses its job, and what the job ran.
    job = own.run(own.users[0], [*HOLD, "-p", "a100", "--no-requeue"]).stdout.strip()
    own.wait_until(lambda: own.ask("squeue", "-h", "-j", job, "-o", "%T").strip() == "RUNNING", 30, "the job")
    own.node("a100-001", "down")
    own.wait_until(
        lambda: own.ask("squeue", "-h", "-t", "all", "-j", job, "-o", "%T").strip() == "NODE_FAIL", 30, job
    )
    own.wait_until(
        lambda: not any(line.startswith("slurmstepd:") for line in processes_of(own.directory)), 30, "its end"
    )
    own.node("a100-001", "resume")
    # 3. Stopped and started it continues where it was; its clock never goes back.
    kept = own.run(own.users[0], [*HOLD, "-H", "-p", "cpu"]).stdout.strip()
    own.run(own.users[0], [*HOLD, "-p", "cpu"])
    before = own.now()
    own.stop(wipe=False)
    assert processes_of(own.directory) == []
    started = start_again(own)
    assert started.returncode == 0, started.stderr
    back = Testbed.attach(own.directory)
    assert back.now() >= before
    assert "CANCELLED" in back.ask("scontrol", "show", "job", kept)
    # 4. A controller that is paused is woken to be stopped.
    back.service("slurmctld", "pause")
    assert "slurmctld                paused" in back.picture()
    back.stop()
    assert processes_of(own.directory) == []
    assert not own.directory.exists()


def test_a_step_that_hangs_keeps_no_node_from_the_next_test(own: Testbed) -> None:
    job = own.run(own.users[0], [*HOLD, "-p", "cpu"]).stdout.strip()
    seen = ["squeue", "-h", "-t", "all", "-j", job, "-o", "%T"]
    own.wait_until(lambda: own.ask(*seen).strip() == "RUNNING", 30, "the job")
    # slurmctld says RUNNING before slurmd has started the step.
    own.wait_until(lambda: bool(steps_of(own.directory)), 30, "its step")
    for pid in steps_of(own.directory):
        os.kill(pid, signal.SIGSTOP)
    own.ask("scancel", job)
    own.wait_until(lambda: own.ask(*seen).strip() == "COMPLETING", 30, "a job that does not end")
    own.reset()
    assert set(own.ask("sinfo", "-h", "-t", "idle", "-N", "-o", "%N").split()) == {"a100-001", "cpu-001"}
    assert own.queue() == []


def steps_of(directory: Path) -> list[int]:
    """Process IDs of the slurmstepds of the testbed in ``directory``."""
    return [int(pid.name) for pid in Path("/proc").iterdir() if pid.name.isdigit() and is_step(pid, directory)]


def is_step(process: Path, directory: Path) -> bool:
    """Whether it is a slurmstepd of the testbed in ``directory``."""
    try:
        files = [str(fd.readlink()) for fd in (process / "fd").iterdir()]
        return (process / "comm").read_text().startswith("slurmstepd") and any(
            name.startswith(f"{directory}/") for name in files
        )
    except OSError:
        return False


HOLDER = """
import os, signal, sys
from onehost.clockkeeper import Semaphore
Semaphore(sys.argv[1]).take()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_who_is_killed_with_the_clock_in_hand_stops_nobody(own: Testbed) -> None:
    name = own.environment()["FAKETIME_SHARED"].split()[0]
    for _ in range(3):
        argv = [sys.executable, "-c", HOLDER, name]
        holder = subprocess.run(argv, env=os.environ | {"PYTHONPATH": str(PROGRAM.parent)}, check=False)
        assert holder.returncode == -signal.SIGKILL
        assert "cpu-001" in own.ask("sinfo", "-hN")
    job = own.run(
        own.users[0], ["sbatch", "--parsable", "-p", "cpu", "-t", "5", "-o", "/dev/null", "--wrap", "true"]
    )
    seen = ["squeue", "-h", "-t", "all", "-o", "%T", "-j", job.stdout.strip()]
    own.wait_until(lambda: own.ask(*seen).strip() == "COMPLETED", 60, "a job on the freed clock")


def test_it_ends_with_the_process_that_wanted_it() -> None:
    directory = state_directory("orphan")
    script = (
        "import os, pathlib, signal, slurm_testbed as s\n"
        f"t = s.Testbed.start(pathlib.Path({str(directory)!r}), nodes='cpu=1')\n"
        "with t.stopped_after(): os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[1])}
    subprocess.run([sys.executable, "-c", script], env=environment, check=False)
    end = time.monotonic() + 60
    while directory.exists() and time.monotonic() < end:
        time.sleep(0.2)
    assert not directory.exists()
    assert processes_of(directory) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become an ordinary user")
def test_an_ordinary_user_has_one_without_accounting(own: Testbed, tmp_path: Path) -> None:
    """``own`` is there for its users. The program is copied, because other users may not see the checkout."""
    user = pwd.getpwnam(own.users[0])
    place = Path(f"/tmp/mirage-user-{os.getpid()}")
    shutil.copytree(PROGRAM.parent, place / "program")
    for path in (place, *place.rglob("*")):
        os.chown(path, user.pw_uid, user.pw_gid)
    program = str(place / "program" / "testbed")
    directory = ["--dir", str(place / "t")]
    try:
        port = str(free_ports())
        own.run(
            user.pw_name, [program, "start", *directory, "--speed", "60", "--nodes", "v100=2", "--base-port", port]
        )
        conf = {"SLURM_CONF": str(place / "t" / "etc" / "slurm.conf")}
        wanted = [
            "sbatch",
            "--wait",
            "-p",
            "v100",
            "-N2",
            "--gres=gpu:v100:4",
            "-t",
            "5",
            "-o",
            "/dev/null",
            "--wrap",
            "id",
        ]
        own.run(user.pw_name, wanted, env=conf, plain=True)
        shown = own.run(user.pw_name, ["squeue", "-h", "-t", "all", "-o", "%T %u %b"], env=conf).stdout
        assert shown.replace("gres/", "gres:").split() == ["COMPLETED", user.pw_name, "gres:gpu:v100:4"]
        own.run(user.pw_name, [program, "wipe", *directory])
        assert processes_of(place / "t") == []
    finally:
        own.run(user.pw_name, [program, "stop", *directory])
        shutil.rmtree(place)
