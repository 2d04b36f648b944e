"""The daemon as a plain account, chains of two users, on a real Slurm: by held links and by sudo."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from acting_modes import DAEMON, ROOT, as_user, interpreter, sudo_program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from slurm_testbed import Testbed

PACKAGES = f"{ROOT}{os.pathsep}{sysconfig.get_path('purelib')}"
LINKS = 2
SCRIPT = "#!/bin/sh\nsleep 120\n"
OPTIONS = ("--links", str(LINKS), "--done-exit-code", "none", "-t10", "-pcpu", "-o/dev/null")


def by_release(testbed: Testbed, folder: Path) -> tuple[str, list[str]]:
    """The acting section, and how the daemon is started."""
    del testbed, folder
    return 'mode = "release"', as_user(DAEMON)


def by_sudo(testbed: Testbed, folder: Path) -> tuple[str, list[str]]:
    """The acting section, and how the daemon is started: where the sudoers are the sample's."""
    sudo_program(testbed, folder)
    inside = f'mount --bind {folder}/sudoers.d /etc/sudoers.d && exec "$@"'
    argv = ["unshare", "--mount", "--propagation", "private", "sh", "-c", inside, "sh", *as_user(DAEMON)]
    return f'mode = "sudo"\nhelper = "{folder}/mirage-act"', argv


def by_agent(testbed: Testbed, folder: Path) -> tuple[str, list[str]]:
    """The acting section, and how the daemon is started; users start their agents themselves."""
    del testbed, folder
    return 'mode = "agent"', as_user(DAEMON)


class Service:
    """One daemon, and the command line of its users."""

    def __init__(self, testbed: Testbed, folder: Path, acting: str, start: list[str]) -> None:
        self.testbed = testbed
        self.socket = str(folder / "run" / "api.sock")
        self._folder = folder
        self._agents: list[subprocess.Popen[bytes]] = []
        for name in ("run", "state"):
            (folder / name).mkdir()
            shutil.chown(folder / name, DAEMON, DAEMON)
        (folder / "mirage.toml").write_text(
            f'[service]\nstate = "{folder}/state"\nruntime = "{folder}/run"\n'
            f'[cluster]\nslurm_conf = "{testbed.conf}"\nclock = "{testbed.clock}"\n'
            f'[acting]\n{acting}\n[loop]\ninterval = "60s"\npredictor = "reactive"\n'
            f'[api]\nsocket = "{self.socket}"\n'
        )
        argv = [interpreter(DAEMON), "-m", "mirage", "daemon", "--config", str(folder / "mirage.toml")]
        with (folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [*start, *argv], env=self._environment(DAEMON), cwd="/", stdout=log, stderr=subprocess.STDOUT
            )

    def log(self) -> str:
        return (self._folder / "log").read_text()

    def ask(self, user: str, *argv: str, input: str | None = None) -> Any:  # noqa: A002
        """The document that a command of the user's prints; ``None`` where it fails."""
        command = [interpreter(user), "-m", "mirage", *argv, "--json"]
        done = self.testbed.run(user, command, input, env=self._environment(user), plain=True, check=False)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def start_agent(self, user: str) -> None:
        argv = [*as_user(user), interpreter(user), "-m", "mirage", "agent"]
        log = (self._folder / f"agent-{user}.log").open("wb")
        with log:
            agent = subprocess.Popen(argv, env=self._environment(user), cwd="/", stdout=log, stderr=log)
        self._agents.append(agent)

    def stop(self) -> None:
        for process in (*self._agents, self.process):
            process.terminate()
            process.wait(30)

    def _environment(self, user: str) -> dict[str, str]:
        settings = {"PYTHONPATH": PACKAGES, "MIRAGE_SOCKET": self.socket}
        return self.testbed.plain_environment(user) | settings


