"""Random failures: episodes that disturb the cluster for a time, and failures of nodes and links."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from chaos.episodes import Episodes
from chaos.life import StoreMishap
from chaos.line import Mishap

from mirage.domain.command import CancelChain, PauseChain, ResumeChain
from mirage.domain.job import JobState

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirage.domain.chain import ChainId

LONGEST_AWAY = 2 * 3_600
"""Seconds for which anything is away at most."""
LARGEST_JUMP = 1_800


@dataclass
class Weather(Episodes):
    """Failures; after ``clear`` nothing fails any more."""

    daemon_away_until: int = 0
    doomed: str = ""
    """Empty; ``killed`` or ``stopped``: what happens to the daemon before its next cycle."""
    _held: set[int] = field(default_factory=set)

    def plan(self, begin: int, until: int, count: int) -> None:
        """Draw ``count`` failures that begin between ``begin`` and ``until``."""
        self.draw(_KINDS, begin, until, count)

    def clear(self) -> None:
        """All is well from now on, and who had stopped something lets it continue."""
        line, ctld = self.daemon.line, self.ctld
        line.controller_down = line.accounting_down = False
        line.odds, self.daemon.odds, ctld.lag, self.doomed = {}, {}, 0, ""
        self.daemon_away_until = 0
        for node in tuple(ctld.down):
            ctld.node_resume(node)
        for job in ctld.live():
            if job.job_id in self._held and job.held:
                ctld.release(job.job_id)

    # Episodes

    def controller_away(self) -> None:
        line = self.daemon.line
        line.controller_down = True
        self._for(self._while(LONGEST_AWAY), "slurmctld is away", lambda: setattr(line, "controller_down", False))

    def accounting_away(self) -> None:
        line = self.daemon.line
        line.accounting_down = True
        self._for(self._while(LONGEST_AWAY), "slurmdbd is away", lambda: setattr(line, "accounting_down", False))

    def accounting_lags(self) -> None:
        ctld = self.ctld
        ctld.lag = int(self.rng.integers(5, 180))
        self._for(self._while(3_600), f"accounting is {ctld.lag} s behind", lambda: setattr(ctld, "lag", 0))

    def bad_line(self) -> None:
        line, kinds = self.daemon.line, [kind for kind in Mishap if kind is not Mishap.NONE]
        chosen = self.rng.choice(len(kinds), size=int(self.rng.integers(1, 4)), replace=False)
        line.odds = {kinds[int(k)]: float(self.rng.uniform(0.03, 0.3)) for k in chosen}
        words = ", ".join(f"{kind} {share:.0%}" for kind, share in line.odds.items())
        self._for(self._while(3_600), f"a bad line: {words}", lambda: setattr(line, "odds", {}))

    def bad_disk(self) -> None:
        daemon, kinds = self.daemon, list(StoreMishap)
        chosen = self.rng.choice(len(kinds), size=int(self.rng.integers(1, 3)), replace=False)
        daemon.odds = {kinds[int(k)]: float(self.rng.uniform(0.03, 0.5)) for k in chosen}
        words = ", ".join(f"{kind} {share:.0%}" for kind, share in daemon.odds.items())
        self._for(self._while(1_800), f"a bad disk: {words}", lambda: setattr(daemon, "odds", {}))

    def node_fails(self) -> None:
        ctld = self.ctld
        node = ctld.nodes[int(self.rng.integers(len(ctld.nodes)))]
        ctld.node_down(node)
        self._for(self._while(3_600), f"{node} is down", lambda: ctld.node_resume(node))

    def job_is_held(self) -> None:
        ctld = self.ctld
        if job := self._one_of([job for job in ctld.live() if job.tag and job.state is JobState.PENDING]):
            self._held.add(job.job_id)
            ctld.hold(job.job_id)
            self._for(self._while(1_800), f"job {job.job_id} is held", lambda: self._release(job.job_id))

    def chain_is_paused(self) -> None:
        if chain_id := self._chain():
            self.daemon.ask(PauseChain(chain_id, "chaos"))
            self.oracle.pause_asked(chain_id)
            self._for(self._while(3_600), f"{chain_id} is paused", lambda: self._resume(chain_id))

    # Incidents

    def daemon_killed(self) -> None:
        self._daemon_gone("killed")

    def daemon_stopped(self) -> None:
        self._daemon_gone("stopped")

    def clock_jumps(self) -> None:
        by = int(self.rng.integers(30, LARGEST_JUMP)) * (1 if self.rng.random() < 0.5 else -1)
        self.daemon.clock.skew = min(max(self.daemon.clock.skew + by, -LARGEST_JUMP), LARGEST_JUMP)
        self.tell(f"the daemon's clock jumps to {self.daemon.clock.skew:+} s")

    def link_is_requeued(self) -> None:
        self._incident("requeued", JobState.RUNNING, "requeue")

    def link_is_preempted(self) -> None:
        self._incident("preempted", JobState.RUNNING, "preempt")

    def controller_forgets(self) -> None:
        """Its number may go to another job of its owner, which Mirage may not touch."""
        ctld, slurm = self.ctld, self.daemon.line.slurm
        if job := self._one_of([job for job in ctld.live() if job.tag and job.state is JobState.PENDING]):
            again = job.job_id % 3 > 0
            slurm.give_again(job.job_id, 60 * (1 + job.job_id % 40)) if again else ctld.forget(job.job_id)
            what = ", and its number given again" if again else ""
            self.tell(f"job {job.job_id} ({job.tag}) is forgotten by slurmctld{what}")

    def link_is_cancelled(self) -> None:
        self._incident("cancelled by its owner", None, "cancel")

    def link_is_renamed(self) -> None:
        """Only one that Mirage knows by its number: before that the comment is all there is."""
        known = {link.job_id for record in self._records() for link in record.links}
        ctld = self.ctld
        if job := self._one_of([job for job in ctld.live() if job.tag and job.job_id in known]):
            self.oracle.mark_replaced(job.tag)
            ctld.comment(job.job_id, "mine: do not touch")
            self.tell(f"job {job.job_id} gets another comment")

    def link_gets_time(self) -> None:
        ctld = self.ctld
        if job := self._one_of([job for job in ctld.live() if job.tag]):
            ctld.set_limit(job.job_id, job.limit + 60 * int(self.rng.integers(1, 20)))
            self.tell(f"job {job.job_id} gets more time")

    def chain_is_cancelled(self) -> None:
        if (chain_id := self._chain()) and (answer := self.daemon.ask(CancelChain(chain_id, "chaos"))):
            self.tell(f"{chain_id} is cancelled")
            self.oracle.end_asked(chain_id)
            answer.add_done_callback(
                lambda done: None if done.exception() else self.oracle.end_confirmed(chain_id)
            )

    # How

    def _daemon_gone(self, how: str) -> None:
        away = self._while(LONGEST_AWAY) if self.rng.random() < 0.5 else 0
        self.doomed, self.daemon_away_until = how, self.ctld.now + away
        self.tell(f"the daemon is {how} and away for {away} s")

    def _incident(self, what: str, state: JobState | None, act: str) -> None:
        ctld = self.ctld
        mine = [job for job in ctld.live() if job.tag and state in (None, job.state)]
        if job := self._one_of(mine):
            getattr(ctld, act)(job.job_id)
            self.tell(f"job {job.job_id} ({job.tag}) is {what}")

    def _resume(self, chain_id: ChainId) -> None:
        self.daemon.ask(ResumeChain(chain_id, "chaos"))
        self.oracle.resume_asked(chain_id)

    def _release(self, job_id: int) -> None:
        ctld = self.ctld
        if any(job.job_id == job_id and job.held for job in ctld.live()):
            ctld.release(job_id)  # type: ignore[arg-type]

    def _chain(self) -> ChainId | None:
        names = sorted(self.oracle.chains)
        return names[int(self.rng.integers(len(names)))] if self.daemon.runs else None


_KINDS: dict[Callable[[Weather], None], float] = {
    Weather.bad_line: 5,
    Weather.bad_disk: 3,
    Weather.daemon_killed: 4,
    Weather.daemon_stopped: 1,
    Weather.controller_away: 3,
    Weather.accounting_away: 2,
    Weather.accounting_lags: 2,
    Weather.node_fails: 2,
    Weather.clock_jumps: 1.5,
    Weather.link_is_requeued: 2,
    Weather.link_is_preempted: 1,
    Weather.controller_forgets: 0.5,
    Weather.link_is_cancelled: 0.2,
    Weather.link_is_renamed: 1,
    Weather.link_gets_time: 1,
    Weather.job_is_held: 1,
    Weather.chain_is_paused: 1,
    Weather.chain_is_cancelled: 0.2,
}
