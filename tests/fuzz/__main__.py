"""``python tests/fuzz --seconds 60``: every target for its share of the time, or those whose names hold a word."""

from __future__ import annotations

import argparse
import random
import sys
import time
import traceback
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[1]))  # what tests share

from fuzzing import fuzz_for
from targets import TARGETS


def main() -> int:
    """Return exit code 1 if an error was found; the output names the seed that reproduces it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="for all of them together")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 31))
    parser.add_argument("--only", default="", metavar="WORD", help="targets whose names hold it")
    asked = parser.parse_args()
    chosen = [target for target in TARGETS if asked.only in target.name]
    sys.stdout.write(f"{len(chosen)} readers, {asked.seconds:.0f} s, seed {asked.seed}\n")
    sys.stdout.flush()
    begun, read, faulty = time.monotonic(), 0, []
    for place, target in enumerate(chosen):
        share = (asked.seconds - (time.monotonic() - begun)) / (len(chosen) - place)
        try:
            read += fuzz_for(target, share, asked.seed)
        except BaseException as fault:
            if isinstance(fault, KeyboardInterrupt):
                raise
            faulty.append(target.name)
            sys.stdout.write(f"\n{target.name}: {type(fault).__name__}\n")
            traceback.print_exc(file=sys.stdout)
            sys.stdout.flush()
    took = time.monotonic() - begun
    sys.stdout.write(f"{read:,} inputs in {took:.0f} s; faults: {', '.join(faulty) or 'none'}\n")
    return 1 if faulty else 0


if __name__ == "__main__":
    sys.exit(main())
