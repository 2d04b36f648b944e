"""``FakeSlurm``: Slurm's commands on PATH with our simulator behind them, and failures on demand.

    with FakeSlurm(directory) as slurm:
        commands = Commands(slurm.environment("alice"))
        slurm.advance(3600)
        slurm.fault("sbatch", Fault.LOSE_ANSWER)

The commands are real processes that speak to a thread of this one; several may run in parallel, from any process.
A job's script says with a line ``#FAKE runs=60 exit=3`` what it does; without, it runs into its limit.
"""

from __future__ import annotations

import json
import socketserver
import sys
import threading
from collections import defaultdict, deque
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fake_slurm.answers import COMMANDS, Answer, answer_call

from mirage.domain.job import Job, JobId, JobState
from mirage.simulator.cluster import (
    ClusterConfig,
    NodeGroup,
    Partition,
    PriorityWeights,
    SchedulerParameters,
)
from mirage.simulator.simulation import Simulation

if TYPE_CHECKING:
    from mirage.backends.simulated import SimulatedExecution
    from mirage.domain.jobtable import JobTable

HOUR = 3_600
NOON = 1_790_000_000
CPU = tuple(f"cpu-{k:03}" for k in range(1, 5))
V100 = tuple(f"v100-{k:03}" for k in range(1, 3))
CLUSTER = ClusterConfig(
    "fake",
    (NodeGroup(CPU, cpus=64), NodeGroup(V100, cpus=64, gres=(("gpu:v100", 4),))),
    (
        Partition("cpu", CPU, max_time=48 * HOUR, exclusive=True, default=True),
        Partition("v100", V100, max_time=48 * HOUR),
    ),
    priority=PriorityWeights(age=10_000, job_size=1_000),
    scheduler=SchedulerParameters(batch_sched_delay=0),
)


class Fault(Enum):
    """The failure of a command."""

    HANG = auto()
    """It never ends, and does nothing."""
    SLOW = auto()
    """It answers only after ``FakeSlurm.slowness`` real seconds."""
    CUT_OFF = auto()
    """It ends well, but only the first half of what it prints arrives."""
    GARBAGE = auto()
    """It ends well and prints what is no Slurm's."""
    EMPTY = auto()
    """It ends well and prints nothing."""
    REFUSE = auto()
    """The controller says no: sbatch's account is invalid, permission is denied to others."""
    TOO_MANY = auto()
    """sbatch's user has as many jobs as a limit allows: a rejection that passes."""
    UNREACHABLE = auto()
    """It says that the controller cannot be contacted, and does nothing."""
    LOSE_ANSWER = auto()
    """It does what it is to do, and then says that the connection timed out."""
    LATE = auto()
    """It reaches the controller only after ``FakeSlurm.slowness`` real seconds, whether or not it lives then."""
    LOSE_ANSWER_AND_HANG = auto()
    """It does what it is to do, and never ends."""
    KILLED = auto()
    """It is killed before it does anything."""


@dataclass(frozen=True)
class Call:
    """How a command was called."""

    command: str
    arguments: list[str]
    environment: dict[str, str]
    stdin: str
    user: str


