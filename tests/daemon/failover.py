"""How long a fail-over takes: python tests/daemon/failover.py [TIMES] (from the checkout; PostgreSQL installed).

Two daemons with the default lease and interval, on a fake Slurm whose clock is the machine's. The leader is killed
while its sbatch hangs, at a time drawn again each time; what is measured is the time until the other has
completed its first cycle as leader, in seconds.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from daemons import wait_until
from fake_slurm.fake import Fault
from heads import Heads
from store.postgres_server import PostgresServer

LEASE = 45


def measured(server: PostgresServer, folder: Path, rng: random.Random) -> float:
    """Return the seconds of one failover."""
    with Heads(folder, server.new_database(f"heads_{os.getpid()}_{folder.name}"), lease=LEASE, rate=1) as heads:
        heads.add_chain(links=2, paused=True)
        heads.slurm.fault("sbatch", Fault.HANG)
        heads.start_both()
        heads.resume()
        wait_until(heads.submitted, "the submission")
        time.sleep(rng.uniform(0, LEASE / 3))
        heads.first.kill()
        killed = time.monotonic()
        wait_until(lambda: heads.second.leads() and heads.second.call("GET", "/healthz")[1]["cycles"], "a cycle")
        return time.monotonic() - killed


def main() -> None:
    times, rng = int(sys.argv[1]) if len(sys.argv) > 1 else 3, random.Random(1)
    with PostgresServer.started() as server, tempfile.TemporaryDirectory() as folder:
        for count in range(times):
            place = Path(folder, str(count))
            place.mkdir()
            sys.stdout.write(f"{measured(server, place, rng):.1f} s\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
