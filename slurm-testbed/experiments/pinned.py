"""A successor that requests its predecessor's node, on a busy real cluster: time from end to start.

For comparison, another user submits a job at the predecessor's end, as a chain without early submission would.
Needs what ``steering.py`` needs, and a partition of two nodes.

    pinned.py --state DIR [--repeats 3]
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from bed import Testbed

OWNER, OTHER, LATE = "alice", "bob", "carol"
LIMIT = 7_200
ONE_NODE = ("-N1", "--exclusive", "-t")


def hand_over(bed: Testbed) -> str:
    """One handover after two hours; before the successor two jobs of another user wait, behind it ten."""
    before = bed.submit(OWNER, *ONE_NODE, str(LIMIT // 60))
    while bed.show(before)["JobState"] != "RUNNING":
        time.sleep(0.05)
    node, due = bed.show(before)["NodeList"], float(bed.show(before)["EndTime"])
    crowd = [bed.submit(OTHER, *ONE_NODE, "60") for _ in range(2)]
    after = bed.submit(OWNER, *ONE_NODE, "60", "-w", node)
    crowd += [bed.submit(OTHER, *ONE_NODE, "60") for _ in range(10)]
    bed.sleep_until(due - 600)
    planned = bed.show(after)["StartTime"]
    bed.sleep_until(due)
    fresh = bed.submit(LATE, *ONE_NODE, "60")
    while bed.show(after)["JobState"] == "PENDING":
        time.sleep(0.1)
    bed.sleep_until(bed.now() + 120)
    end = float(bed.show(before)["EndTime"])
    begun, fresh_plan = float(bed.show(after)["StartTime"]), bed.show(fresh)["StartTime"]
    bed.cancel(before, after, fresh, *crowd)
    return (
        f"planned {float(planned) - due:+.0f} s from the limit; started {begun - end:+.0f} s from the end; "
        f"one submitted at the end: planned {float(fresh_plan) - end:+.0f} s"
    )


def main() -> None:
    """Print one line per handover."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--state", type=Path, required=True, help="the testbed's state directory")
    parser.add_argument("--partition", default="cpu", help="partition of two nodes without other jobs")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    bed = Testbed.open(options.state, options.partition)
    for _ in range(options.repeats):
        sys.stdout.write(hand_over(bed) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
