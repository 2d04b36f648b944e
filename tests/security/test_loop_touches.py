"""The decision loop's thread touches no file, program or code that a user can name; here is what finds it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daemon.daemons import wait_until
from daemon.sites import Site, running_site

import mirage
from mirage.api.access.caller import Caller, Scope
from mirage.api.routes.chaindefinition import read_chain
from mirage.backends import launcher
from mirage.bootstrap.cluster import own_user
from mirage.client.errors import ClientError
from mirage.domain.chain import ChainRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirage.client import Client

RECORDER = Path(__file__).with_name("touch_recorder.py")
MARKER = "namedbyauser"
"""Is part of every path that a user names here."""
VERSION = "0123456789ab"
"""A version in the model registry."""
PREDICTORS = (
    *("average:50", "quantile:0.9", "fixed:6h", "slurm", "lookahead", "xgboost", "ensemble:average+quantile"),
    *(f"xgboost:{VERSION}", f"random-forest:{VERSION}", f"ensemble:average+xgboost:{VERSION}"),
    *(MARKER, f"{MARKER}:x", f"xgboost:/tmp/{MARKER}"),
)
SYSTEM = tuple(
    Path(each)
    for each in (
        *(path for path in sys.path if path),
        *(sys.prefix, sys.base_prefix, Path(mirage.__file__).parents[1]),
        *("/proc/self/mountinfo", "/etc/localtime", "/usr/share/zoneinfo", "/dev/null", "/dev/urandom"),
    )
)
"""Directories and files of the installation and of the system."""
CONFIGURED = ("reactive", "quantile")
"""Predictors of the configuration, which are built again at a reload: the active one and its fallback."""
PACKAGES = ("mirage", "apscheduler", "tzlocal")
"""Packages whose modules the loop's thread may import; none of a predictor's."""
SILENT = ("marshal.loads", "builtins.id", "os.killpg", "socket.__new__", "sqlite3.connect/handle")
"""Code of modules, which is known once it is executed; the children of Slurm's commands; what has no name.

``sqlite3.connect`` itself has the path, and is judged.
"""
CODE_FILE = re.compile(r'file "([^"]+)"')


def chain_document(name: str, place: Path, runs: int = 600, **more: Any) -> dict[str, Any]:
    """A chain in which a user names whatever can be named, in directory ``place``."""
    variables = ("LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME", "BASH_ENV", "SLURM_CONF", "HOME", "TMPDIR", "PWD")
    batch = {
        "text": f"#!{place}/shell\n#SBATCH --chdir={place}/chdir\n#FAKE runs={runs} exit=0\n. {place}/sourced\n",
        "options": [f"--output={place}/%x-%j.out", f"--error={place}/%A_%a.err"],
        "environment": [
            ("PATH", f"{place}/bin:/usr/bin:/bin"),
            *((variable, str(place / variable)) for variable in variables),
            ("BASH_FUNC_module%%", f"() {{ . {place}/module; }}"),
        ],
        "directory": str(place),
        "arguments": [f"{place}/argument", f"--config={place}/config"],
    }
    request = {"name": name, "limit": 172_800, "partition": "cpu", "batch": batch}
    ends = {"exit_code": None, "file": f"{place}/{name}.done", "links": 2}
    common = {"chain_id": name, "name": name, "tasks_state": f"{place}/tasks", "done": ends}
    return common | {"request": request, "handover": {"policy": "when-ready"}} | more


def stored_chains(place: Path) -> Iterator[ChainRecord]:
    """Chains in a database that any predictor's name got into."""
    caller = Caller(own_user(), Scope.OPERATE)
    for number, predictor in enumerate(PREDICTORS):
        document = chain_document(f"stored{number}", place)
        chain = read_chain(json.dumps(document).encode(), caller, {})
        yield ChainRecord(replace(chain, predictor=predictor))


@dataclass
class World:
    """A daemon whose loop is recorded."""

    folder: Path
    site: Site

    @property
    def place(self) -> Path:
        """The directory of all files that users name."""
        return self.folder / MARKER

    def fill(self) -> None:
        """The files that users name exist, and may be read."""
        self.place.mkdir()
        (self.place / "bin").mkdir()
        for command in ("squeue", "sbatch", "python3"):
            (self.place / "bin" / command).write_text("#!/bin/sh\nexit 1\n")
            (self.place / "bin" / command).chmod(0o755)
        model = self.folder / "state" / "models" / "xgboost" / VERSION
        model.mkdir(parents=True)
        (model / "manifest.json").write_text("{}")
        (model / "model.onnx").write_bytes(b"model")
        store = self.site.store()
        for record in stored_chains(self.place):
            store.chains.save(record)
        store.close()

    @contextmanager
    def daemon(self, record: Path, *, spoilt: bool) -> Iterator[subprocess.Popen[bytes]]:
        environment = os.environ | self.site.slurm.environment(own_user())
        words = [str(record), "spoilt" if spoilt else "sound", "daemon", "--config", str(self.site.config)]
        with subprocess.Popen([sys.executable, str(RECORDER), *words], env=environment) as process:
            try:
                yield process
            finally:
                process.kill()

    def play(self, daemon: subprocess.Popen[bytes]) -> None:
        """All requests that a user can send to a daemon."""
        client = self.site.client
        wait_until(lambda: answers(client), "the daemon's answer")
        more: list[dict[str, Any]] = [
            {},
            {"steering": "pin"},
            {"steering": "hold", "runs": 170_000},
            {"handover": {"policy": "none"}},
            *({"predictor": predictor} for predictor in PREDICTORS),
        ]
        for number, changes in enumerate(more):
            with suppress(ClientError):
                client.create_chain(chain_document(f"c{number}", self.place, **changes))
        daemon.send_signal(signal.SIGHUP)
        for predictor in PREDICTORS:
            with suppress(ClientError):
                client.get("/predictions", nodes=1, limit=3_600, predictor=predictor)
        (self.place / "c3.done").touch()
        wait_until(lambda: any(link.job_id for link in client.chain("c2").links), "a link to be cancelled")
        for act in (client.pause, client.resume, client.cancel):
            with suppress(ClientError):
                act("c2")
        gone = ("ended", "lost")
        wait_until(lambda: all(link.state in gone for link in client.chain("c2").links), "the cancellation")
        wait_until(lambda: client.chain("c0").over and client.chain("stored0").over, "the end of the chains")
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(120) == 0


