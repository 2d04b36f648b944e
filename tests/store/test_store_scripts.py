"""Scripts in the database: none in memory, each once, gone with the last chain that uses it."""

from __future__ import annotations

import json
import tracemalloc
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import select, update
from stored_values import record, reopened, with_script
from test_store_upgrading import EARLIER, thaw

from mirage.domain.chain import Chain, ChainId, ChainRecord, ChainStatus
from mirage.domain.errors import ConfigError
from mirage.domain.job import BatchScript
from mirage.domain.link import Link
from mirage.domain.script import StoredScript, script_digests
from mirage.provisioner.limits import stored_bytes, without_script
from mirage.slurm.batchscript import plan_settings
from mirage.store.opening import open_store
from mirage.store.schema import upgrade_store
from mirage.store.tables import scripts

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirage.store.opening import Store

MB = 1 << 20
SECRET = "what only the database holds"
SCRIPT = BatchScript(
    f"#!/bin/sh\n#SBATCH -L a\n# {SECRET}\N{SNOWMAN}\udcff\n",
    ("--mem=1",),
    (("HOME", "/home/alice"), ("WHY", SECRET), ("WHY", "\udcfe")),
    "/home/alice",
    (SECRET, "$2"),
    umask=0o27,
)
BOTH = ["sqlite", pytest.param("postgres", marks=pytest.mark.xdist_group("postgres"))]


def scripted(name: str = "svc", batch: BatchScript = SCRIPT, owner: str = "alice") -> ChainRecord:
    chain = record(name).chain
    return ChainRecord(replace(chain, owner=owner, request=replace(chain.request, batch=batch)))


def contents(store: Store) -> int:
    return len(store.database.read(lambda c: c.execute(select(scripts.c.digest)).all()))


def test_records_in_memory_hold_no_text(store: Store) -> None:
    store.chains.save(scripted())
    for view in (store.chains, reopened(store)):
        (found,) = view.load()
        batch = found.chain.request.batch
        assert isinstance(batch, StoredScript)
        assert (batch.text, batch.environment, batch.arguments) == ("", (), ())
        assert SECRET not in repr(found)
        assert (batch.options, batch.directory, batch.umask) == (SCRIPT.options, SCRIPT.directory, SCRIPT.umask)
        assert with_script(view, found) == scripted()
        assert script_digests(batch) == script_digests(SCRIPT)


def test_memory_does_not_grow_with_scripts(store: Store) -> None:
    """Forty megabytes of scripts and environments, written and read again."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for k in range(10):
            environment = tuple((f"V{i}", str(k) * 100) for i in range(1_000))
            store.chains.save(scripted(f"c{k}", BatchScript(f"#{k}" + "x" * 4 * MB, (), environment, "/")))
        view = reopened(store)
        assert len(view.load()) == 10
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 2 * MB
    assert sum(stored_bytes(each.chain) for each in view.load()) > 40 * MB


def test_a_link_gets_the_script_its_environment_and_what_is_its_own(store: Store) -> None:
    whole = scripted()
    store.chains.save(whole)
    (found,) = store.chains.load()
    link = found.chain.link_request(3)
    assert store.chains.with_script(link) == whole.chain.link_request(3)


def test_quota_and_class_of_plan_are_those_of_the_whole_script(store: Store) -> None:
    store.chains.save(scripted())
    (found,) = store.chains.load()
    assert found.chain.request.batch is not None
    assert stored_bytes(found.chain) == stored_bytes(scripted().chain)
    assert plan_settings(found.chain.request.batch) == plan_settings(SCRIPT)


def test_what_is_equal_is_stored_once_and_goes_with_the_last_chain(store: Store) -> None:
    for owner, name in (("alice", "a"), ("alice", "b"), ("bob", "c")):
        store.chains.save(scripted(name, owner=owner))
    store.chains.save(scripted("d", replace(SCRIPT, text="#!/bin/sh\nother\n")))
    assert contents(store) == 3, "two scripts, one environment"
    for name, left in (("d", 2), ("a", 2), ("c", 2), ("b", 0)):
        found = next(each for each in store.chains.load() if each.chain.chain_id == name)
        store.chains.save(without_script(replace(found, status=ChainStatus.DONE)))
        assert contents(store) == left
    assert [each.chain.request.batch for each in store.chains.load()] == [
        BatchScript("", SCRIPT.options, (), SCRIPT.directory, umask=SCRIPT.umask)
    ] * 4


def test_a_script_goes_with_a_chain_that_is_forgotten(store: Store) -> None:
    for name in ("old", "new"):
        store.chains.save(replace(scripted(name), status=ChainStatus.DONE))
    store.chains.save(scripted("runs", replace(SCRIPT, text="runs")))
    assert store.chains.prune(0, 1) == 1
    assert contents(store) == 3
    last, runs = store.chains.load()
    assert with_script(store.chains, last) == replace(scripted("new"), status=ChainStatus.DONE)
    assert with_script(store.chains, runs).chain.request.batch == replace(SCRIPT, text="runs")


@pytest.mark.parametrize("damage", ["changed", "gone"])
def test_a_damaged_script_is_never_submitted(store: Store, damage: str) -> None:
    store.chains.save(scripted())
    change = update(scripts).values(content=b"rm -rf ~") if damage == "changed" else scripts.delete()
    store.database.write(lambda c: c.execute(change))
    (found,) = reopened(store).load()
    with pytest.raises(ConfigError, match="restore a backup"):
        store.chains.with_script(found.chain.link_request(1))


def inline(store_url: str, batches: dict[str, BatchScript]) -> None:
    """Stores scripts as versions did that had no table for them; ``other`` gets its documents damaged."""
    import sqlalchemy as sa

    engine = sa.create_engine(store_url.replace("postgresql://", "postgresql+psycopg://"))
    here = sa.table("chains", sa.column("chain_id"), sa.column("definition"))
    with engine.begin() as connection:
        for name, batch in batches.items():
            row = sa.select(here.c.definition).where(here.c.chain_id == name)
            chain = json.loads(connection.execute(row).scalar_one())
            chain["request"]["batch"] = {
                "text": batch.text,
                "options": batch.options,
                "environment": batch.environment,
                "directory": batch.directory,
                "arguments": batch.arguments,
                "umask": batch.umask,
            }
            connection.execute(sa.update(here).where(here.c.chain_id == name).values(definition=json.dumps(chain)))
    engine.dispose()


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("revision", [each for each in EARLIER if each < "0005"])
def test_scripts_of_earlier_schemas_are_found_again(
    revision: str, kind: str, new_url: Callable[[str], str], tmp_path
) -> None:
    url = thaw(revision, new_url(kind))
    bare = replace(SCRIPT, environment=(), arguments=())
    inline(url, {"svc": SCRIPT, "other": bare})
    upgrade_store(url, tmp_path, keep=False)
    store = open_store(url)
    found = {each.chain.chain_id: each for each in store.chains.load()}
    assert SECRET not in repr(found)
    for name, batch in (("svc", SCRIPT), ("other", bare)):
        chain: Chain = found[ChainId(name)].chain
        assert store.chains.with_script(chain.request).batch == batch
        assert stored_bytes(chain) == stored_bytes(replace(chain, request=replace(chain.request, batch=batch)))
    assert contents(store) == 3
    one = found[ChainId("svc")]
    store.chains.save(one.with_link(Link(one.next_index, one.chain.tag(one.next_index), 900)))
    assert store.chains.with_script(reopened(store).load()[0].chain.request).batch == SCRIPT
    store.close()
