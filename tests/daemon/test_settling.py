"""Objects of the start are exempt from garbage collection; later ones are not."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import gc, weakref
from mirage.daemon.host import settle

class Node:
    pass

def cycle():
    node = Node()
    node.itself = node
    return weakref.ref(node)

before = cycle()
settle()
assert before() is None, "what was garbage already is not kept for ever"
assert gc.get_freeze_count() > 1_000
assert len(gc.get_objects()) < 1_000
after = cycle()
gc.collect()
assert after() is None
"""


def test_the_collector_looks_only_at_what_came_later() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)
