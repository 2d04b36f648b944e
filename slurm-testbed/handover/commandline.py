"""``slurm-testbed/serving``: a separate testbed, two links, a reverse proxy, a load; exit 1: a request failed."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from mirage.allocation.inference.serving.load_client import LoadPlan, drive, fine_loop
from mirage.domain.errors import MirageError

from handover.bed import Bed, Failed
from handover.chain import MODEL, Chain, write_site
from handover.figures import Course, document, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirage.allocation.inference.serving.load_client import TimedAnswer

BEFORE = 10.0
"""Seconds of load before the second link is submitted."""
AFTER = 5.0
LONGEST = 120.0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the measurement; returns the exit code."""
    args = _parser().parse_args(argv)
    try:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mirage-serving-")))
            _say("starting a Slurm of two nodes with NPUs")
            bed = stack.enter_context(Bed.started(args.dir, args.base_port))
            told, course = _play(Chain(folder, bed), args.rate, stack)
    except (Failed, MirageError) as failed:
        _say(f"serving: {failed}")
        return 1
    sys.stdout.write(table(told, course))
    if args.json:
        args.json.write_text(document(told, course))
    return 0 if all(each.status == 200 for each in told) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="serving", description=__doc__)
    parser.add_argument("--rate", type=float, default=100.0, metavar="N", help="requests per second (default 100)")
    parser.add_argument("--dir", type=Path, default=Path("/run/mirage-serving"), help="the testbed's directory")
    parser.add_argument("--base-port", type=int, default=28_000, metavar="P", help="the testbed's first port")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write the figures as JSON")
    return parser


def _play(chain: Chain, rate: float, stack: ExitStack) -> tuple[list[TimedAnswer], Course]:
    key = write_site(chain.folder)
    first = chain.submit()
    stack.callback(chain.end)
    _say(f"submitted job {first}, the first link; its workers start")
    chain.wait_for_address("")
    front = stack.enter_context(chain.front())
    _say(f"it answers at {chain.address()}; {rate:g} requests per second go to the reverse proxy at {front}")
    with asyncio.Runner(loop_factory=fine_loop) as runner:
        return runner.run(_ask_meanwhile(chain, first, LoadPlan(front, key, MODEL, rate, LONGEST, None, 0)))


async def _ask_meanwhile(chain: Chain, first: int, plan: LoadPlan) -> tuple[list[TimedAnswer], Course]:
    over = asyncio.Event()
    asking = asyncio.create_task(drive(plan, over))
    try:
        course = await _hand_over(chain, first)
    finally:
        over.set()
    return await asking, course


async def _hand_over(chain: Chain, first: int) -> Course:
    clock = asyncio.get_running_loop().time
    began, before = clock(), chain.address()
    await asyncio.sleep(BEFORE)
    second = await asyncio.to_thread(chain.submit)
    submitted = clock()
    _say(f"submitted job {second}, the second link")
    await asyncio.to_thread(chain.wait_for_address, before)
    taken_over = clock()
    _say(f"the second link has taken over at {chain.address()}; the first drains and ends")
    await asyncio.to_thread(chain.wait_for_end, first)
    ended = clock()
    await asyncio.sleep(AFTER)
    return Course(began, submitted, taken_over, ended)


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
