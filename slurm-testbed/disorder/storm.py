"""The failures of a round and their times: drawn once from its seed, injected on the real clock."""

from __future__ import annotations

import heapq
import itertools
import os
import signal
import subprocess
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from disorder.mishaps import KINDS, Mishaps
from onehost import services
from onehost.errors import TestbedError

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

    from disorder.people import People
    from keepalive.daemon import Mirage
    from onehost.layout import Layout
    from onehost.settings import Settings

LONGEST = 8.0
"""Real seconds for which a service or node is away."""
BURST = 6
"""Most failing calls in a row."""


@dataclass
class Storm:
    """Failures begin within ``seconds`` real seconds; ``blow`` returns when the last of them is over."""

    mirage: Mirage
    mishaps: Mishaps
    settings: Settings
    layout: Layout
    rng: random.Random
    people: People
    """The users and their actions."""
    kills: list[float] = field(default_factory=list)
    """Real times at which slurmctld was killed."""
    story: list[str] = field(default_factory=list)
    _agenda: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _count: Iterator[int] = field(default_factory=itertools.count)
    _begun: float = 0.0
    _away: str = ""
    """The service that is away; one at a time."""

    def blow(self, seconds: float, faults: int) -> None:
        """Inject ``faults`` failures."""
        kinds = (
            self._daemon_killed,
            self._daemon_stopped,
            self._service_away,
            self._service_away,
            self._node_down,
            self._bad_line,
            self._bad_line,
            self._people_act,
            self._people_act,
            self._people_act,
        )
        for _ in range(faults):
            kind, at, lasts = self.rng.choice(kinds), self.rng.uniform(0, seconds), self._while()
            self._at(at, lambda kind=kind, lasts=lasts: kind(lasts))
        self._begun = time.monotonic()
        while self._agenda:
            at, _, act = heapq.heappop(self._agenda)
            time.sleep(max(0.0, self._begun + at - time.monotonic()))
            try:
                act()
            except (TestbedError, subprocess.SubprocessError) as error:
                self._tell(f"not done: {error}")
        self.mishaps.clear()

    def _daemon_killed(self, lasts: float) -> None:
        process = self.mirage.processes[0]
        if process.poll() is not None:
            return
        self._tell(f"the daemon is killed for {lasts:.1f} s")
        process.kill()
        process.wait()
        self._later(lasts, self._daemon_started)

    def _daemon_started(self) -> None:
        self.mirage.processes.pop(0)
        self.mirage.start_daemon()

    def _daemon_stopped(self, lasts: float) -> None:
        process = self.mirage.processes[0]
        if process.poll() is not None:
            return
        self._tell(f"the daemon is stopped for {lasts:.1f} s")
        os.kill(process.pid, signal.SIGSTOP)
        self._later(lasts, lambda: os.kill(process.pid, signal.SIGCONT) if process.poll() is None else None)

    def _service_away(self, lasts: float) -> None:
        if self._away:
            return
        name = self.rng.choice(("slurmctld", "slurmctld", "slurmdbd"))
        action = self.rng.choice(("kill", "stop", "pause"))
        self._tell(f"{name}: {action} for {lasts:.1f} s")
        services.act(name, action, self.settings, self.layout)
        if (name, action) == ("slurmctld", "kill"):
            self.kills.append(time.time())
        self._away = name
        self._later(lasts, lambda: self._service_back(name, "continue" if action == "pause" else "start"))

    def _service_back(self, name: str, action: str) -> None:
        self._away = ""
        services.act(name, action, self.settings, self.layout)

    def _node_down(self, lasts: float) -> None:
        node = self.rng.choice(self.settings.node_names())
        if self._away:  # no controller to set the node down
            return
        self._tell(f"{node} is down for {lasts:.1f} s")
        services.act_on_node(node, "down", self.settings, self.layout)
        self._later(lasts, lambda: self._node_up(node))

    def _node_up(self, node: str) -> None:
        if self._away:  # wait until it is back
            self._later(1.0, lambda: self._node_up(node))
        else:
            services.act_on_node(node, "resume", self.settings, self.layout)

    def _bad_line(self, lasts: float) -> None:
        del lasts
        kind = self.rng.choice(tuple(KINDS))
        command, times = self.rng.choice(KINDS[kind]), self.rng.randint(1, BURST)
        self._tell(f"the next {times} calls of {command}: {kind}")
        for _ in range(times):
            self.mishaps.befall(command, kind)

    def _people_act(self, lasts: float) -> None:
        if self._away:
            return
        said, undo = self.people.act(self.rng)
        self._tell(said)
        if undo is not None:
            self._later(lasts, undo)

    def _while(self) -> float:
        """Draw a duration: many are short, some long."""
        return 0.3 * (LONGEST / 0.3) ** self.rng.random()

    def _at(self, at: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._agenda, (at, next(self._count), act))

    def _later(self, lasts: float, act: Callable[[], None]) -> None:
        self._at(time.monotonic() - self._begun + lasts, act)

    def _tell(self, what: str) -> None:
        self.story.append(f"{time.monotonic() - self._begun:6.1f} {what}")
