"""Snapshots as bytes and in the archive."""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stored_values import any_snapshots, same

from mirage.domain.errors import ConfigError, StoreUnavailable
from mirage.domain.jobtable import JobLabels
from mirage.domain.snapshot import JobColumns, Snapshot
from mirage.store import snapshots
from mirage.store.snapshots import packed, unpacked

if TYPE_CHECKING:
    from mirage.store.opening import Store

HEAD = struct.Struct("<4sBI")


def snapshot(time: int, jobs: int = 3) -> Snapshot:
    columns = JobColumns(*(np.arange(i, i + jobs, dtype=np.int64) for i in range(11)))
    return replace(Snapshot.unseen(time), pending=columns, users=("alice", "bob"), stale_since=-1)


@settings(max_examples=100)
@given(any_snapshots())
def test_any_snapshot_comes_back_exactly(value: Snapshot) -> None:
    assert same(unpacked(packed(value), "here"), value)


@given(any_snapshots(), st.data())
def test_damage_is_said_and_never_read_as_something_else(value: Snapshot, data: Any) -> None:
    whole = packed(value)
    at = data.draw(st.integers(0, len(whole) - 1))
    damaged = whole[:at] + bytes([whole[at] ^ data.draw(st.integers(1, 255))]) + whole[at + 1 :]
    try:
        result = unpacked(damaged, "snapshot of 7")
    except (StoreUnavailable, ConfigError):
        return
    # Some bytes say nothing, such as deflate's own hints.
    assert same(result, value)


@given(any_snapshots(), st.data())
def test_what_is_cut_off_is_said(value: Snapshot, data: Any) -> None:
    whole = packed(value)
    with pytest.raises(StoreUnavailable, match="damaged"):
        unpacked(whole[: data.draw(st.integers(0, len(whole) - 1))], "here")


def header(data: bytes) -> tuple[Any, bytes]:
    length = HEAD.unpack_from(data)[2]
    return json.loads(zlib.decompress(data[HEAD.size : HEAD.size + length])), data[HEAD.size + length :]


def with_header(values: Any, bodies: bytes, version: int = 1) -> bytes:
    text = zlib.compress(json.dumps(values).encode())
    return HEAD.pack(b"MIRS", version, len(text)) + text + bodies


def test_a_newer_form_is_refused() -> None:
    values, bodies = header(packed(snapshot(5)))
    with pytest.raises(ConfigError, match="form is 2, this Mirage reads up to 1"):
        unpacked(with_header(values, bodies, version=2), "here")


def test_an_unknown_field_is_refused() -> None:
    values, bodies = header(packed(snapshot(5)))
    values["snapshot"]["novelty"] = 1
    with pytest.raises(ConfigError, match="novelty: a field unknown to this version"):
        unpacked(with_header(values, bodies), "here")


def test_an_unknown_column_is_refused() -> None:
    values, bodies = header(packed(snapshot(5)))
    values["columns"][0][1] = "novelty"
    with pytest.raises(ConfigError, match="novelty: a column unknown to this version"):
        unpacked(with_header(values, bodies), "here")


def test_what_an_older_version_did_not_have_is_absent() -> None:
    values, bodies = header(packed(snapshot(5)))
    del values["snapshot"]["links"]
    first = values["columns"].pop(0)
    assert first[:2] == ["pending", "job_id"]
    old = unpacked(with_header(values, bodies[first[4] :]), "here")
    assert old.links == {}
    assert old.pending.job_id.tolist() == [-1, -1, -1]
    assert old.pending.user.tolist() == [1, 2, 3]


def test_every_field_is_stored_whatever_fields_there_are() -> None:
    stored = set(snapshots._Header.__dataclass_fields__) | set(snapshots._TABLES)
    assert stored | {"labels"} == set(Snapshot.__dataclass_fields__)


def test_what_people_call_their_jobs_is_not_stored() -> None:
    labels = JobLabels.of_texts(np.array([0, 1]), ["secret-plan", ""], ["physics", "physics"])
    named = replace(snapshot(7), labels=labels)
    assert named.labels.of([0, 1, 5]) == {0: ("secret-plan", "physics"), 1: ("", "physics")}
    assert packed(named) == packed(snapshot(7))
    assert unpacked(packed(named), "here").labels.of([0, 1]) == {}


def test_the_archive_gives_a_span_in_order(store: Store) -> None:
    for time in (300, 100, 200, 400):
        store.snapshots.write(snapshot(time))
    found = list(store.snapshots.read(100, 400))
    assert [one.time for one in found] == [100, 200, 300]
    assert all(same(one, snapshot(one.time)) for one in found)
    assert store.snapshots.times(150, 10_000) == (200, 300, 400)


def test_a_second_snapshot_of_one_second_replaces_the_first(store: Store) -> None:
    store.snapshots.write(snapshot(100, jobs=3))
    store.snapshots.write(snapshot(100, jobs=5))
    [found] = store.snapshots.read(0, 1_000)
    assert len(found.pending) == 5


def test_reading_goes_on_while_old_ones_are_deleted(store: Store) -> None:
    for time in (100, 200, 300):
        store.snapshots.write(snapshot(time))
    reading = store.snapshots.read(0, 1_000)
    assert next(reading).time == 100
    with store.database._engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM snapshots WHERE time = 200")
    assert [one.time for one in reading] == [300]