def answers(client: Client) -> bool:
    """The socket is there a moment before the daemon listens at it."""
    with suppress(ClientError):
        client.chains()
        return True
    return False


def touched(folder: Path, *, spoilt: bool) -> tuple[Site, list[list[Any]]]:
    """The accesses of the loop's thread while users requested everything."""
    record = folder / "touched"
    with running_site(folder) as site:
        world = World(folder, site)
        world.fill()
        with world.daemon(record, spoilt=spoilt) as daemon:
            world.play(daemon)
    return site, [json.loads(line) for line in dict.fromkeys(record.read_text().splitlines())]


DAEMONS_OWN = ("heartbeat", "mirage.db", "transactions")
"""Files of the state directory."""


@dataclass(frozen=True)
class Judge:
    """The accesses allowed to the loop's thread; a user can name none of it."""

    site: Site

    def problems(self, events: list[list[Any]]) -> list[str]:
        """The accesses that are not allowed, each with its reason."""
        return [found for event, *arguments in events if (found := self.problem(event, arguments))]

    def problem(self, event: str, arguments: list[Any]) -> str:
        """Why this is not for the loop's thread; empty: it is."""
        if event in SILENT:
            return ""
        if event == "subprocess.Popen":
            return self._program(*arguments[:3])
        if event == "import":
            known = arguments[0].partition(".")[0] in {*sys.stdlib_module_names, *PACKAGES}
            return "" if known else f"imports {arguments[0]}"
        if event == "open" and isinstance(arguments[0], int):
            return ""
        paths = [each for each in arguments if isinstance(each, str) and "/" in each]
        if event == "exec":
            paths = CODE_FILE.findall(arguments[0])
        if event == "compile":
            paths = [arguments[1]]
        problems = filter(None, (self._file(event, path) for path in paths))
        return next(problems, "" if paths else f"{event} {arguments}")

    def _file(self, event: str, path: str) -> str:
        file, state = Path(os.path.normpath(path)), self.site.folder / "state"
        own = (
            state / "heartbeat",
            state / "mirage.db",
            state / "transactions",
            self.site.socket,
            self.site.config,
        )
        configured = (self.site.folder / "conf.d", *(state / "models" / name for name in CONFIGURED))
        if file in own or any(file.is_relative_to(each) for each in (*SYSTEM, self.site.slurm.path, *configured)):
            return ""
        if file.parent == state and file.name.startswith((".heartbeat.", "mirage.db-")):
            return ""
        return f"{event} {path}"

    def _program(self, program: str, words: list[str], directory: str) -> str:
        if directory != "/":
            return f"starts {program} in {directory}"
        launched = program == sys.executable and words[1:4] == ["-I", "-S", launcher.__file__]
        return "" if launched or Path(program).parent == self.site.slurm.path else f"starts {program}"


def test_loop_thread_touches_nothing_that_users_name(tmp_path: Path) -> None:
    site, events = touched(tmp_path, spoilt=False)
    assert Judge(site).problems(events) == []
    seen = {event for event, *_ in events}
    assert {"open", "subprocess.Popen", "os.rename", "os.stat"} <= seen
    programs = {Path(arguments[0]).name for event, *arguments in events if event == "subprocess.Popen"}
    assert {"squeue", "sinfo", "scancel", Path(sys.executable).name} <= programs


def test_spoilt_loop_thread_is_found(tmp_path: Path) -> None:
    site, events = touched(tmp_path, spoilt=True)
    found = "\n".join(Judge(site).problems(events))
    place = tmp_path / MARKER
    for way in (
        f"open {place}/opened",
        f"os.stat {place}/asked",
        f"os.listdir {place}",
        f"os.mkdir {place}/made",
        f"starts /bin/true in {place}",
        f"starts {place}/run",
        f"socket.connect {place}/socket",
        f"imports imported_{MARKER}",
        f"compile {place}/compiled",
        "compile <typed>",
    ):
        assert way in found, way
