"""A request that names no account counts for its user's default one, as at sbatch."""

from __future__ import annotations

import pytest

from mirage.domain.errors import ConfigError
from mirage.simulator.accounts import Accounts
from mirage.simulator.configuration.slurmconf import ASSOCIATIONS_FILE, USERS_FILE, read_slurm_conf
from mirage.simulator.model import ClusterTables

CONF = """
ClusterName=site
NodeName=n[1-4] CPUs=16
PartitionName=gpu Nodes=n[1-4] Default=YES
AccountingStorageEnforce=limits
"""
ASSOC = """Cluster|Account|User|MaxJobs
site|root||
site|limited||
site|limited|alice|1
site|limited|bob|1
site|research||
site|research|alice|
site|research|bob|
"""


def account_of(user: str, users: str | None) -> str:
    beside = {ASSOCIATIONS_FILE: ASSOC} | ({USERS_FILE: users} if users is not None else {})
    model = ClusterTables(read_slurm_conf(CONF, "slurm.conf", beside).config)
    accounts = Accounts.of(model.cluster, model.resources)
    return accounts.rows[accounts.association(user, "")].account


@pytest.mark.parametrize(
    ("users", "alice", "bob"),
    [
        ("User|Def Acct|Admin\nalice|research|None\nbob|limited|None\n", "research", "limited"),
        ("User|Def Acct|Admin\nalice|research|None\n", "research", "limited"),
        ("User|Def Acct|Admin\nalice||None\n", "limited", "limited"),
        (None, "limited", "limited"),
    ],
)
def test_default_account_comes_first(users: str | None, alice: str, bob: str) -> None:
    assert (account_of("alice", users), account_of("bob", users)) == (alice, bob)


def test_another_dump_is_refused() -> None:
    with pytest.raises(ConfigError, match=USERS_FILE):
        account_of("alice", "Name|Priority\nnormal|0\n")
