"""UIDs of names in each kind of database."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mirage.store.opening import Store


def test_uids_of_names_are_kept(store: Store) -> None:
    assert store.holders.load() == {}
    for name, uid in (("alice", 1_007), ("bob", 2**32 - 2), ("alice", 1_050), ("été", 3)):
        store.holders.put(name, uid)
    assert store.holders.load() == {"alice": 1_050, "bob": 2**32 - 2, "été": 3}
