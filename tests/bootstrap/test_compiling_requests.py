"""Policies run in code that is compiled beforehand: later requests compile nothing more."""

from __future__ import annotations

from typing import Any

from mirage.allocation.inference.kernel import deciding, mainloop, playing, scored, seeing
from mirage.allocation.inference.registry import request_policy
from mirage.allocation.inference.workload.scenario import find_scenario
from mirage.allocation.inference.workload.stage import set_stage
from mirage.bootstrap.compiling_allocation import compile_requests

LOOPS: tuple[Any, ...] = (
    deciding.decide,
    scored.decide_scored,
    seeing.see,
    mainloop.advance,
    mainloop.obey,
    playing.play,
    playing.follow,
    playing.play_in_lines,
)


def test_every_way_to_decide_is_compiled_and_once() -> None:
    compile_requests()
    before = [loop.signatures for loop in LOOPS]
    assert all(before)
    stage = set_stage(find_scenario("mixed-heavy"))
    for name in ("sjf", "herald", "magma", "listed"):
        simulated, policy = stage.simulated(0), request_policy(name)
        for _ in range(20):
            simulated.advance()
            simulated.dispatch(policy.decide(simulated.view()))
    assert [loop.signatures for loop in LOOPS] == before
