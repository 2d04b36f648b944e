"""A link is the job that ``sbatch`` at the user's prompt would have made, in every way of acting, on a real Slurm.

The same script runs by ``sbatch`` and as links 1 and 2 of a chain that ``mirage submit`` made in the same shell.
What each of them sees, and what Slurm shows of it, is compared field by field.
"""

from __future__ import annotations

import contextlib
import http.server
import os
import re
import shlex
import shutil
import socketserver
import subprocess
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import typer
from acting_modes import DAEMON, MODES, ROOT, commands, interpreter
from live_world import TestbedWorld

from mirage.api.access.caller import Caller, Scope
from mirage.api.routes.chaindefinition import read_chain
from mirage.backends.cli import CliCluster
from mirage.backends.cli_actuator import CliActuator
from mirage.backends.operator import OperatorActuator, ReleaseCluster
from mirage.domain.errors import ClusterUnavailable
from mirage.domain.link import NO_JOB

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from slurm_testbed import Testbed

    from mirage.domain.chain import Chain
    from mirage.domain.job import JobId, JobRequest

    Submit = Callable[[JobRequest], JobId]

USER = "alice"
PACKAGES = f"{ROOT}{os.pathsep}{Path(typer.__file__).parents[1]}"
SHELL = r"""
cd {folder} && umask 027 || exit
ulimit -S -n 512 && ulimit -S -s 4096 && ulimit -S -c 0 && ulimit -S -u 3000 && ulimit -S -l 32 || exit
module() {{ echo "module $* 'of' \"$USER\""; }}
export -f module
renice -n 3 $$ >/dev/null || exit
export PYTHONPATH={packages} MIRAGE_SOCKET={socket} SBATCH_ACCOUNT=research
export TRICKY=$'a\nb=c "d" \'e\' $f \\ ü' EMPTY=
{more}
{sbatch} {words} && {python} -m mirage submit --quiet {words}
"""
PROBE = r"""#!/bin/bash
#SBATCH --time=5 --partition=cpu --nodelist=cpu-001 --job-name='a job' --comment=mine --output=%x-%j.out
{
  echo "self: $0 ${BASH_SOURCE[0]}"
  printf 'argument: %q\n' "$@"
  echo "umask: $(umask), nice: $(nice), directory: $(pwd -P)"
  ulimit -S -a
  ulimit -H -a
  id
  echo "input: $(readlink /proc/self/fd/0)"
  echo "ignored signals: $(grep SigIgn /proc/self/status)"
  module load cuda
  cat "$0" | cksum
} >"seen.$SLURM_JOB_ID" 2>&1
tr '\n\0' '\1\n' </proc/$$/environ | sort >"environment.$SLURM_JOB_ID"
mv "seen.$SLURM_JOB_ID" "done.$SLURM_JOB_ID"
"""
OWN_VARIABLES = re.compile(r"(MIRAGE_\w+|SLURM_JOB_?ID|SLURM_TASK_PID|SLURM_JOB_(START|END)_TIME|SHLVL|_)=")
DIFFERENT_EACH_TIME = re.compile(
    r"(JobId|\w*Time|Comment|Priority|LastSchedEval|Scheduler|SubmitLine|AllocNode:Sid|Command)="
)


@dataclass(frozen=True)
class Seen:
    """The job's view, and Slurm's view of it; lines that differ by nature are left out."""

    itself: list[str]
    environment: list[str]
    fields: list[str]


class Sink(socketserver.ThreadingUnixStreamServer):
    """Takes the chain that ``mirage submit`` posts, as a daemon would."""

    body = b""


