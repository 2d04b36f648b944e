"""Jobs of a round according to Slurm's accounting, by their links' tags, and when accounting did not answer."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mirage.domain.job import ABSENT, Job, JobId, JobState

from onehost.errors import TestbedError
from onehost.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from mirage.domain.chain import ChainId, ChainRecord
    from mirage.domain.link import Link

    from keepalive.surroundings import Surroundings

_FIELDS = ("JobIDRaw", "User", "State", "Submit", "Start", "End", "ExitCode", "NodeList", "Comment")
CATCHES_UP_S = 240.0
"""Real seconds; slurmctld keeps records that it could not send to slurmdbd yet."""
FORGETS_S = 600
"""How long slurmctld may not have saved a submitted job, in Slurm's seconds: 5 s at x60, and a margin."""
_KEPT = re.compile(r"DBD Agent queue size: *([0-9]+)")
_NO_NODES = ("None assigned", "")
_AFTER_A_RUN = (JobState.TIMEOUT, JobState.COMPLETED, JobState.FAILED, JobState.OUT_OF_MEMORY)
"""States in which only a job that has started can end. slurmdbd may lose the start."""


@dataclass
class Accounting:
    """The jobs of one round, read once it is over."""

    around: Surroundings
    chains: Collection[str]
    silences: tuple[float, ...]
    """Times at which accounting did not answer."""
    kills: tuple[float, ...] = ()
    """Times at which slurmctld was killed."""
    jobs: dict[str, list[Job]] = field(default_factory=dict)
    """By tag: all jobs that bear it."""
    ran: Counter[JobId] = field(default_factory=Counter)
    """How often each job had nodes."""
    runs: dict[str, list[tuple[int, int, int]]] = field(default_factory=dict)
    """By tag: job, start and end of each run that has both, also of those that a requeue ended."""

    def read(self, known: set[JobId]) -> None:
        """Read accounting once it has caught up; jobs that are ``known`` may not be there yet.

        Raises ``subprocess.SubprocessError``, ``TestbedError``.
        """
        wait_until(self._caught_up, CATCHES_UP_S, "accounting to know the state of requeued jobs")
        with suppress(TestbedError):  # the judgement names the missing ones
            wait_until(lambda: known <= self._ids(), CATCHES_UP_S, "the jobs that the daemon knows")
        for job in map(_job, self._rows()):
            self.jobs.setdefault(job.tag, []).append(job)
        runs = self._rows("--duplicates")  # a row for each time that it was requeued
        self.ran = Counter(JobId(int(row["JobIDRaw"])) for row in runs if row["NodeList"] not in _NO_NODES)
        for job in map(_job, runs):
            if ABSENT not in (job.start, job.end):
                self.runs.setdefault(job.tag, []).append((job.job_id, job.start, job.end))

    def _caught_up(self) -> bool:
        """Whether slurmctld has sent everything, and no job's last row is a requeued run: another one follows."""
        kept = _KEPT.search(self.around.run("root", ["sdiag"], fast=True))
        return bool(kept and kept[1] == "0") and all(row["State"] != "REQUEUED" for row in self._rows())

    def _ids(self) -> set[JobId]:
        return {JobId(int(row["JobIDRaw"])) for row in self._rows()}

    def doubles(self) -> Iterator[str]:
        """Links that were submitted more than once."""
        for tag, jobs in self.jobs.items():
            if len(jobs) > 1:
                yield f"two jobs for one link: {[job.job_id for job in jobs]} are {tag}"

    def of(self, record: ChainRecord) -> list[Job]:
        """The jobs of one chain, in order of links."""
        mine = [tag for tag in self.jobs if _is_of(record, tag)]
        return [job for tag in sorted(mine, key=_index) for job in self.jobs[tag]]

    def runs_of(self, record: ChainRecord) -> list[tuple[int, int, int]]:
        """Job, start and end of every run of one chain's links."""
        return [run for tag, runs in self.runs.items() if _is_of(record, tag) for run in runs]

    def times_run(self, job: Job) -> int:
        """How often it started; at least once if it ended in a state that only started jobs reach."""
        return self.ran[job.job_id] or int(job.state in _AFTER_A_RUN)

    def in_the_dark(self, job: Job) -> bool:
        """Whether accounting failed to answer after the job's end, or has lost its start."""
        lost = job.state in _AFTER_A_RUN and job.start == ABSENT
        return lost or any(when >= job.end for when in self.silences)

    def may_lack(self, link: Link) -> bool:
        """slurmctld reports a job that was cancelled while it was held only after slurmctld has started again.

        Killed, it also forgets a waiting job that it had not saved yet ("Purged files for defunct batch").
        """
        if link.started:
            return False
        return link.job_state is JobState.CANCELLED or any(
            link.submit <= kill <= link.submit + FORGETS_S for kill in self.kills
        )

    def took_back(self, link: Link, job: Job) -> bool:
        """slurmctld starts with its last saved state: a job that had ended may run again until it notices.

        It also never reports a requeued job that was cancelled while pending; accounting keeps the run before.
        """
        again = any(link.end <= kill <= job.end for kill in self.kills)
        return again or (
            job.state is JobState.NODE_FAIL
            and job.end <= link.end
            and link.job_state is JobState.CANCELLED
            and not link.started
        )

    def told_to_leave(self, job: Job) -> bool:
        """Accounting records no signals and no senders."""
        del job
        return False

    def cancelled(self, chain_id: ChainId) -> bool:
        """No user cancels a chain here."""
        del chain_id
        return False

    def _rows(self, *more: str) -> list[dict[str, str]]:
        argv = ["sacct", "-a", "-X", "-n", "-P", "-S", "2020-01-01", *more, "-o", ",".join(_FIELDS)]
        text = self.around.run("root", argv, fast=True, more={"SLURM_TIME_FORMAT": "%s"})
        rows = [dict(zip(_FIELDS, line.split("|"), strict=True)) for line in text.splitlines()]
        return [
            row for row in rows if row["Comment"].split(":")[1:2] and row["Comment"].split(":")[1] in self.chains
        ]


def _job(row: dict[str, str]) -> Job:
    ran = row["NodeList"] not in _NO_NODES
    code, _, by_signal = row["ExitCode"].partition(":")
    return Job(
        JobId(int(row["JobIDRaw"])),
        "",
        row["User"],
        "",
        1,
        0,
        _state(row["State"].split()[0]),
        _time(row["Submit"]),
        _time(row["Start"]) if ran else ABSENT,
        _time(row["End"]),
        int(by_signal) + 128 if int(by_signal) else int(code),
        tag=row["Comment"],
    )


def _state(word: str) -> JobState:
    """A run that a requeue ended has no state in accounting; the job continues."""
    return JobState.PENDING if word == "REQUEUED" else JobState[word]


def _time(text: str) -> int:
    return int(text) if text.isdecimal() else ABSENT


def _index(tag: str) -> int:
    return int(tag.rpartition(":")[2])


def _is_of(record: ChainRecord, tag: str) -> bool:
    """Whether ``tag`` is that of one of the chain's links."""
    return tag.startswith(record.chain.tag(0).removesuffix("0"))
