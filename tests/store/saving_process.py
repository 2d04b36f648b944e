"""Saves ever more of one chain and says so, until it is killed: python saving_process.py URL."""

from __future__ import annotations

import sys
from dataclasses import replace

from stored_values import ran, record

from mirage.domain.journal import Entry, EntryKind
from mirage.store.opening import open_store


def main(url: str) -> None:
    store = open_store(url)
    known = store.chains.load()
    value = known[0] if known else record()
    store.chains.save(value)
    while True:
        n = len(value.links) + 1
        value = replace(value.with_link(ran(n, 100 * n, 100 * n + 150)), failures=n)
        store.journal.write(Entry(n, value.chain.chain_id, EntryKind.ACTION, f"link {n}"))
        store.chains.save(value)
        sys.stdout.write(f"{n}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
