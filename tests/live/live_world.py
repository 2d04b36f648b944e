"""The contract's world on a real Slurm, for backends that act for one user with whatever permits them to."""

from __future__ import annotations

import contextlib
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from backends.contract import HOUR, MINUTE, Doing, Facts, World

from mirage.domain.job import BatchScript, JobId

if TYPE_CHECKING:
    from collections.abc import Iterator

    from slurm_testbed import Testbed

    from mirage.domain.job import JobRequest

PARTITION = "cpu"


class TestbedWorld(World):
    """Partition ``cpu``, whole nodes; it is the backend's clock as well."""

    __test__ = False

    def __init__(self, testbed: Testbed) -> None:
        self.testbed = testbed
        self.directory = Path(testbed.plain_environment(testbed.users[0])["HOME"])
        self.facts = Facts(
            testbed.users[0],
            PARTITION,
            sum(node.startswith(PARTITION) for node in testbed.nodes),
            48 * HOUR,
            gres=("gpu:v100", 4),
            gres_partition="v100",
            slack=MINUTE * 10,
            other_user=testbed.users[1] if testbed.privileged else "",
            accounts=testbed.privileged,
            accounting=testbed.privileged,
        )

    def now(self) -> int:
        """Slurm's time."""
        return int(self.testbed.now())

    def arrange(self, request: JobRequest, doing: Doing) -> JobRequest:
        trap = f"trap 'kill $!; exit {doing.on_usr1}' USR1\n" if doing.on_usr1 is not None else ""
        duration = "infinity" if doing.runs is None else doing.runs
        text = f"#!/bin/bash\n{trap}sleep {duration} &\nwait $!\nexit {doing.exit_code}\n"
        environment = (("PATH", "/usr/bin:/bin"), ("HOME", str(self.directory)))
        batch = BatchScript(text, ("--output=/dev/null",), environment, str(self.directory))
        return replace(request, exclusive=True, batch=batch)

    def pass_time(self) -> None:
        time.sleep(0.2)

    @contextlib.contextmanager
    def controller_down(self) -> Iterator[None]:
        self.testbed.service("slurmctld", "stop")
        try:
            yield
        finally:
            self.testbed.service("slurmctld", "start")

    def foreign_job(self) -> JobId:
        options = ("--parsable", "-H", "-t10", "-p", PARTITION, "-o/dev/null", "--wrap=true")
        return JobId(int(self.testbed.run(self.facts.other_user, ["sbatch", *options]).stdout))

    def forget(self, job_id: JobId) -> None:
        """Once accounting has its end: let the controller purge every ended job, by a short MinJobAge."""
        self.testbed.wait_until(lambda: self._accounted(job_id), 60, f"the accounting of job {job_id}")
        conf = self.testbed.conf.read_text()
        self._configure(re.sub(r"(?m)^MinJobAge=.*", "MinJobAge=2", conf))
        try:
            self.testbed.wait_until(lambda: not self._known(job_id), 120, f"job {job_id} to be purged")
        finally:
            self._configure(conf)

    def _configure(self, conf: str) -> None:
        self.testbed.conf.write_text(conf)
        self.testbed.ask("scontrol", "reconfigure")

    def _accounted(self, job_id: JobId) -> bool:
        ends = self.testbed.ask("sacct", "-nXP", "-j", str(job_id), "-S", "1970-01-02", "-o", "end").split()
        return bool(ends) and "Unknown" not in ends

    def _known(self, job_id: JobId) -> bool:
        return str(job_id) in self.testbed.ask("squeue", "-h", "-t", "all", "-o", "%A").split()
