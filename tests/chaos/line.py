"""The path from the daemon to Slurm: commands as text, and all that can happen to a command or its output."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

from fake_slurm.answers import answer_call, option
from fake_slurm.fake import Call, refused, unreachable

from mirage.backends.execution import CommandOutput
from mirage.domain.errors import ClusterUnavailable
from mirage.domain.job import JobId

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    from chaos.facade import Slurm
    from chaos.oracle import Oracle

ENVIRONMENT = {"PATH": "/usr/bin:/bin"}
Kind = TypeVar("Kind")
TIMEOUT = 30
"""Seconds of Slurm's time after which an answer is no longer waited for."""
LATEST = 60
"""Seconds by which a command may arrive after its timeout: less than ``loop.settle``."""


class Killed(BaseException):
    """The daemon's process ends here."""


class Mishap(StrEnum):
    """The mishap of one call."""

    NONE = "nothing"
    UNREACHABLE = "does not reach the controller"
    LOST_ANSWER = "is done, its answer lost"
    LATE_QUESTION = "arrives only after it was given up"
    SLOW = "takes long"
    CUT_OFF = "is answered in part"
    GARBAGE = "is answered with garbage"
    EMPTY = "is answered with nothing"
    REFUSED = "is refused"
    DIES_BEFORE = "kills the daemon before it goes out"
    DIES_AFTER = "kills the daemon once it is done"


FITTING = {
    Mishap.LATE_QUESTION: ("sbatch", "scancel"),
    Mishap.REFUSED: ("sbatch",),
    Mishap.CUT_OFF: ("squeue", "sinfo", "sacct"),
    Mishap.GARBAGE: ("squeue", "sinfo", "sacct", "sbatch"),
    Mishap.EMPTY: ("squeue", "sinfo", "sacct", "sbatch"),
}
"""Which commands a mishap can befall; one that is not named befalls all."""
SPOILING = (Mishap.CUT_OFF, Mishap.GARBAGE, Mishap.EMPTY)
"""The answer arrives, and differs from Slurm's."""


@dataclass
class Line:
    """Carries calls to Slurm. ``odds`` are the chances of each mishap for each call, as the weather has them."""

    slurm: Slurm
    oracle: Oracle
    rng: np.random.Generator
    tell: Callable[[str], None]
    signalled: Callable[[JobId, str], None]
    odds: dict[Mishap, float] = field(default_factory=dict)
    controller_down: bool = False
    accounting_down: bool = False

    def call(self, call: Call) -> CommandOutput:
        self.oracle.asked(call)
        mishap, whole = self._mishap(call.command), False
        if mishap is not Mishap.NONE:
            self.tell(f"{call.command} {mishap}")
        try:
            answer = self._befallen(call, mishap)
            whole = not answer.status and mishap not in SPOILING
        finally:
            self.oracle.answered(call, whole)
        return answer

    def _befallen(self, call: Call, mishap: Mishap) -> CommandOutput:
        if mishap is Mishap.DIES_BEFORE:
            raise Killed(call.command)
        if mishap is Mishap.SLOW:
            self._time_passes(int(self.rng.integers(1, TIMEOUT)))
        if mishap is Mishap.LATE_QUESTION:
            self._arrive_later(call)
            raise ClusterUnavailable(f"{call.command}: no answer within {TIMEOUT} s")
        answer = self._carried(call, mishap)
        if mishap is Mishap.DIES_AFTER:
            raise Killed(call.command)
        if mishap is Mishap.LOST_ANSWER:
            raise ClusterUnavailable(f"{call.command}: no answer within {TIMEOUT} s")
        return _spoilt(answer, mishap)

    def _carried(self, call: Call, mishap: Mishap) -> CommandOutput:
        gone = self.accounting_down if call.command == "sacct" else self.controller_down
        if gone or mishap is Mishap.UNREACHABLE:
            return _answer(unreachable(call.command))
        if mishap is Mishap.REFUSED:
            self.oracle.rejected(option(call, "--comment"))
            return _answer(refused(call.command))
        return self._done(call)

    def _done(self, call: Call) -> CommandOutput:
        before = {job.job_id for job in self.slurm.simulation.everything()}
        answer = answer_call(self.slurm, call)  # type: ignore[arg-type]
        while self.slurm.touched:
            self.oracle.foreign_touched(self.slurm.touched.pop())
        if call.command == "sbatch":
            for job in self.slurm.simulation.everything():
                if job.job_id not in before:
                    self.oracle.accepted(job)
        if call.command == "scancel" and (signal := option(call, "--signal")) and not answer.status:
            self.signalled(JobId(int(call.arguments[-1])), signal)
        return _answer(answer)

    def _arrive_later(self, call: Call) -> None:
        def arrive() -> None:
            if not self.controller_down:
                self._done(call)

        ctld = self.slurm.simulation
        ctld.at(ctld.now + int(self.rng.integers(1, LATEST)), arrive)
        self._time_passes(1)

    def _mishap(self, command: str) -> Mishap:
        mishap = drawn(self.odds, self.rng)
        return mishap if mishap and command in FITTING.get(mishap, (command,)) else Mishap.NONE

    def _time_passes(self, seconds: int) -> None:
        ctld = self.slurm.simulation
        ctld.run_until(ctld.now + seconds)


@dataclass(frozen=True)
class Shell:
    """``mirage.backends.execution.CommandRunner`` for one user, in this process."""

    user: str
    line: Line
    environment: dict[str, str] = field(default_factory=lambda: dict(ENVIRONMENT))

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        environment: Mapping[str, str] | None = None,
        launch: object = None,
    ) -> CommandOutput:
        del launch
        told = dict(self.environment if environment is None else environment)
        return self.line.call(Call(argv[0], list(argv[1:]), told, stdin.decode(), self.user))


def _spoilt(answer: CommandOutput, mishap: Mishap) -> CommandOutput:
    match mishap:
        case Mishap.CUT_OFF:  # never just behind a row: no reader could detect that, and no pipe breaks there
            return CommandOutput(0, answer.out[: len(answer.out) // 2].rstrip("\n"), "")
        case Mishap.GARBAGE:
            return CommandOutput(0, "<html>502 Bad Gateway</html>\n", "")
        case Mishap.EMPTY:
            return CommandOutput(0, "", "")
    return answer


def drawn(odds: Mapping[Kind, float], rng: np.random.Generator) -> Kind | None:
    """One kind at most, each with its chance; one number is drawn, whatever comes of it."""
    chance, at = float(rng.random()), 0.0
    for kind, share in odds.items():
        at += share
        if chance < at:
            return kind
    return None


def _answer(answer: object) -> CommandOutput:
    return CommandOutput(answer.status, answer.out, answer.err)  # type: ignore[attr-defined]
