"""Multifactor priority by SchedMD's documentation: priority_multifactor.html, slurm.conf(5)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from reference_slurm import Account, classic_fair_share, fair_tree, level_fair_share, users_of
from small_clusters import HOUR, T0, after, ask, cluster, node_names, partition, priority, simulate, weights

from mirage.simulator.cluster import Association, FairShare, NodeGroup, PriorityWeights, Qos

if TYPE_CHECKING:
    from mirage.domain.job import JobRequest
    from mirage.simulator.cluster import ClusterConfig
    from mirage.simulator.simulation import Simulation

WEIGHT = 1_000_000


def drained(config: ClusterConfig) -> Simulation:
    """A cluster on whose partition "main" every job waits, and nothing is used."""
    sim = simulate(config)
    sim.set_nodes(config.partitions[0].nodes, "drain")
    return sim


def priorities(config: ClusterConfig, *requests: JobRequest) -> list[int]:
    """The priorities of jobs submitted together at ``T0``."""
    sim = drained(config)
    ids = [sim.submit(request, 60) for request in requests]
    after(sim, 0)
    return [priority(sim, job_id) for job_id in ids]


def with_a_spare_node(**changes: Any) -> ClusterConfig:
    """Four nodes in "main", one in "spare", where a short job makes the controller look at the whole queue."""
    names = node_names(5)
    parts = (partition("main", names[:4]), partition("spare", names[4:]))
    return cluster(nodes=5, partitions=parts, **changes)


def look(sim: Simulation, user: str = "ann", account: str = "") -> None:
    sim.submit(ask(user=user, account=account, partition="spare", limit=60), 1)
    sim.run_until(sim.now)


def ages(weigh: PriorityWeights, waited: int, *requests: JobRequest) -> list[int]:
    """The priorities of jobs submitted at ``T0``, ``waited`` seconds later."""
    sim = drained(with_a_spare_node(priority=weigh))
    ids = [sim.submit(request, 60) for request in requests]
    look(after(sim, waited))
    return [priority(sim, job_id) for job_id in ids]


AGE = weights(age=1000, max_age=1000, calc_period=10)


@pytest.mark.parametrize(("waited", "factor"), [(0, 0.0), (250, 0.25), (1000, 1.0), (5000, 1.0)])
def test_age_grows_until_max_age(waited: int, factor: float) -> None:
    """slurm.conf(5), PriorityMaxAge: the job age which will be given the maximum age factor."""
    (got,) = ages(AGE, waited, ask(limit=10 * HOUR))
    assert got == pytest.approx(1000 * factor, abs=11)  # recalculated every 10 s; never below 1


def test_age_counts_from_begin_time() -> None:
    got = ages(AGE, 600, ask(), ask(begin=T0 + 400))
    assert got == pytest.approx([600, 200], abs=11)


def test_age_counts_from_submission_when_it_always_accrues() -> None:
    """PriorityFlags=ACCRUE_ALWAYS: age increases despite dependencies, holds or a begin time in the future."""
    got = ages(replace(AGE, accrue_always=True), 600, ask(), ask(begin=T0 + 400))
    assert got == pytest.approx([600, 600], abs=11)


@pytest.mark.parametrize(("nodes", "factor"), [(1, 0.25), (2, 0.5), (4, 1.0)])
def test_job_size_is_the_mean_of_its_shares_of_nodes_and_cpus(nodes: int, factor: float) -> None:
    """A job that asks for every node of the machine has the factor 1.0."""
    config = cluster(nodes=4, cpus=4, priority=weights(job_size=WEIGHT))
    assert priorities(config, ask(nodes=nodes, cpus_per_node=4)) == pytest.approx([WEIGHT * factor], abs=1)


def test_job_size_counts_nodes_and_cpus_half_each_on_shared_nodes() -> None:
    config = cluster(nodes=4, cpus=4, exclusive=False, priority=weights(job_size=WEIGHT))
    got = priorities(config, ask(nodes=2, cpus_per_node=1))
    assert got == pytest.approx([WEIGHT * (2 / 4 + 2 / 16) / 2], abs=1)


def test_favor_small_turns_job_size_round() -> None:
    """PriorityFavorSmall=YES: ((N - n) / N + (C - c) / C) / 2."""
    config = cluster(nodes=4, cpus=4, priority=weights(job_size=WEIGHT, favor_small=True))
    got = priorities(config, ask(nodes=1, cpus_per_node=4), ask(nodes=4, cpus_per_node=4))
    assert got == pytest.approx([WEIGHT * 0.75, 1], abs=1)


def test_size_relative_to_time_divides_cpus_by_minutes() -> None:
    """PriorityFlags=SMALL_RELATIVE_TO_TIME: a full-system job with a limit of one minute has the factor 1.0."""
    config = cluster(nodes=4, cpus=4, priority=weights(job_size=WEIGHT, small_relative_to_time=True))
    got = priorities(
        config,
        ask(nodes=4, cpus_per_node=4, limit=60),
        ask(nodes=4, cpus_per_node=4, limit=600),
        ask(nodes=2, cpus_per_node=4, limit=300),
    )
    assert got == pytest.approx([WEIGHT, WEIGHT / 10, WEIGHT / 10], abs=1)


def test_partition_factor_is_normalised_by_the_largest() -> None:
    """priority_multifactor.html's example: PriorityJobFactor 20 and 10 with a weight of 5000 give 5000, 2500."""
    names = node_names(4)
    parts = (
        partition("main", names, priority_job_factor=20),
        partition("second", names, priority_job_factor=10),
    )
    config = cluster(partitions=parts, priority=weights(partition=5000))
    assert priorities(config, ask(), ask(partition="second")) == [5000, 2500]


