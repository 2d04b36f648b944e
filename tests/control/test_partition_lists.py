"""A link that may use several partitions could preempt its predecessor on the nodes that it is bound to."""

from __future__ import annotations

from dataclasses import replace

import pytest
from control.test_one_writer import LINKS, after
from fakes import HOUR, MIN, FakeCluster, Fate, chain
from loops import Service
from provisioner.test_machine import job

from mirage.control.startplans import _misplaced
from mirage.domain.chain import Steering
from mirage.domain.job import JobState


@pytest.mark.parametrize("steering", [Steering.PIN, Steering.AUTO])
@pytest.mark.parametrize("where", ["field", "option", "script"])
def test_link_that_may_preempt_its_predecessor_is_not_bound_to_its_nodes(where: str, steering: Steering) -> None:
    wanted = chain(done=LINKS, steering=steering)
    assert wanted.request.batch is not None
    request = wanted.request
    if where == "field":
        request = replace(request, partition="low,high")
    elif where == "option":
        request = replace(request, batch=replace(wanted.request.batch, options=("--partition=low,high",)))
    else:
        script = "#!/bin/sh\n#SBATCH -p low,high\nexec serve\n"
        request = replace(request, batch=replace(wanted.request.batch, text=script))
    cluster = FakeCluster(lambda request: Fate(wait=HOUR))
    Service(cluster, chain_=replace(wanted, request=request)).run(500 * HOUR, tick=MIN)
    assert [request.dependencies for request in cluster.submissions] == [(), after(100), after(101)]
    assert [change for _, change in cluster.changes if change.node_list] == []


def test_successor_in_another_partition_than_an_adopted_job_is_not_bound_to_its_nodes() -> None:
    request = replace(chain().request, partition="high")
    low = job(1, JobState.RUNNING, 0, HOUR)
    assert _misplaced(request, replace(low, partition="low"))
    assert not _misplaced(request, replace(low, partition="high"))
    assert not _misplaced(replace(request, partition=""), replace(low, partition="low"))
