"""One user posts hostile chains as fast as the API allows while others work: how much longer are cycles?

    python tests/security/hostile_load.py --minutes 5

Run as root: the callers are the accounts ``bob`` (hostile, several processes) and ``alice``. The daemon is a
separate process, on a simulated cluster or, with ``--slurm``, on a real one, where it acts by sudo. A poll of
the simulated queue takes a few milliseconds, one of a real queue some tens, so the same work of the loop is
another share of the cycle. Each phase prints what became of the callers' requests and three times:

- ``mean_cycle_s``: the whole cycle. It contains the decisions on the hostile user's own chains (at most a
  hundred), so it grows with what that user may have stored; quotas and half of the interval bound it.
- ``others_s``: from the start of a cycle until the last chain of the other user was decided and the first of its
  commands was applied. This is what the other user notices: owners whose chains take little time come first.
- ``loop_cpu_s``: CPU time of the loop's thread per cycle, without what it waited for other threads and processes.

The hundred chains that the hostile user may have make the queue longer, as any user's jobs do: a second phase,
``stored``, has them and no request. On a machine without idle cores the hostile processes themselves slow the
daemon, as any user's can who shares the machine: a last phase, ``busy``, has as many processes of the same user
burn as much CPU time without a request. The last lines have the ratios of the attacked phase to each of the
others. With ``--cpu`` the times of ``others_s`` are CPU time of the loop's thread.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import pwd
import re
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGES = sysconfig.get_path("purelib")
TESTS = Path(__file__).resolve().parents[1]
HOSTILE, MODEST = "bob", "alice"
PROCESSES = 8
MAIN = "from mirage.cli.main import main; main()"
CPU = """
import time
from mirage.control.permits import Turns
Turns.__init__.__defaults__ = (None, time.thread_time)
"""
SIMULATED = (
    'cluster = {backend = "simulated", simulated = {cluster = "demo", trace = "generated:demo:1", rate = 60}}'
)
CONFIG = """
service = {{state = "{0}/state", runtime = "{0}/run"}}
{1}
loop = {{interval = 60, predictor = "quantile"}}
log = {{level = "debug", format = "json"}}
"""


class Line(http.client.HTTPConnection):
    """HTTP on the daemon's socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("mirage", timeout=60)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(str(self.path))


def ask(path: Path, method: str, target: str, document: object = None) -> tuple[int, bytes]:
    with contextlib.closing(Line(path)) as line:
        body = None if document is None else json.dumps(document)
        line.request(method, target, body, {"Content-Type": "application/json"} if body else {})
        answer = line.getresponse()
        return answer.status, answer.read()


def chain(chain_id: str, **more: object) -> dict[str, object]:
    batch = {"text": "#!/bin/sh\nsleep 100000\n", "directory": "/tmp"}
    request: dict[str, object] = {"name": "svc", "nodes": 1, "limit": 7_200, "batch": batch}
    size = more.pop("size", 0)
    batch["text"] += "#" * int(str(size))
    return {"chain_id": chain_id, "name": chain_id, "request": request | more}


def hostile(path: Path, until: float, out: Path, number: int) -> None:
    """Large scripts, short links, absurd numbers, foreign predictors, queries: as fast as the answers arrive."""
    told: Counter[int] = Counter()
    k = number * 1_000_000
    while time.time() < until:
        k += 1
        wrong = [
            chain(f"e{k}", limit=60),
            chain(f"e{k}", size=4_000_000),
            chain(f"e{k}", nice=-(10**30)),
            chain(f"e{k}") | {"predictor": f"average:{'9' * 5_000}"},
            chain(f"e{k}") | {"predictor": f"fixed:{k}s"},
            chain(f"e{k}", memory_mb_per_node=10**30),
        ]
        with contextlib.suppress(OSError, http.client.HTTPException):
            told[ask(path, "POST", "/api/v1/chains", wrong[k % len(wrong)])[0]] += 1
            told[ask(path, "GET", f"/api/v1/predictions?nodes={k % 50 + 1}")[0]] += k % 20 == 0
    out.write_text(json.dumps(told))


