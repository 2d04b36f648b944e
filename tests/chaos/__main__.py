"""Play many seeds in parallel: ``python -m chaos 0-999``. Print the story of each that breaks an invariant."""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from concurrent.futures import ProcessPoolExecutor

from chaos.scenario import Verdict, play


def main() -> int:
    """Exit code 1 where an invariant broke."""
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument("seeds", nargs="*", default=["0-999"], help="such as 0-999 or 17")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    given = parser.parse_args()
    seeds = [seed for text in given.seeds for seed in _range(text)]
    began, verdicts = time.monotonic(), []
    with ProcessPoolExecutor(given.jobs) as pool:
        for verdict in pool.map(_play, seeds):
            verdicts.append(verdict)
            if verdict.broken:
                sys.stdout.write(f"\n{verdict}\n")
            _progress(verdicts, len(seeds), time.monotonic() - began)
    sys.stdout.write(f"\n{_summary(verdicts)}\n")
    return int(any(verdict.broken for verdict in verdicts))


def _play(seed: int) -> Verdict:
    """A seed that raises is one that broke, and ends no other."""
    try:
        return play(seed)
    except Exception:
        return Verdict(seed, (traceback.format_exc(),), (), 0, 0, 0)


def _range(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def _progress(verdicts: list[Verdict], count: int, seconds: float) -> None:
    broken = sum(bool(verdict.broken) for verdict in verdicts)
    line = f"{len(verdicts)} of {count} seeds, {broken} broken, {seconds:.0f} s"
    if sys.stdout.isatty():
        sys.stdout.write(f"\r{line}")
    elif not len(verdicts) % 50:
        sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _summary(verdicts: list[Verdict]) -> str:
    failed = [str(verdict.seed) for verdict in verdicts if verdict.broken]
    total = {
        name: sum(getattr(verdict, name) for verdict in verdicts)
        for name in ("links", "steps", "deaths", "cycles", "deeds")
    }
    faults = sum(len(verdict.story) - verdict.deeds for verdict in verdicts)
    return (
        f"{len(verdicts)} seeds: {total['links']} links wrote {total['steps']} steps in {total['cycles']} cycles, "
        f"the daemon killed {total['deaths']} times, {faults} faults, {total['deeds']} deeds of people; "
        f"broken: {', '.join(failed) or 'none'}"
    )


if __name__ == "__main__":
    sys.exit(main())