class Handler(http.server.BaseHTTPRequestHandler):
    server: Sink

    def do_POST(self) -> None:
        self.server.body = self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(b'{"backend": "cli"}')

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Write no access log."""

    def address_string(self) -> str:
        return "local"


class Prompt:
    """A user's shell in a directory of the user's own."""

    def __init__(self, testbed: Testbed, folder: Path) -> None:
        self.testbed = testbed
        self.folder = folder
        self.world = TestbedWorld(testbed)

    def submit(self, *words: str, more: str = "", sbatch: str = "sbatch --parsable") -> tuple[str, Chain]:
        """The job that ``sbatch`` makes, and the chain that ``mirage submit`` describes."""
        address = str(self.folder / "sink")
        with Sink(address, Handler) as sink:
            (self.folder / "sink").chmod(0o666)
            thread = threading.Thread(target=sink.serve_forever)
            thread.start()
            text = SHELL.format(
                folder=self.folder,
                packages=PACKAGES,
                socket=address,
                more=more,
                sbatch=sbatch,
                words=shlex.join(words),
                python=interpreter(USER),
            )
            try:
                done = self.testbed.run(USER, ["bash", "-c", text], plain=True, check=False)
            finally:
                sink.shutdown()
                thread.join()
                (self.folder / "sink").unlink()
        assert done.returncode == 0, done.stderr
        return done.stdout.strip(), read_chain(sink.body, Caller(USER, Scope.OPERATE, 1000), {})

    def seen(self, job: str) -> Seen:
        """The job's view, after it has ended."""
        done = self.folder / f"done.{job}"
        self.testbed.wait_until(done.exists, 60, f"job {job} to end: {self._output()}")
        self.testbed.wait_until(lambda: job not in self.testbed.queue(), 60, f"job {job} to leave the queue")
        environment = (self.folder / f"environment.{job}").read_text(errors="surrogateescape").splitlines()
        scontrol = ["scontrol", "show", "job", job]
        answer = subprocess.run(scontrol, env=self.testbed.environment(), capture_output=True, check=True)
        shown = answer.stdout.decode("utf-8", "surrogateescape")
        shown = re.sub(r"\bCommand=.*?(?=\bWorkDir=)", "", shown, flags=re.DOTALL)
        return Seen(
            [line.replace(f"job{job.zfill(5)}", "JOB") for line in done.read_text(errors="replace").splitlines()],
            [line for line in environment if not OWN_VARIABLES.match(line)],
            [word.replace(f"-{job}.", "-JOB.") for word in shown.split() if not DIFFERENT_EACH_TIME.match(word)],
        )

    def _output(self) -> str:
        return "".join(path.read_text(errors="replace") for path in self.folder.glob("*.out"))


@pytest.fixture
def prompt(privileged_testbed: Testbed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prompt]:
    folder = privileged_testbed.directory / "prompt"
    folder.mkdir()
    os.chown(folder, *(int(privileged_testbed.run(USER, ["id", flag]).stdout) for flag in ("-u", "-g")))
    (folder / "probe.sh").write_text(PROBE)
    yield Prompt(privileged_testbed, folder)
    privileged_testbed.cancel_all()
    shutil.rmtree(folder)


@pytest.fixture
def programs(privileged_testbed: Testbed) -> Iterator[Path]:
    """A directory that every user can look into."""
    path = privileged_testbed.directory / "acting"
    path.mkdir()
    yield path
    shutil.rmtree(path)


@contextlib.contextmanager
def acting(mode: str, testbed: Testbed, folder: Path) -> Iterator[Submit]:
    with contextlib.ExitStack() as stack:
        owner = CliActuator(commands(testbed, USER, folder), USER)
        if mode == "own":
            yield owner.submit
        elif mode == "release":
            operator = OperatorActuator(commands(testbed, DAEMON, folder))
            cluster = ReleaseCluster(
                CliCluster(commands(testbed, DAEMON, folder), TestbedWorld(testbed)), operator
            )
            yield lambda request: release(testbed, owner, cluster, request)
        else:
            yield MODES[mode](testbed, folder, stack).submit


def release(testbed: Testbed, owner: CliActuator, cluster: ReleaseCluster, request: JobRequest) -> JobId:
    """Submitted held by its owner, as ``mirage submit --held-links`` does, and released by the daemon."""
    owner.submit(replace(request, held=True))
    found: list[JobId] = []

    def released() -> bool:
        cluster.snapshot()
        with contextlib.suppress(ClusterUnavailable):
            found.append(cluster.submit(request))
        return bool(found)

    testbed.wait_until(released, 30, "the release")
    return found[0]


def same(prompt: Prompt, submit: Submit, *words: str, more: str = "", but: Sequence[str] = ()) -> Seen:
    """Both links see the same as the job of ``sbatch``, ``but`` for lines that match one of these."""
    job, chain = prompt.submit(*words, more=more)
    plain, previous = prompt.seen(job), NO_JOB
    assert "umask: 0027," in "".join(plain.itself) or more, "the shell's, not the test's"
    for index in (1, 2):
        previous = submit(replace(chain.link_request(index, previous), user=USER))
        link = prompt.seen(str(previous))
        differ = [line for part in ("itself", "environment", "fields") for line in differences(plain, link, part)]
        differ = [line for line in differ if not any(re.search(pattern, line) for pattern in but)]
        assert not differ, "\n".join(["", *differ])
    return plain


def differences(plain: Seen, link: Seen, part: str) -> list[str]:
    ours, theirs = getattr(link, part), getattr(plain, part)
    return [f"sbatch: {line}" for line in theirs if line not in ours] + [
        f"link {line}" for line in ours if line not in theirs
    ]