@pytest.fixture
def start(privileged_testbed: Testbed) -> Iterator[Callable[..., Service]]:
    folder = privileged_testbed.directory / "service"
    folder.mkdir()
    services: list[Service] = []

    def start(mode: Callable[[Testbed, Path], tuple[str, list[str]]]) -> Service:
        service = Service(privileged_testbed, folder, *mode(privileged_testbed, folder))
        services.append(service)
        privileged_testbed.wait_until(lambda: service.ask("alice", "chains") is not None, 60, "the daemon")
        return service

    yield start
    for service in services:
        service.stop()
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("mode", "stock"), [(by_release, ("--held-links", str(LINKS))), (by_sudo, ())], ids=["release", "sudo"]
)
def test_chains_of_two_users_run_to_their_end(
    start: Callable[..., Service], privileged_testbed: Testbed, mode: Any, stock: tuple[str, ...]
) -> None:
    service = start(mode)
    ids = {}
    for user in ("alice", "bob"):
        made = service.ask(user, "submit", *OPTIONS, *stock, input=SCRIPT)
        assert made is not None, service.log()
        ids[user] = made["id"]

    def ended() -> bool:
        return all(service.ask(user, "chain", "show", ids[user])["status"] == "done" for user in ids)

    privileged_testbed.wait_until(ended, 240, "the chains' end")
    jobs = privileged_testbed.ask("squeue", "-h", "-a", "-t", "all", "-o", "%u %T %k").splitlines()
    for user, chain_id in ids.items():
        links = [f"{user} COMPLETED mirage:{chain_id}:{index}" for index in range(1, LINKS + 1)]
        assert sorted(job for job in jobs if chain_id in job) == links
    assert service.ask("bob", "chain", "show", ids["alice"]) is None, "chains are their owner's"


@pytest.fixture
def private() -> Iterator[Path]:
    """Like a home that no other account may enter."""
    folder = Path(tempfile.mkdtemp(prefix="mirage-private-"))
    shutil.chown(folder, "alice", "alice")
    folder.chmod(0o700)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("mode", [by_agent, by_sudo], ids=["agent", "sudo"])
def test_a_done_file_in_a_private_directory_ends_the_chain(
    start: Callable[..., Service], privileged_testbed: Testbed, private: Path, mode: Any
) -> None:
    service = start(mode)
    if mode is by_agent:
        service.start_agent("alice")
    file = private / "model.done"
    script = f"#!/bin/sh\nsleep 120\ntouch {file}\n"
    options = ("--links", "9", "--done-exit-code", "none", "--done-file", str(file))
    made = service.ask("alice", "submit", *options, "-t10", "-pcpu", "-o/dev/null", input=script)
    assert made is not None, service.log()

    def over() -> bool:
        return service.ask("alice", "chain", "show", made["id"])["status"] != "active"

    privileged_testbed.wait_until(over, 240, "the chain's end")
    shown = service.ask("alice", "chain", "show", made["id"])
    assert (shown["status"], shown["files_unknown"]) == ("done", "")
    assert str(file) in shown["reason"], "and not because all its links have run"


def test_a_done_file_that_no_account_of_the_daemons_may_see_is_refused(
    start: Callable[..., Service], private: Path
) -> None:
    service = start(by_release)
    options = ("--held-links=2", "--done-file", str(private / "model.done"), "-t10", "-pcpu", "-o/dev/null")
    assert service.ask("alice", "submit", *OPTIONS, *options, input=SCRIPT) is None
    private.chmod(0o711)
    assert service.ask("alice", "submit", *OPTIONS, *options, input=SCRIPT) is not None


def test_plain_sbatch_becomes_a_chain_of_the_user_whose_agent_runs(
    start: Callable[..., Service], privileged_testbed: Testbed
) -> None:
    """The daemon's account can read neither user's script; bob has no agent."""
    service = start(by_agent)
    service.start_agent("alice")
    script = f"#!/bin/sh\n#MIRAGE {' '.join(OPTIONS[:4])}\nsleep 4000\n"
    jobs = {}
    for user in ("alice", "bob"):
        argv = ["sbatch", "--parsable", "-t90", "-pcpu", "-o/dev/null", f"--job-name={user}s"]
        jobs[user] = int(privileged_testbed.run(user, argv, script, plain=True).stdout)
    privileged_testbed.wait_until(lambda: service.ask("alice", "chains")["chains"], 240, "the chain")
    (made,) = service.ask("alice", "chains")["chains"]
    assert made["links"][0]["job_id"] == jobs["alice"]

    def over() -> bool:
        return service.ask("alice", "chain", "show", made["id"])["status"] != "active"

    privileged_testbed.wait_until(over, 240, "the chain's end")
    assert service.ask("alice", "chain", "show", made["id"])["status"] == "done"
    rows = privileged_testbed.ask("squeue", "-h", "-a", "-t", "all", "-o", "%u %k").splitlines()
    assert sorted(row for row in rows if made["id"] in row) == [
        f"alice mirage:{made['id']}:{index}" for index in range(1, LINKS + 1)
    ]
    assert service.ask("bob", "chains")["chains"] == []