def burn(until: float, share: float) -> None:
    """Use this share of a CPU, in slices as short as those of a request."""
    while time.time() < until:
        began = time.process_time()
        while time.process_time() - began < 0.005:
            pass
        time.sleep(0.005 * (1 / max(share, 0.005) - 1))


def become(user: str) -> None:
    entry = pwd.getpwnam(user)
    os.setgroups([])
    os.setgid(entry.pw_gid)
    os.setuid(entry.pw_uid)


def forked(user: str, work, *arguments: object) -> int:
    """The process that does it as this user."""
    child = os.fork()
    if child == 0:
        try:
            become(user)
            work(*arguments)
        finally:
            os._exit(0)
    return child


def modest(path: Path, until: float, out: Path) -> None:
    """The attacker's chains, paused and resumed every two seconds."""
    done, latencies = Counter[str](), []
    for k in range(5):
        ask(path, "POST", "/api/v1/chains", chain(f"work{k}"))
    turn = 0
    while time.time() < until:
        turn += 1
        began = time.time()
        command = "pause" if turn % 2 else "resume"
        try:
            status = ask(path, "POST", f"/api/v1/chains/work{turn // 2 % 5}/{command}")[0]
        except (OSError, http.client.HTTPException) as error:
            done[type(error).__name__] += 1
        else:
            done[str(status)] += 1
        latencies.append(time.time() - began)
        time.sleep(2)
    latencies.sort()
    median, worst = latencies[len(latencies) // 2], latencies[-1]
    out.write_text(json.dumps({"answers": done, "median_s": round(median, 2), "worst_s": round(worst, 2)}))


def cycles(path: Path) -> tuple[float, float]:
    """(count, seconds) of all cycles until now."""
    text = ask(path, "GET", "/metrics")[1].decode()
    found = {}
    for kind in ("count", "sum"):
        values = re.findall(rf"^mirage_cycle_duration_seconds_{kind}\S* (\S+)", text, re.M)
        found[kind] = sum(map(float, values))
    return found["count"], found["sum"]


def loop_cpu(pid: int) -> float:
    """CPU seconds of the daemon's main thread until now."""
    fields = Path(f"/proc/{pid}/task/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def decided(log: Path, begun: int) -> list[float]:
    """For each cycle logged after ``begun`` bytes: seconds until the modest user's chains were decided."""
    with log.open("rb") as file:
        file.seek(begun)
        lines = [json.loads(line) for line in file if b'"decided_s"' in line]
    return sorted(line["decided_s"][MODEST] for line in lines if MODEST in line["decided_s"])


def phase(
    daemon: int, path: Path, folder: Path, seconds: float, kind: str, share: float = 0.0
) -> dict[str, float]:
    """The times of a phase; prints them with the callers' results. ``share``: CPU of each busy process."""
    log = folder / "log"
    before, begun, cpu, until = cycles(path), log.stat().st_size, loop_cpu(daemon), time.time() + seconds
    reports = {MODEST: folder / f"{MODEST}.{kind}.json"}
    own = forked(MODEST, modest, path, until, reports[MODEST])
    children = []
    if kind == "attacked":
        reports |= {f"{HOSTILE}{k}": folder / f"{HOSTILE}{k}.json" for k in range(PROCESSES)}
        children = [forked(HOSTILE, hostile, path, until, reports[f"{HOSTILE}{k}"], k) for k in range(PROCESSES)]
    elif kind == "busy":
        children = [forked(HOSTILE, burn, until, share) for _ in range(PROCESSES)]
    used = [os.wait4(child, 0)[2] for child in children]
    os.waitpid(own, 0)
    after, others = cycles(path), decided(log, begun)
    count = max(1.0, after[0] - before[0])
    told = {user: json.loads(report.read_text()) for user, report in reports.items() if report.exists()}
    times = {
        "mean_cycle_s": (after[1] - before[1]) / count,
        "others_s": sum(others) / max(1, len(others)),
        "others_median_s": others[len(others) // 2] if others else 0.0,
        "loop_cpu_s": (loop_cpu(daemon) - cpu) / count,
        "callers_cpu": sum(each.ru_utime + each.ru_stime for each in used) / seconds,
    }
    about = {"phase": kind, "cycles": count, "rss_mb": rss_mb(daemon)}
    sys.stdout.write(json.dumps(about | {name: round(value, 4) for name, value in times.items()} | told) + "\n")
    return times


def rss_mb(pid: int) -> int:
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) >> 10 if found else 0


def write_config(folder: Path, cluster: str, owner: str) -> Path:
    """The daemon's configuration, next to the directories that it needs."""
    folder.chmod(0o777)
    for name, mode in (("state", 0o700), ("run", 0o755)):
        (folder / name).mkdir(mode=mode)
        shutil.chown(folder / name, owner)
    config = folder / "mirage.toml"
    config.write_text(CONFIG.format(folder, cluster))
    return config


@contextlib.contextmanager
def simulated(folder: Path, *, cpu: bool) -> Iterator[subprocess.Popen[bytes]]:
    """The daemon of root, on the simulated cluster."""
    config = write_config(folder, SIMULATED, "root")
    argv = [sys.executable, "-c", (CPU if cpu else "") + MAIN, "daemon", "--config", str(config)]
    with (folder / "log").open("wb") as log, subprocess.Popen(argv, stderr=log) as daemon:
        yield daemon


@contextlib.contextmanager
def real(folder: Path, *, cpu: bool) -> Iterator[subprocess.Popen[bytes]]:
    """The daemon of a plain account, on a real Slurm."""
    sys.path[:0] = [str(TESTS), str(TESTS / "live")]
    from acting_modes import DAEMON, as_user, interpreter, sudo_program
    from slurm_testbed import Testbed, state_directory

    with Testbed.start(state_directory("load"), nodes="cpu=4").stopped_after() as testbed:
        sudo_program(testbed, folder)
        acting = f'mode = "sudo", helper = "{folder}/mirage-act"'
        cluster = f'cluster = {{slurm_conf = "{testbed.conf}", clock = "{testbed.clock}"}}\nacting = {{{acting}}}'
        config = write_config(folder, cluster, DAEMON)
        inside = f'mount --bind {folder}/sudoers.d /etc/sudoers.d && exec "$@"'
        argv = ["unshare", "--mount", "--propagation", "private", "sh", "-c", inside, "sh", *as_user(DAEMON)]
        argv += [interpreter(DAEMON), "-c", (CPU if cpu else "") + MAIN, "daemon", "--config", str(config)]
        environment = testbed.plain_environment(DAEMON) | {
            "PYTHONPATH": os.pathsep.join([str(TESTS.parent), PACKAGES])
        }
        with (
            (folder / "log").open("wb") as log,
            subprocess.Popen(argv, stderr=log, cwd="/", env=environment) as daemon,
        ):
            yield daemon


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--cpu", action="store_true", help="Count CPU time of the loop's thread for others_s.")
    parser.add_argument("--slurm", action="store_true", help="Start a real Slurm for the daemon.")
    given = parser.parse_args()
    seconds = given.minutes * 60
    with (
        tempfile.TemporaryDirectory() as name,
        (real if given.slurm else simulated)(Path(name), cpu=given.cpu) as daemon,
    ):
        folder = Path(name)
        path = folder / "run" / "api.sock"
        try:
            while not path.exists():
                if daemon.poll() is not None:
                    sys.exit((folder / "log").read_text())
                time.sleep(0.2)
            time.sleep(3)
            calm = phase(daemon.pid, path, folder, min(60.0, seconds), "calm")
            hot = phase(daemon.pid, path, folder, seconds, "attacked")
            stored = phase(daemon.pid, path, folder, min(120.0, seconds), "stored")
            busy = phase(daemon.pid, path, folder, min(60.0, seconds), "busy", hot["callers_cpu"] / PROCESSES)
            for kind, base in (("calm", calm), ("stored", stored), ("busy", busy)):
                ratios = {each: round(hot[each] / base[each], 2) for each in base if base[each]}
                sys.stdout.write(json.dumps({f"attacked to {kind}": ratios}) + "\n")
        finally:
            daemon.terminate()


if __name__ == "__main__":
    main()