@dataclass
class FakeSlurm:
    """Use as a context manager. Every public method may be called from any thread."""

    directory: Path
    cluster: ClusterConfig = CLUSTER
    background: JobTable | None = None
    """Jobs of other users that come by themselves."""
    start_time: int = NOON
    min_job_age: int = 300
    """Seconds after which the controller forgets ended jobs; accounting never does."""
    accounting: bool = True
    """``False``: the cluster keeps no accounts."""
    comments_accounted: bool = True
    """``False``: AccountingStoreFlags has no job_comment."""
    down: bool = False
    """Whether the controller is unreachable for every command but sacct."""
    canceller: str = " by 1001"
    """Accounting's text about who cancelled jobs; empty after a restart of the controller."""
    accounting_down: bool = False
    """Whether slurmdbd is unreachable."""
    operators: tuple[str, ...] = ()
    """Users who may change the jobs of all."""
    slowness: float = 1.0
    told: dict[tuple[str, str], str] = field(default_factory=dict)
    """The output of further queries, by command and subject, such as ("scontrol", "config")."""
    calls: list[Call] = field(default_factory=list)
    """Every call since the start."""

    def __post_init__(self) -> None:
        self.simulation = Simulation(self.cluster, self.background, start=self.start_time)
        self.lock = threading.RLock()
        self.comments: dict[int, str] = {}
        """Comments that were changed after submission."""
        self.batches: dict[int, Call] = {}
        """The call that submitted each job."""
        self.runs: dict[str, SimulatedExecution] = {}
        """The behaviour of the job with this comment, whatever its script contains."""
        self.held_by_admin: set[int] = set()
        self.words: dict[int, str] = {}
        """Jobs whose state squeue spells otherwise, such as SPECIAL_EXIT."""
        self.reasons: dict[int, str] = {}
        """Jobs that Slurm itself holds, and what it gives as the reason."""
        self._before_loss: list[Job] = []
        self._faults: defaultdict[str, deque[Fault]] = defaultdict(deque)
        self._stopping = threading.Event()

    def __enter__(self) -> FakeSlurm:
        self.directory.mkdir(parents=True, exist_ok=True)
        self._install()
        fake = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                fake._handle(self)

        self._server = _Server(str(self._socket), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def path(self) -> Path:
        """The directory with the commands."""
        return self.directory / "bin"

    @property
    def _socket(self) -> Path:
        return self.directory / "socket"

    def environment(self, user: str = "alice") -> dict[str, str]:
        """The environment in which Slurm's commands are these, and run as ``user``."""
        conf = self.directory / f"{user}.conf"
        conf.write_text(f"Socket={self._socket}\nUser={user}\n")
        return {"PATH": f"{self.path}:/usr/bin:/bin", "SLURM_CONF": str(conf)}

    def _install(self) -> None:
        self.path.mkdir(exist_ok=True)
        client = (Path(__file__).parent / "client.py").read_text()
        for command in COMMANDS:
            program = self.path / command
            program.write_text(f"#!{sys.executable} -SEI\n{client}")
            program.chmod(0o755)

    # The clock: the port Clock, and time passing

    def now(self) -> int:
        """Slurm's time."""
        with self.lock:
            return self.simulation.now

    def advance(self, seconds: int) -> None:
        """Let everything happen that is due in the next ``seconds``."""
        with self.lock:
            self.simulation.run_until(self.simulation.now + seconds)

    # What the tests do behind Mirage's back

    def fault(self, command: str, kind: Fault, times: int = 1) -> None:
        """The next calls of ``command`` fail in this way, after those for which a failure was set before."""
        self._faults[command].extend([kind] * times)

    def job(self, job_id: int) -> Job:
        """A job as the controller has it."""
        with self.lock:
            return self.simulation.job(JobId(job_id))

    def jobs(self) -> list[Job]:
        """Every job ever submitted through ``sbatch``."""
        with self.lock:
            return self.simulation.jobs()

    def live(self) -> list[Job]:
        """Those that pend or run."""
        return [job for job in self.jobs() if not job.state.finished]

    def accounted(self) -> list[Job]:
        """Every job as accounting knows it."""
        return [*self._before_loss, *self.simulation.jobs()]

    def state_word(self, job: Job) -> str:
        """The job's state in squeue's format."""
        return self.words.get(job.job_id, job.state.name)

    def set_comment(self, job_id: int, comment: str) -> None:
        """Set the comment like ``scontrol update Comment=`` by the owner."""
        self.comments[job_id] = comment

    def lose_state(self) -> None:
        """The controller starts without its state and counts job IDs again; accounting keeps what was."""
        with self.lock:
            gone = [
                job if job.state.finished else replace(job, state=JobState.NODE_FAIL, end=self.simulation.now)
                for job in self.simulation.jobs()
            ]
            self._before_loss += [replace(job, tag=self.comments.get(job.job_id, job.tag)) for job in gone]
            self.comments, self.held_by_admin = {}, set()
            self.simulation = Simulation(self.cluster, self.background, start=self.simulation.now)

    def node(self, name: str, state: str) -> None:
        """``down``, ``drain`` or ``resume``; jobs on a node that goes down are requeued or fail."""
        with self.lock:
            self.simulation.set_nodes([name], state)

    def count(self, command: str) -> int:
        """How often a command was called."""
        return sum(call.command == command for call in self.calls)

    # Calls

    def _handle(self, handler: socketserver.StreamRequestHandler) -> None:
        line = handler.rfile.readline()
        if not line:
            return
        call = Call(**json.loads(line))
        self.calls.append(call)
        fault = self._faults[call.command].popleft() if self._faults[call.command] else None
        answer = self._answer(call, fault)
        if fault is Fault.SLOW:
            self._stopping.wait(self.slowness)
        if answer is None:
            self._stopping.wait()
            return
        reply = json.dumps({"out": answer.out, "err": answer.err, "status": answer.status})
        try:
            handler.wfile.write(reply.encode() + b"\n")
        except BrokenPipeError:
            return  # the client was killed meanwhile

    def _answer(self, call: Call, fault: Fault | None) -> Answer | None:
        """Return the output of the command; ``None``: it never answers."""
        if fault is Fault.HANG:
            return None
        instead = _INSTEAD.get(fault) if fault else None
        if instead is not None:
            return instead
        if fault is Fault.LATE:
            self._stopping.wait(self.slowness)
        if fault is Fault.UNREACHABLE or (self.down and call.command != "sacct"):
            return unreachable(call.command)
        if fault is Fault.REFUSE:
            return refused(call.command)
        if fault is Fault.TOO_MANY and call.command == "sbatch":
            return TOO_MANY
        if call.command == "sacct" and self.accounting_down:
            return unreachable("sacct")
        with self.lock:
            answer = answer_call(self, call)
        return _spoilt(answer, fault, call.command)


def _spoilt(answer: Answer, fault: Fault | None, command: str) -> Answer | None:
    """The part of an answer that arrives."""
    if fault is Fault.LOSE_ANSWER_AND_HANG:
        return None
    if fault is Fault.LOSE_ANSWER:
        return Answer("", f"{command}: error: Socket timed out on send/recv operation\n", 1)
    if fault is Fault.CUT_OFF:
        return Answer(answer.out[: len(answer.out) // 2], answer.err, answer.status)
    return answer


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        raise  # noqa: PLE0704 - shown by the thread: a fake that breaks is a broken test


_INSTEAD = {
    Fault.GARBAGE: Answer("\x00\xff<html>502 Bad Gateway</html>\n" * 3, "", 0),
    Fault.EMPTY: Answer("", "", 0),
    Fault.KILLED: Answer("", "", -9),
}


_POLICY = "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"
TOO_MANY = Answer(
    "", f"sbatch: error: AssocMaxSubmitJobLimit\nsbatch: error: Batch job submission failed: {_POLICY}\n", 1
)


def unreachable(command: str) -> Answer:
    """The commands' errors when no controller answers (as recorded on 22.05)."""
    reason = "Unable to contact slurm controller (connect failure)"
    said = {
        "squeue": f"slurm_load_jobs error: {reason}",
        "sinfo": f"slurm_load_partitions: {reason}",
        "sbatch": f"sbatch: error: Batch job submission failed: {reason}",
        "scancel": f"scancel: error: Kill job error on job id 1: {reason}",
        "scontrol": "Unexpected message received for job 1",
        "sshare": "sshare: error: Problem talking to the database: Connection refused",
        "sacctmgr": "sacctmgr: error: Problem talking to the database: Connection refused",
        "sdiag": f"slurm_get_statistics: {reason}",
        "sacct": "sacct: error: Problem talking to the database: Connection refused",
    }
    return Answer("", said[command] + "\n", 1)


def refused(command: str) -> Answer:
    """A plain no."""
    if command == "sbatch":
        sentence = "Invalid account or account/partition combination specified"
        return Answer("", f"sbatch: error: Batch job submission failed: {sentence}\n", 1)
    return Answer("", f"{command}: error: Access/permission denied\n", 1)