def test_qos_factor_is_normalised_by_the_largest() -> None:
    qos = (Qos("normal", priority=0), Qos("high", priority=40), Qos("low", priority=10))
    config = cluster(qos=qos, priority=weights(qos=8000))
    assert priorities(config, ask(qos="high"), ask(qos="low"), ask(qos="normal")) == [8000, 2000, 1]


def test_nice_is_subtracted_and_priority_stays_above_zero() -> None:
    """sbatch(1), --nice; priority 0 is kept for held jobs."""
    names = node_names(4)
    config = cluster(partitions=(partition("main", names),), priority=weights(partition=5000))
    got = priorities(config, ask(), ask(nice=100), ask(nice=-100), ask(nice=1_000_000))
    assert got == [5000, 4900, 5100, 1]


def test_nice_can_be_changed() -> None:
    config = cluster(partitions=(partition("main", node_names(4)),), priority=weights(partition=5000))
    sim = drained(config)
    job = sim.submit(ask(), 60)
    sim.set_nice(job, 300)
    assert priority(after(sim, 1), job) == 4700


def test_tres_weights_count_shares_of_the_partition() -> None:
    """PriorityWeightTRES: each weight times requested / configured in the partition."""
    config = cluster(nodes=4, cpus=4, exclusive=False, priority=weights(tres=(("cpu", 1000.0),)))
    assert priorities(config, ask(nodes=2, cpus_per_node=2)) == pytest.approx([250], abs=1)


def association_rows(root: Account) -> tuple[Association, ...]:
    """The accounts and users below ``root`` as rows of the association table."""
    rows: list[Association] = []

    def descend(account: Account, parent: str) -> None:
        for child in account.children:
            if child.is_user:
                rows.append(
                    Association(account=account.name, user=child.name, shares=child.shares, usage=child.own_usage)
                )
            else:
                rows.append(Association(account=child.name, parent=parent, shares=child.shares))
                descend(child, child.name)

    descend(root, "")
    return tuple(rows)


def account(name: str, shares: int, *children: Account) -> Account:
    return Account(name, shares, list(children))


def user(name: str, used: float = 0.0, shares: int = 1) -> Account:
    return Account(name, shares, own_usage=used, is_user=True)


