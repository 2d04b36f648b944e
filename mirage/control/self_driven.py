"""Chains that look after themselves, without a daemon: each job of a chain runs a controller next to the work.

Where no job runs, nothing of ours does. So a small job, a call, waits in the queue for the end of each running
link, or for a time where no link runs. It runs the controller once. Slurm starts it also after a link that failed
at its start, or whose node is gone together with its controller.
"""

from __future__ import annotations

import logging
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from mirage.domain.chain import ChainStatus
from mirage.domain.errors import MirageError
from mirage.domain.job import BatchScript, JobRequest
from mirage.provisioner.gates import cannot_look
from mirage.slurm.wrapper import attended

if TYPE_CHECKING:
    from pathlib import Path

    from mirage.control.status import Status
    from mirage.domain.chain import ChainRecord
    from mirage.domain.job import JobChange, JobId, SignalReach
    from mirage.domain.snapshot import Snapshot
    from mirage.ports import Actuator

_LOG = logging.getLogger(__name__)

CALL = "mirage-cycle"
"""Name of a call; after it the ID of the job whose end it waits for."""
_AFTER = 1_800
"""Seconds until a call where no link runs."""
_LONGEST = 5_400
"""Time limit of a call, s: it waits for a controller of Slurm that is away."""
_MEMORY_MB = 500
_SCRIPT = """\
#!/bin/sh
# Made by mirage submit: looks after the chains of this user while none of their jobs does.
trap '' HUP INT USR1 USR2
while [ -r {file} ]; do
  /bin/sh {file} now && exit
  sleep 60
done
"""


class SelfDriven:
    """An ``Actuator`` whose jobs run the shell script in the file ``controller`` next to their own.

    One that cannot have it, such as a script for a container, is submitted as it is: the calls look after it.
    """

    def __init__(self, actuator: Actuator, controller: Path) -> None:
        self._actuator = actuator
        self._controller = str(controller)

    def submit(self, request: JobRequest) -> JobId:
        """Submit with the controller."""
        batch = request.batch
        if batch is not None and batch.text and not cannot_look(batch):
            request = replace(request, batch=replace(batch, text=attended(batch.text, self._controller)))
        return self._actuator.submit(request)

    def cancel(self, job_id: JobId, owner: str) -> None:
        """Cancel through the wrapped actuator."""
        self._actuator.cancel(job_id, owner)

    def update(self, job_id: JobId, owner: str, change: JobChange) -> None:
        """Update through the wrapped actuator."""
        self._actuator.update(job_id, owner, change)

    def signal(self, job_id: JobId, owner: str, signal: str, *, reach: SignalReach) -> None:
        """Signal through the wrapped actuator."""
        self._actuator.signal(job_id, owner, signal, reach=reach)


class CallJobs:
    """Keeps a call in Slurm's queue for each running link of ``user``, or one for a time where none runs.

    What is queued Slurm knows alone, by the names of the jobs: nothing is stored.
    """

    def __init__(self, actuator: Actuator, user: str, controller: Path) -> None:
        self._actuator = actuator
        self._user = user
        self._script = _SCRIPT.format(file=shlex.quote(str(controller)))
        self._sent: set[str] = set()
        """Names of calls that a snapshot may not show yet."""
        self._complaint = ""

    def keep(self, status: Status) -> None:
        """Submit the calls that are missing after a cycle. An error is logged: the next cycle tries again."""
        chains = [record for record in status.chains if record.chain.owner == self._user and _continues(record)]
        if not chains or status.snapshot.stale:
            return
        queued = _calls(status.snapshot, self._user)
        self._sent -= queued
        running = {int(link.job_id): record for record in chains for link in record.links if link.running}
        for job, record in running.items():
            if not self._keep(f"{CALL}-{job}", record, queued, options=(f"--dependency=afterany:{job}",)):
                return  # one refused sbatch a cycle is enough
        if not running and not queued and not self._sent:
            self._keep(CALL, chains[-1], queued, begin=status.time + _AFTER)

    def _keep(
        self, name: str, record: ChainRecord, queued: set[str], options: tuple[str, ...] = (), begin: int = 0
    ) -> bool:
        """Whether the call is queued now."""
        if name in queued or name in self._sent:
            return True
        of = record.chain.request
        batch = BatchScript(
            self._script,
            options=("--output=/dev/null", *options),
            environment=(("PATH", "/usr/bin:/bin"),),
            directory="/",
        )
        request = JobRequest(
            name,
            self._user,
            min(of.limit, _LONGEST),
            partition=of.partition,
            account=of.account,
            qos=of.qos,
            cpus_per_node=1,
            memory_mb_per_node=_MEMORY_MB,
            begin=begin,
            requeue=True,
            batch=batch,
        )
        try:
            self._actuator.submit(request)
        except MirageError as error:
            if str(error) != self._complaint:
                self._complaint = str(error)
                text = "a chain whose last job ends without a controller continues with your next command only"
                _LOG.warning("event=call_not_queued name=%s error=%r text=%r", name, str(error), text)
            return False
        self._complaint = ""
        self._sent.add(name)
        _LOG.info("event=call_queued name=%s", name)
        return True


def _continues(record: ChainRecord) -> bool:
    return not record.over and record.status is not ChainStatus.PAUSED


def _calls(snapshot: Snapshot, user: str) -> set[str]:
    """Names of the calls that wait in the queue."""
    pending = snapshot.pending
    own = [code for code, name in enumerate(snapshot.users) if name == user]
    ids = pending.job_id[np.isin(pending.user, own)]
    names = (name for name, _ in snapshot.labels.of(ids.tolist()).values())
    return {name for name in names if name == CALL or name.startswith(f"{CALL}-")}
