"""Quotas: how much one user may store, and that no user locks out another."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fakes import FakeCluster, chain
from loops import Service

from mirage.domain.chain import Chain, ChainId, ChainRecord, ChainStatus
from mirage.domain.command import AddChain, CancelChain
from mirage.domain.errors import QuotaExceeded
from mirage.domain.job import BatchScript
from mirage.provisioner.limits import Quotas, check_quota, without_script
from mirage.provisioner.tally import Tally, stored_bytes
from mirage.store.opening import open_store

MB = 1 << 20


def of(owner: str, name: str, size: int = 100) -> Chain:
    svc = chain(name=name)
    batch = BatchScript("#" * size, (), (("HOME", "/home"),), "/home")
    return replace(svc, owner=owner, request=replace(svc.request, batch=batch))


def records(
    owner: str, count: int, size: int = 100, status: ChainStatus = ChainStatus.ACTIVE
) -> list[ChainRecord]:
    return [ChainRecord(of(owner, f"{owner}{k}", size), status=status) for k in range(count)]


def within(taken: list[ChainRecord], new: Chain, quotas: Quotas) -> None:
    check_quota(Tally.of(taken, 0), new, quotas)


def test_chains_per_user_are_bounded() -> None:
    quotas = Quotas(chains_per_user=5)
    within(records("alice", 4), of("alice", "new"), quotas)
    with pytest.raises(QuotaExceeded):
        within(records("alice", 5), of("alice", "new"), quotas)
    within(records("alice", 5), of("bob", "new"), quotas)
    within(records("alice", 49, status=ChainStatus.DONE), of("alice", "new"), quotas)
    with pytest.raises(QuotaExceeded):
        within(records("alice", 50, status=ChainStatus.DONE), of("alice", "new"), quotas)


def test_stored_bytes_per_user_are_bounded() -> None:
    """Sixty scripts of 4 MB: sixteen are taken."""
    taken: list[ChainRecord] = []
    for k in range(60):
        new = of("mallory", f"evil{k}", 4 * MB - 100)
        try:
            within(taken, new, Quotas())
        except QuotaExceeded:
            break
        taken.append(ChainRecord(new))
    assert len(taken) == 16
    within(taken, of("bob", "work", 4 * MB), Quotas())


def test_totals_keep_no_modest_user_out() -> None:
    """Greedy users fill the total; a user within the share of one is still admitted."""
    quotas = Quotas(chains_per_user=0, chains=10, stored_mb_per_user=0, stored_mb=10)
    full = records("mallory", 10, MB)
    with pytest.raises(QuotaExceeded):
        within(full, of("mallory", "new"), quotas)
    within(full, of("bob", "work", MB), quotas)
    within([*full, *records("bob", 1, MB)], of("bob", "work2", MB), quotas)


def test_zero_means_no_quota() -> None:
    within(records("alice", 3_000), of("alice", "new", 10 * MB), Quotas(0, 0, 0, 0))


def test_loop_refuses_beyond_the_quota_and_counts_within_a_cycle() -> None:
    """All commands of one cycle are counted, not only those that an earlier cycle has shown."""
    service = Service(FakeCluster(), quotas=Quotas(chains_per_user=4))
    asked = [service.commands.put(AddChain(of("alice", f"a{k}"), "alice")) for k in range(6)]
    service.loop.cycle()
    assert [type(one.exception()) for one in asked].count(QuotaExceeded) == 3, (
        "the service has one of hers already"
    )


def test_a_chain_that_is_over_keeps_no_script() -> None:
    service = Service(FakeCluster(), chain_=of("alice", "svc", MB))
    service.cycle(0)
    service.commands.put(CancelChain(ChainId("svc"), "alice"))
    for time in (60, 120, 180):
        service.cycle(time)
    assert service.record.over
    assert stored_bytes(service.record.chain) == 0
    assert service.record.chain.request.batch.directory == "/home"


def test_a_chain_that_may_go_on_keeps_its_script() -> None:
    for status in (ChainStatus.ACTIVE, ChainStatus.PAUSED):
        record = ChainRecord(of("alice", "svc"), status=status)
        assert without_script(record) is record


def test_history_of_one_owner_is_bounded(tmp_path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/mirage.db")
    for record in (*records("alice", 9, status=ChainStatus.STOPPED), *records("bob", 2)):
        store.chains.save(record)
    assert store.chains.prune(0, 4) == 5
    left = [record.chain.name for record in store.chains.load()]
    assert left == ["alice5", "alice6", "alice7", "alice8", "bob0", "bob1"]
    store.close()
