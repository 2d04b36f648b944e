"""Actions of users and administrators: time limits, holds, user limits, drained nodes, edited scripts, garbage."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path

    from keepalive.daemon import Mirage
    from keepalive.surroundings import Surroundings
    from onehost.settings import Settings

ACCOUNT = "research"
GARBAGE_S = 5
_GARBAGE = """
import json, socket, sys, time
path, documents, until = sys.argv[1], json.loads(sys.argv[2]), time.monotonic() + float(sys.argv[3])
while time.monotonic() < until:
    for body in documents:
        with socket.socket(socket.AF_UNIX) as to:
            to.settimeout(5)
            try:
                to.connect(path)
                head = f"POST /api/v1/chains HTTP/1.1\\r\\nHost: m\\r\\nContent-Length: {len(body)}\\r\\n\\r\\n"
                to.sendall(head.encode() + body.encode("utf-8", "surrogatepass"))
                to.recv(4096)
            except OSError:
                pass
        time.sleep(0.05)
"""
_BASE = {
    "name": "garbage",
    "request": {"name": "garbage", "limit": 60, "batch": {"text": "#!/bin/sh\nexit 1\n", "directory": "/"}},
}


@dataclass
class People:
    """Each action returns what was done; what must be undone is kept until ``restore``."""

    around: Surroundings
    mirage: Mirage
    settings: Settings
    _undo: list[tuple[str, Callable[[], object]]] = field(default_factory=list)

    def act(self, rng: random.Random) -> tuple[str, Callable[[], None] | None]:
        """Do something. Returns what was done, and what undoes it; ``None``: nothing to undo."""
        deeds = (
            self._limit_lowered,
            self._limit_raised,
            self._held,
            self._submissions_limited,
            self._drained,
            self._requeued,
            self._scripts_edited,
            self._garbage_posted,
        )
        before = len(self._undo)
        said = rng.choice(deeds)(rng)
        return said, (self._take_back if len(self._undo) > before else None)

    def restore(self) -> None:
        """Undo all actions. Raises ``subprocess.SubprocessError``."""
        while self._undo:
            self._take_back()

    def _take_back(self) -> None:
        if self._undo:
            self._undo[0][1]()
            self._undo.pop(0)

    # Actions

    def _limit_lowered(self, rng: random.Random) -> str:
        """Set the limit to one or two minutes from now: often less than the promised time of a warning."""
        job = self._link(rng, "R")
        if job is None:
            return "no link runs whose time limit could be lowered"
        ran, more = self._squeue(job, "%M"), rng.randint(1, 2)
        if not _RUNNING_TIME.fullmatch(ran):
            return f"job {job}, whose time limit was to be lowered, does not run: {ran!r}"
        minutes = _seconds(ran) // 60 + more
        self._scontrol("update", f"JobId={job}", f"TimeLimit={minutes}")
        return f"the time limit of job {job} is set to {minutes} min"

    def _limit_raised(self, rng: random.Random) -> str:
        job = self._link(rng, "R")
        if job is None:
            return "no link runs whose time limit could be raised"
        more = rng.randint(1, 4)
        self._scontrol("update", f"JobId={job}", f"TimeLimit=+{more}")
        return f"the time limit of job {job} is raised by {more} min"

    def _held(self, rng: random.Random) -> str:
        job = self._link(rng, "PD")
        if job is None:
            return "no link waits that could be held"
        self._scontrol("hold", job)
        self._undo.append((job, lambda: self._release(job)))
        return f"job {job} is held by the administrator"

    def _submissions_limited(self, rng: random.Random) -> str:
        user, limit = rng.choice(("alice", "bob")), rng.randint(1, 2)
        self._limit(user, limit)
        self._undo.append((user, lambda: self._limit(user, -1)))
        return f"{user} may have {limit} jobs"

    def _drained(self, rng: random.Random) -> str:
        node = rng.choice(self.settings.node_names())
        self._scontrol("update", f"NodeName={node}", "State=DRAIN", "Reason=chaos")
        self._undo.append((node, lambda: self._resume(node)))
        return f"{node} is drained"

    def _requeued(self, rng: random.Random) -> str:
        job = self._link(rng, "R")
        if job is None:
            return "no link runs that could be requeued"
        self._scontrol("requeue", job)
        return f"job {job} is requeued"

    def _scripts_edited(self, rng: random.Random) -> str:
        """Links run the submitted script, even if the file changes."""
        scripts: list[Path] = sorted(self.mirage.folder.glob("c*.sh"))
        if not scripts:
            return "no script is left to be deleted"
        script = rng.choice(scripts)
        if rng.random() < 0.5:
            script.unlink()
            return f"{script.name} is deleted"
        script.write_text("#!/bin/sh\nexit 1\n")
        return f"{script.name} is overwritten"

    def _garbage_posted(self, rng: random.Random) -> str:
        del rng
        argv = ["/usr/bin/python3", "-c", _GARBAGE, self.mirage.socket, json.dumps(garbage()), str(GARBAGE_S)]
        self.around.start("carol", argv, self.mirage.folder / "garbage.log")
        return f"carol posts garbage for {GARBAGE_S} s"

    # Implementation

    def _link(self, rng: random.Random, state: str) -> str | None:
        text = self.around.run("root", ["squeue", "-h", "-t", state, "-o", "%A %k"], fast=True)
        ours = [line.split()[0] for line in text.splitlines() if "mirage:" in line]
        return rng.choice(ours) if ours else None

    def _squeue(self, job: str, field_: str) -> str:
        return self.around.run("root", ["squeue", "-h", "-j", job, "-o", field_], fast=True).strip()

    def _scontrol(self, *words: str) -> None:
        self.around.run("root", ["scontrol", *words], fast=True)

    def _release(self, job: str) -> None:
        """Undo it if it still applies: its chain may have ended."""
        try:
            self._scontrol("release", job)
        except subprocess.CalledProcessError as error:
            if "Invalid job" not in error.stderr and "already" not in error.stderr:
                raise

    def _limit(self, user: str, most: int) -> None:
        who = ["where", f"name={user}", f"account={ACCOUNT}"]
        self.around.run(
            "root", ["sacctmgr", "-i", "modify", "user", *who, "set", f"MaxSubmitJobs={most}"], fast=True
        )

    def _resume(self, node: str) -> None:
        states = self.around.run("root", ["sinfo", "-h", "-N", "-n", node, "-o", "%T"], fast=True)
        if "drain" in states:
            self._scontrol("update", f"NodeName={node}", "State=RESUME")


def garbage() -> list[str]:
    """Documents that a daemon should reject, or accept without harm to other users."""
    long = {"predictor": "fixed:" + "9" * 5_000 + "d"}
    huge = {"predictor": "average:9999999999999999999999999"}
    path = {"predictor": "xgboost:/dev/zero"}
    wide = {"request": _BASE["request"] | {"limit": 10**30, "nice": -2_000_000_000}}  # type: ignore[operator]
    return [
        *(json.dumps(_BASE | {"chain_id": f"g{k}"} | each) for k, each in enumerate((long, huge, path, wide))),
        json.dumps(_BASE)[:-1] + ', "lead": NaN}',
        '{"chain_id": "' + "x" * 100_000 + '"}',
        "[" * 10_000,
        "\x00\ud800",
    ]


_RUNNING_TIME = re.compile(r"(\d+-)?\d+(:\d+)+")


def _seconds(text: str) -> int:
    """``[DAYS-]HH:MM:SS`` or ``MM:SS``, as squeue writes how long a job has run."""
    days, _, rest = text.rpartition("-")
    seconds = 0
    for part in rest.split(":"):
        seconds = 60 * seconds + int(part)
    return 86_400 * int(days or 0) + seconds
