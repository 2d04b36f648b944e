"""Limits of associations and QOS by resource_limits.html; rejections by slurm.conf(5) and sbatch(1)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from small_clusters import HOUR, after, ask, cluster, node_names, partition, simulate, start

from mirage.domain.errors import SubmissionRejected
from mirage.domain.job import JobRequest, JobState
from mirage.simulator.cluster import Association, ClusterConfig, NodeGroup, Qos, TresLimit

LONG = 600


def users(**limits: object) -> tuple[Association, ...]:
    """Account "a" with users ann (with the limits) and bob (without)."""
    return (
        Association(account="a"),
        Association(account="a", user="ann", **limits),  # type: ignore[arg-type]
        Association(account="a", user="bob"),
    )


def starts(config: ClusterConfig, *requests: JobRequest, until: int = 5000) -> tuple[list[int], list[str]]:
    """Start of each job, all submitted at the same time, and its reason a little later."""
    sim = simulate(config)
    ids = [sim.submit(request, LONG) for request in requests]
    after(sim, 90)
    reasons = [sim.job(job).reason for job in ids]
    after(sim, until)
    return [start(sim, job) for job in ids], reasons


def mine(**changes: object) -> JobRequest:
    return ask(user="ann", account="a", limit=LONG, **changes)  # type: ignore[arg-type]


def others(**changes: object) -> JobRequest:
    return ask(user="bob", account="a", limit=LONG, **changes)  # type: ignore[arg-type]


def test_max_jobs_of_a_user_holds_the_next_and_lets_others_pass() -> None:
    config = cluster(associations=users(max_jobs=1))
    begun, reasons = starts(config, mine(), mine(), others())
    assert begun == [0, LONG, 0]
    assert reasons[1] == "AssocMaxJobsLimit"


def test_limits_of_users_without_a_row_come_from_the_template() -> None:
    config = cluster(default_association=Association(account="", max_jobs=1))
    begun, _ = starts(config, ask(user="ann", limit=LONG), ask(user="ann", limit=LONG), ask(user="bob"))
    assert begun == [0, LONG, 0]


def test_limits_are_not_held_where_they_are_not_enforced() -> None:
    """AccountingStorageEnforce without "limits"."""
    config = cluster(associations=users(max_jobs=1), enforce_limits=False)
    begun, _ = starts(config, mine(), mine())
    assert begun == [0, 0]


def test_grp_jobs_counts_the_whole_account() -> None:
    rows = (
        Association(account="a", grp_jobs=1),
        Association(account="a", user="ann"),
        Association(account="a", user="bob"),
    )
    begun, _ = starts(cluster(associations=rows), mine(), others())
    assert begun == [0, LONG]


@pytest.mark.parametrize("limit", [("cpu", 8), ("node", 2)])
def test_grp_tres_counts_the_whole_account(limit: tuple[str, int]) -> None:
    rows = (
        Association(account="a", grp_tres=TresLimit((limit,))),
        Association(account="a", user="ann"),
        Association(account="a", user="bob"),
    )
    config = cluster(nodes=4, cpus=4, associations=rows)
    begun, _ = starts(config, mine(cpus_per_node=4), others(cpus_per_node=4), mine(cpus_per_node=4))
    assert begun == [0, 0, LONG]


def test_grp_tres_of_a_parent_account_holds_below_it() -> None:
    rows = (
        Association(account="top", grp_tres=TresLimit((("node", 1),))),
        Association(account="a", parent="top"),
        Association(account="b", parent="top"),
        Association(account="a", user="ann"),
        Association(account="b", user="bob"),
    )
    begun, _ = starts(cluster(associations=rows), mine(), ask(user="bob", account="b", limit=LONG))
    assert begun == [0, LONG]


def test_grp_tres_counts_typed_gpus() -> None:
    rows = (
        Association(account="a", grp_tres=TresLimit((("gres/gpu:a100", 3),))),
        Association(account="a", user="ann"),
    )
    group = NodeGroup(names=node_names(2), cpus=8, gres=(("gpu:a100", 4),))
    config = replace(cluster(nodes=2, exclusive=False, associations=rows), nodes=(group,))
    gpus = (("gpu:a100", 2),)
    begun, _ = starts(config, mine(gres_per_node=gpus), mine(gres_per_node=gpus))
    assert begun == [0, LONG]


@pytest.mark.parametrize(
    "qos",
    [
        Qos("q", max_jobs_per_user=1),
        Qos("q", max_tres_per_user=TresLimit((("cpu", 4),))),
        Qos("q", max_tres_per_user=TresLimit((("node", 1),))),
    ],
)
def test_qos_limits_per_user(qos: Qos) -> None:
    config = cluster(qos=(qos,))
    asked = ask(user="ann", limit=LONG, qos="q", cpus_per_node=4)
    begun, _ = starts(config, asked, asked, ask(user="bob", limit=LONG, qos="q", cpus_per_node=4))
    assert begun == [0, LONG, 0]


def test_qos_limits_per_account() -> None:
    config = cluster(qos=(Qos("q", max_jobs_per_account=1),), associations=users())
    begun, _ = starts(config, mine(qos="q"), others(qos="q"))
    assert begun == [0, LONG]


@pytest.mark.parametrize("qos", [Qos("q", grp_jobs=1), Qos("q", grp_tres=TresLimit((("node", 1),)))])
def test_qos_limits_of_the_group(qos: Qos) -> None:
    asked = ask(user="ann", limit=LONG, qos="q")
    begun, _ = starts(cluster(qos=(qos,)), asked, ask(user="bob", limit=LONG, qos="q"))
    assert begun == [0, LONG]


ONE_NODE = TresLimit((("node", 1),))


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (cluster(associations=(Association("a", grp_jobs=1), Association("a", "ann"))), "AssocGrpJobsLimit"),
        (
            cluster(associations=(Association("a", grp_tres=ONE_NODE), Association("a", "ann"))),
            "AssocGrpNodeLimit",
        ),
        (cluster(associations=users(), qos=(Qos("q", max_jobs_per_user=1),)), "QOSMaxJobsPerUserLimit"),
        (cluster(associations=users(), qos=(Qos("q", max_tres_per_user=ONE_NODE),)), "QOSMaxNodePerUserLimit"),
        (cluster(associations=users(), qos=(Qos("q", grp_jobs=1),)), "QOSGrpJobsLimit"),
        (cluster(associations=users(), qos=(Qos("q", grp_tres=ONE_NODE),)), "QOSGrpNodeLimit"),
    ],
)
def test_the_reason_names_the_limit(config: ClusterConfig, reason: str) -> None:
    """squeue(1), JOB REASON CODES."""
    asked = mine(qos="q" if config.qos else "")
    _, reasons = starts(config, asked, asked)
    assert reasons[1] == reason


def test_a_partition_qos_limits_every_job_of_the_partition() -> None:
    config = cluster(
        qos=(Qos("part", max_jobs_per_user=1),), partitions=(partition("main", node_names(4), qos="part"),)
    )
    begun, _ = starts(config, ask(user="ann", limit=LONG), ask(user="ann", limit=LONG))
    assert begun == [0, LONG]


@pytest.mark.parametrize(
    "config",
    [
        cluster(qos=(Qos("q", max_tres_per_job=TresLimit((("node", 1),))),)),
        cluster(qos=(Qos("q", max_wall=LONG - 1),)),
    ],
)
def test_jobs_over_a_qos_limit_of_one_job_never_start(config: ClusterConfig) -> None:
    """They pend, or are rejected where the QOS says DenyOnLimit."""
    sim = simulate(config)
    try:
        job = sim.submit(ask(nodes=2, limit=LONG, qos="q"), LONG)
    except SubmissionRejected:
        return
    assert after(sim, 5000).job(job).state is JobState.PENDING


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (cluster(associations=users(max_submit=2)), "AssocMaxSubmitJobLimit"),
        (
            cluster(associations=users(), qos=(Qos("q", max_submit_per_user=2),)),
            "MaxSubmitJob",
        ),
    ],
)
def test_submissions_over_max_submit_are_refused(config: ClusterConfig, reason: str) -> None:
    sim = simulate(config)
    qos = config.qos[0].name if config.qos else ""
    for _ in range(2):
        sim.submit(mine(qos=qos), LONG)
    with pytest.raises(SubmissionRejected) as refused:
        sim.submit(mine(qos=qos), LONG)
    assert reason in refused.value.reason
    sim.submit(others(qos=qos), LONG)
    after(sim, 2 * LONG)
    sim.submit(mine(qos=qos), LONG)


def test_grp_submit_counts_the_whole_account() -> None:
    rows = (
        Association(account="a", grp_submit=1),
        Association(account="a", user="ann"),
        Association(account="a", user="bob"),
    )
    sim = simulate(cluster(associations=rows))
    sim.submit(mine(), LONG)
    with pytest.raises(SubmissionRejected):
        sim.submit(others(), LONG)


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (ask(nodes=5), "PartitionNodeLimit"),
        (ask(partition="short", limit=HOUR), "PartitionTimeLimit"),
        (ask(partition="short", nodes=3, limit=60), "PartitionNodeLimit"),
        (ask(cpus_per_node=5), ""),
        (ask(gres_per_node=(("gpu", 1),)), ""),
        (ask(features=("big",)), ""),
        (ask(partition="nowhere"), ""),
        (ask(qos="nothing"), ""),
        (ask(reservation="nothing"), ""),
    ],
)
def test_impossible_jobs_are_refused(request_: JobRequest, reason: str) -> None:
    names = node_names(4)
    short = partition("short", names, max_time=1800, max_nodes=2)
    sim = simulate(cluster(partitions=(partition("main", names), short), qos=(Qos("normal"),)))
    with pytest.raises(SubmissionRejected) as refused:
        sim.submit(request_, 60)
    assert reason in refused.value.reason


def test_unknown_users_are_refused_where_associations_are_enforced() -> None:
    sim = simulate(cluster(associations=users(), enforce_associations=True))
    with pytest.raises(SubmissionRejected):
        sim.submit(ask(user="eve", account="a"), 60)
    sim.submit(mine(), 60)
