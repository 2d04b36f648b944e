"""Acting with Slurm's own commands, in the name of the user whose process this is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.backends.execution import ArgumentsRefused, LaunchSettings
from mirage.domain.errors import (
    BadSpelling,
    ClusterUnavailable,
    NotPermitted,
    SubmissionRejected,
    UnknownJob,
)
from mirage.domain.job import JobState, SignalReach
from mirage.slurm import error_messages, sbatch
from mirage.slurm.job_state import parse_state
from mirage.slurm.sbatch import format_sbatch_time

if TYPE_CHECKING:
    from mirage.backends.execution import CommandOutput, CommandRunner
    from mirage.domain.job import JobChange, JobId, JobRequest, Seconds


class CliActuator:
    """The ports ``Actuator`` and ``StartEstimator``: ``sbatch``, ``scancel`` and ``scontrol``.

    ``user`` is this process's user in Slurm; it acts for no other user.
    """

    def __init__(self, commands: CommandRunner, user: str) -> None:
        self._commands = commands
        self._user = user

    def submit(self, request: JobRequest) -> JobId:
        """Submit with the request's own script and environment. See the port."""
        self._only_own(request.user, "submit a job")
        if request.batch is None:
            raise SubmissionRejected("NoScript", f"{request.name}: there is no batch script to submit")
        answer = self._sbatch(request)
        try:
            return sbatch.read_job_id(answer.out)
        except BadSpelling as fault:
            raise ClusterUnavailable(f"sbatch: {fault}; it is unknown whether the job was submitted") from fault

    def estimate_start(self, request: JobRequest) -> Seconds:
        """Start time by ``sbatch --test-only``. See the port."""
        self._only_own(request.user, "ask for a start")
        answer = self._sbatch(request, "--test-only", SLURM_TIME_FORMAT="%s")
        return sbatch.read_planned_start(answer.err)

    def cancel(self, job_id: JobId, owner: str) -> None:
        """Cancel with ``scancel``; a job that has ended is no error."""
        self._only_own(owner, f"cancel job {job_id}")
        answer = self._commands.run(["scancel", "--verbose", str(job_id)])  # silent, it hides that there is no job
        said = _complaints(answer.err)
        if (said or answer.status) and not error_messages.already_ended(said):
            raise error_messages.refused_act(said, f"scancel {job_id}")

    def update(self, job_id: JobId, owner: str, change: JobChange) -> None:
        """``scontrol hold``, ``update`` and ``release``. See the port."""
        self._only_own(owner, f"change job {job_id}")
        self._require(job_id, JobState.PENDING, "pend")
        settings = _settings(change)
        if change.held:
            self._scontrol("hold", job_id)
        if settings:
            self._scontrol("update", job_id, *settings)
        if change.held is False:
            self._scontrol("release", job_id)

    def signal(self, job_id: JobId, owner: str, signal: str, *, reach: SignalReach) -> None:
        """``scancel --signal``. See the port."""
        self._only_own(owner, f"signal job {job_id}")
        self._require(job_id, JobState.RUNNING, "run")
        whom = {SignalReach.BATCH: ["--batch"], SignalReach.STEPS: [], SignalReach.ALL: ["--full"]}[reach]
        answer = self._commands.run(["scancel", "--verbose", f"--signal={signal}", *whom, str(job_id)])
        said = _complaints(answer.err)
        if said or answer.status:
            raise error_messages.refused_act(said, f"scancel --signal={signal} {job_id}")

    def _sbatch(self, request: JobRequest, *options: str, **settings: str) -> CommandOutput:
        argv = ["sbatch", *sbatch.sbatch_arguments(request), *options]
        environment = sbatch.sbatch_environment(request, self._commands.environment) | settings
        try:
            answer = self._commands.run(
                argv,
                stdin=b"" if sbatch.script_arguments(request) else sbatch.script_of(request),
                environment=environment,
                launch=_launch(request),
            )
        except UnicodeEncodeError as fault:
            problem = f"{fault.object[fault.start : fault.end]!r} cannot be encoded as UTF-8"
            raise SubmissionRejected("InvalidText", f"{request.name}: {problem}") from None
        except ArgumentsRefused as refusal:
            raise SubmissionRejected("InvalidText", str(refusal)) from None
        if answer.status:
            raise error_messages.refusal(answer.err, "sbatch")
        return answer

    def _require(self, job_id: JobId, state: JobState, verb: str) -> None:
        """Slurm takes changes to running jobs too, and keeps them for a requeue: that is not what is meant."""
        asked = f"squeue --jobs={job_id}"
        answer = self._commands.run(
            ["squeue", "--noheader", "--all", "--states=all", "--format=%T", f"--jobs={job_id}"]
        )
        if answer.status:
            raise error_messages.refused_act(answer.said, asked)
        try:
            found = parse_state(answer.out)
        except BadSpelling as fault:
            raise ClusterUnavailable(f"{asked}: {fault}") from fault
        if found is not state:
            raise UnknownJob(f"job {job_id} does not {verb}: it is {found.name}")

    def _scontrol(self, verb: str, job_id: JobId, *settings: str) -> None:
        target = [f"JobId={job_id}", *settings] if verb == "update" else [str(job_id)]
        answer = self._commands.run(["scontrol", verb, *target])
        if answer.status:
            raise error_messages.refused_act(answer.said, f"scontrol {verb} {job_id}")

    def _only_own(self, owner: str, act: str) -> None:
        if owner != self._user:
            raise NotPermitted(
                f"cannot {act} for {owner}: Mirage runs as {self._user} and submits as itself; "
                "run it as that user, or set it up to act for others"
            )


def _launch(request: JobRequest) -> LaunchSettings:
    """As ``sbatch SCRIPT ARGUMENTS`` in the user's shell; a script without arguments is its standard input."""
    arguments = sbatch.script_arguments(request)
    return LaunchSettings(
        sbatch.submission_folder(request),
        request.batch.process_nice if request.batch else None,
        sbatch.script_of(request) if arguments else b"",
        arguments,
    )


def _settings(change: JobChange) -> list[str]:
    begin = [] if change.begin is None else [format_sbatch_time(change.begin) if change.begin else "now"]
    nice = [] if change.nice is None else [str(change.nice)]
    nodes = [] if change.node_list is None else [f"ReqNodeList={change.node_list}"]
    after = [] if change.dependencies is None else [f"Dependency={sbatch.spell_dependencies(change.dependencies)}"]
    return [*(f"Nice={value}" for value in nice), *(f"StartTime={value}" for value in begin), *nodes, *after]


def _complaints(text: str) -> str:
    """Errors in the output of ``scancel --verbose``, without its reports of actions."""
    return "\n".join(line for line in text.splitlines() if "error:" in line or "fatal:" in line)