def fair_share_factors(root: Account, fair: PriorityWeights) -> dict[str, float]:
    """The simulated fair-share factor of every user below ``root``."""
    config = cluster(priority=fair, associations=association_rows(root), enforce_associations=True)
    accounts = {u.name: _account_of(root, u.name) for u in users_of(root)}
    got = priorities(config, *(ask(user=name, account=acct) for name, acct in accounts.items()))
    return {name: value / WEIGHT for name, value in zip(accounts, got, strict=True)}


def _account_of(root: Account, name: str) -> str:
    for child in root.children:
        if child.is_user and child.name == name:
            return root.name
        if found := _account_of(child, name):
            return found
    return ""


CLASSIC = weights(fair_share=WEIGHT, fair_share_algorithm=FairShare.CLASSIC)
TREE = weights(fair_share=WEIGHT, fair_share_algorithm=FairShare.FAIR_TREE)

EXAMPLE = account(
    "root",
    1,
    account(
        "a",
        40,
        account("b", 30, user("user1", 0.20e9)),
        account("c", 10, user("user2", 0.25e9), user("user3")),
    ),
    account("d", 60, account("e", 25, user("user4", 0.25e9)), account("f", 35, user("user5"))),
    account("rest", 0, user("others", 0.30e9)),
)
"""The worked example of classic_fair_share.html; "rest", without shares, is what the others used."""


def test_classic_fair_share_gives_the_documented_example() -> None:
    got = fair_share_factors(EXAMPLE, CLASSIC)
    published = {"user1": 0.408479, "user2": 0.022097, "user3": 0.125, "user4": 0.5, "user5": 0.749154}
    assert {name: got[name] for name in published} == pytest.approx(published, abs=1e-4)


def test_the_reference_gives_the_documented_example() -> None:
    got = classic_fair_share(EXAMPLE)
    published = {"user1": 0.408479, "user2": 0.022097, "user3": 0.125, "user4": 0.5, "user5": 0.749154}
    assert {name: got[name] for name in published} == pytest.approx(published, abs=1e-4)


def test_dampening_divides_the_exponent() -> None:
    """FairShareDampeningFactor: F = 2 ** (-U / S / d)."""
    root = account("root", 1, account("a", 1, user("ann", 3e6)), account("b", 1, user("bob", 1e6)))
    got = fair_share_factors(root, replace(CLASSIC, dampening=5))
    assert got == pytest.approx({"ann": 2 ** (-0.75 / 0.5 / 5), "bob": 2 ** (-0.25 / 0.5 / 5)}, abs=1e-5)


def test_fair_tree_ranks_accounts_before_their_users() -> None:
    """fair_tree.html: users of an account with a higher level fair share rank above its siblings'."""
    root = account(
        "root",
        1,
        account("busy", 1, user("idle1"), user("ann", 9e6)),
        account("quiet", 1, user("bob", 1e6), user("cat", 2e6)),
    )
    assert fair_share_factors(root, TREE) == pytest.approx(
        {"bob": 1.0, "cat": 0.75, "idle1": 0.5, "ann": 0.25}, abs=1e-5
    )


def test_fair_tree_gives_equal_users_equal_ranks() -> None:
    """Sibling users with the same level fair share receive the same rank; the next rank is not moved up."""
    root = account("root", 1, account("a", 1, user("ann"), user("bob"), user("cat", 5e6)))
    assert fair_share_factors(root, TREE) == pytest.approx({"ann": 1.0, "bob": 1.0, "cat": 1 / 3}, abs=1e-5)


trees = st.recursive(
    st.tuples(st.integers(1, 9), st.integers(1, 1000)),
    lambda inner: st.tuples(st.integers(1, 9), st.lists(inner, min_size=1, max_size=3)),
    max_leaves=8,
)


def _grow(drawn: tuple[int, object], path: str) -> Account:
    shares, below = drawn
    if isinstance(below, list):
        return account(path, shares, *(_grow(child, f"{path}{i}") for i, child in enumerate(below)))
    return user(f"u{path}", float(below) * 1e5, shares)  # type: ignore[arg-type]


def _ties(root: Account) -> bool:
    levels = [level_fair_share(child, root.children) for child in root.children]
    return len(set(levels)) < len(levels) or any(_ties(child) for child in root.children)


