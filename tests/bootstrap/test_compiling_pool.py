"""The code compiled beforehand covers a run of tasks: the run compiles nothing more."""

from __future__ import annotations

from typing import Any

from mirage.allocation.ddl.kernel import das_assigning, das_seeing, mainloop, placing, rearranging
from mirage.bootstrap.compiling_allocation import compile_pool


def test_every_way_to_decide_is_compiled() -> None:
    compile_pool()
    loops: tuple[Any, ...] = (
        placing.place_in_order,
        rearranging.rearrange,
        rearranging.repack,
        mainloop.advance,
        mainloop.play_in_order,
        das_seeing.see,
        das_seeing.see_nodes,
        das_assigning.assign,
    )
    for loop in loops:
        assert loop.signatures, loop