ARGUMENTS = ("a b", "", "-p", "--epochs=3", "ü 'q' \"d\" $x \\ *", "a\nb")


@pytest.mark.parametrize("mode", ["own", "agent", "release", "sudo", "token"])
def test_link_is_the_job_of_sbatch(prompt: Prompt, programs: Path, mode: str) -> None:
    with acting(mode, prompt.testbed, programs) as submit:
        same(prompt, submit, "probe.sh", *ARGUMENTS)
        same(prompt, submit, "./probe.sh")


INSIDE = "export SLURM_JOB_ID=1 SLURM_JOBID=1 SLURM_NTASKS=7 SLURM_MEM_PER_NODE=1 SLURM_RESTART_COUNT=2"
FOR_LINKS = (r"SLURM_EXPORT_ENV=",)
"""``--export=NONE`` names a link's own variables."""


@pytest.mark.parametrize(
    ("options", "more", "but"),
    [
        (("--export=NONE",), "", FOR_LINKS),
        (("--export=TRICKY,MINE=x",), "", FOR_LINKS),
        (("--propagate=NOFILE",), "", ()),
        (("--propagate=NONE",), "", ()),
        (("--no-requeue", "--nice=7", "--input=/etc/hostname"), "", ()),
        ((), "export RAW=$'\\xff'", ()),
        ((), "export SLURM_UMASK=0007 SBATCH_REQUEUE=1 SBATCH_EXPORT=ALL SLURM_EXPORT_ENV=ALL", ()),
        ((), INSIDE, (r"sbatch: SLURM_(NTASKS|NPROCS|MEM_PER_NODE|RESTART_COUNT)=",)),
    ],
    ids=lambda value: " ".join(value)[:30] if isinstance(value, tuple) else value[:30],
)
def test_link_is_the_job_of_sbatch_with_options(
    prompt: Prompt, programs: Path, options: tuple[str, ...], more: str, but: tuple[str, ...]
) -> None:
    with acting("own", prompt.testbed, programs) as submit:
        same(prompt, submit, *options, "probe.sh", "a b", "\udcfe", more=more, but=but)


@pytest.mark.parametrize(
    "options",
    [
        ("-n2", "-c2", "--ntasks-per-node=2", "--open-mode=append"),
        ("-N1", "--threads-per-core=1", "--ntasks-per-core=1"),
        ("-N1", "--ntasks-per-socket=1", "--sockets-per-node=1"),
    ],
    ids=lambda value: " ".join(value)[:30],
)
def test_link_by_token_has_the_variables_of_options(
    prompt: Prompt, programs: Path, options: tuple[str, ...]
) -> None:
    with acting("token", prompt.testbed, programs) as submit:
        same(prompt, submit, *options, "probe.sh")


def test_link_with_a_health_command_is_the_job_of_sbatch(prompt: Prompt, programs: Path) -> None:
    job, _ = prompt.submit("probe.sh", *ARGUMENTS)
    _, chain = prompt.submit("--health-command=false", "probe.sh", *ARGUMENTS, sbatch="true")
    with acting("own", prompt.testbed, programs) as submit:
        link = prompt.seen(str(submit(replace(chain.link_request(1), user=USER))))
    plain = prompt.seen(job)
    assert [differences(plain, link, part) for part in ("itself", "environment", "fields")] == [[], [], []]


@pytest.mark.parametrize("mode", ["own", "agent", "sudo", "token"])
def test_link_with_the_largest_script_is_the_job_of_sbatch(prompt: Prompt, programs: Path, mode: str) -> None:
    script = PROBE + "# a line of a comment, to fill four megabytes\n" * 91_000
    assert 4_000_000 < len(script) < 4 << 20
    (prompt.folder / "probe.sh").write_text(script)
    with acting(mode, prompt.testbed, programs) as submit:
        same(prompt, submit, "probe.sh")


@pytest.mark.parametrize("mode", ["own", "token"])
def test_link_is_the_job_of_sbatch_where_the_site_decides(prompt: Prompt, programs: Path, mode: str) -> None:
    testbed = prompt.testbed
    conf = testbed.conf.read_text()
    try:
        testbed.conf.write_text(f"{conf}\nJobRequeue=0\nPropagateResourceLimitsExcept=NOFILE\n")
        testbed.ask("scontrol", "reconfigure")
        with acting(mode, testbed, programs) as submit:
            plain = same(prompt, submit, "probe.sh", "a b")
    finally:
        testbed.conf.write_text(conf)
        testbed.ask("scontrol", "reconfigure")
    assert "Requeue=0" in plain.fields
    assert not any("(-n) 512" in line for line in plain.itself)
    assert any("(kbytes, -s) 4096" in line for line in plain.itself)