@settings(max_examples=25, deadline=None)
@given(drawn=st.lists(trees, min_size=1, max_size=3))
def test_fair_share_equals_a_slow_recomputation(drawn: list[tuple[int, object]]) -> None:
    accounts = [(shares, below if isinstance(below, list) else [(1, below)]) for shares, below in drawn]
    root = Account("root", 1, [_grow(each, f"t{i}") for i, each in enumerate(accounts)])
    assert fair_share_factors(root, CLASSIC) == pytest.approx(classic_fair_share(root), abs=2e-6)
    assume(not _ties(root))
    assert fair_share_factors(root, TREE) == pytest.approx(fair_tree(root), abs=2e-6)


def test_usage_halves_in_a_half_life() -> None:
    """PriorityDecayHalfLife: F = 2 ** (-U / S), where the account that is charged stands still and decays."""
    half_life = 7200
    fair = replace(CLASSIC, decay_half_life=half_life, calc_period=60)
    rows = (
        Association(account="a", user="ann", shares=1, usage=16.0 * half_life),
        Association(account="a", shares=1),
        Association(account="b", shares=1),
        Association(account="b", user="bob", shares=1),
    )
    sim = simulate(with_a_spare_node(priority=fair, associations=rows, enforce_associations=True))
    sim.set_nodes(("n1", "n2", "n3"), "drain")
    sim.submit(ask(user="bob", account="b", limit=10 * HOUR), 10 * HOUR)  # 4 CPUs, charged 4 per second
    waiting = sim.submit(ask(user="ann", account="a", limit=10 * HOUR), 60)
    look(after(sim, half_life), "bob", "b")
    ann = 16.0 * half_life / 2
    # What bob is charged decays as well: the integral of 4 * 2 ** (-t / half_life) over one half-life.
    bob = 4 * half_life * (1 - 0.5) / 0.6931471805599453
    expected = 2 ** (-(ann / (ann + bob)) / 0.5)
    assert priority(sim, waiting) / WEIGHT == pytest.approx(expected, rel=0.02)


def test_billing_weights_charge_gpus() -> None:
    """TRESBillingWeights=CPU=1,GRES/gpu=10: usage is the weighted sum."""
    names = node_names(2)
    groups = (NodeGroup(names=names, cpus=4, gres=(("gpu:a100", 4),)), NodeGroup(names=("s0",), cpus=4))
    parts = (
        partition("spare", ("s0",)),
        replace(
            partition("main", names, exclusive=False),
            billing_weights=(("cpu", 1.0), ("gres/gpu", 10.0)),
        ),
    )
    rows = (
        Association(account="a", user="ann", shares=1),
        Association(account="b", user="bob", shares=1),
        Association(account="a", shares=1),
        Association(account="b", shares=1),
    )
    fair = replace(CLASSIC, calc_period=60, decay_half_life=0)
    config = replace(
        cluster(priority=fair, partitions=parts, associations=rows, enforce_associations=True),
        nodes=groups,
    )
    sim = simulate(config)
    sim.submit(ask(user="ann", account="a", cpus_per_node=1, gres_per_node=(("gpu:a100", 3),)), HOUR)  # 31 a s
    sim.submit(ask(user="bob", account="b", cpus_per_node=3), HOUR)  # 3 per second
    probe = sim.submit(ask(user="ann", account="a", nodes=2, cpus_per_node=4), 60)
    look(after(sim, 1800), "bob", "b")
    assert priority(sim, probe) / WEIGHT == pytest.approx(2 ** (-(31 / 34) / 0.5), rel=0.01)


def test_no_weights_is_first_in_first_out() -> None:
    """priority/basic: jobs are prioritised in their order of arrival."""
    sim = simulate(cluster(nodes=1))
    ids = [sim.submit(ask(user=name), 100) for name in ("ann", "bob", "cat")]
    after(sim, 1000)
    starts = [sim.job(job_id).start for job_id in ids]
    assert starts == sorted(starts)
    assert len(set(starts)) == 3
