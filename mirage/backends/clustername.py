"""The name of the cluster behind a backend: ``ClusterName`` of slurm.conf(5)."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

from mirage.domain.chain import NOTHING_EXPECTED
from mirage.domain.errors import ClusterUnavailable, NotPermitted
from mirage.domain.linkidentity import NO_IDENTITIES
from mirage.slurm.configtext import read_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mirage.backends.execution import Commands
    from mirage.backends.rest import Rest
    from mirage.domain.job import JobId
    from mirage.domain.linkidentity import LinkIdentity
    from mirage.domain.snapshot import Snapshot
    from mirage.ports import Cluster

_NONE = "(null)"


def cli_cluster_name(commands: Commands) -> str:
    """From ``scontrol show config``; empty: Slurm does not report it. Raises ``ClusterUnavailable``."""
    if shutil.which("scontrol", path=commands.environment.get("PATH", os.defpath)) is None:
        return ""  # the backend pyslurm can do without it
    answer = commands.run(("scontrol", "show", "config"))
    if answer.status:
        raise ClusterUnavailable(f"scontrol show config: exit {answer.status}: {answer.said[:300]}")
    name = read_settings(answer.out).get("clustername", "")
    return "" if name == _NONE else name


def rest_cluster_name(rest: Rest) -> str:
    """From the answer to a ping; empty: an older version without it. Raises ``ClusterUnavailable``."""
    try:
        found: object = rest.ask("GET", "ping").body
    except NotPermitted as error:
        raise ClusterUnavailable(str(error)) from None
    for key in ("meta", "slurm", "cluster"):
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, str) else ""


class CheckedCluster:
    """A ``Cluster`` that is polled only once ``check`` has returned: it raises for another cluster."""

    def __init__(self, cluster: Cluster, check: Callable[[], None]) -> None:
        self._cluster = cluster
        self._check = check

    def snapshot(
        self,
        *,
        queue: bool = True,
        expected: Mapping[str, JobId] = NOTHING_EXPECTED,
        identities: Mapping[str, LinkIdentity] = NO_IDENTITIES,
    ) -> Snapshot:
        """Take the wrapped cluster's snapshot after ``check``; raises what ``check`` does."""
        self._check()
        return self._cluster.snapshot(queue=queue, expected=expected, identities=identities)
