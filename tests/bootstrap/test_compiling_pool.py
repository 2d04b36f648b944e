"""The code compiled beforehand covers a run of tasks: the run compiles nothing more."""

from __future__ import annotations

from typing import Any

from mirage.allocation.ddl.das.loops import assigning, seeing
from mirage.allocation.ddl.kernel import mainloop, placing, rearranging, repacking
from mirage.bootstrap.compiling_pool import compile_pool


def test_every_way_to_decide_is_compiled() -> None:
    compile_pool()
    loops: tuple[Any, ...] = (
        placing.place_in_order,
        rearranging.rearrange,
        repacking.repack,
        mainloop.advance,
        mainloop.play_in_order,
        seeing.see,
        seeing.see_nodes,
        assigning.assign,
    )
    for loop in loops:
        assert loop.signatures, loop
