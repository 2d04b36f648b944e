"""Takes the lease, counts up a number in the database, reports each count, and leaves or goes on; until killed."""

from __future__ import annotations

import random
import sys
import time
from uuid import uuid4

from mirage.bootstrap.leadership import writing_condition
from mirage.control.leader_election import LeaderCandidate, LeaderElection, LeaseTerms, Tenure
from mirage.domain.errors import StoreUnavailable
from mirage.store.about import read_about, write_about
from mirage.store.leases import open_leases
from mirage.store.opening import open_store

LENGTH = 0.6


def report(line: str) -> None:
    """Write a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def count(connection: object) -> int:
    """Count up within a transaction."""
    number = int(read_about(connection, "counter") or "0") + 1  # type: ignore[arg-type]
    write_about(connection, {"counter": str(number)})  # type: ignore[arg-type]
    return number


def lead(url: str, campaign: LeaderElection, chance: random.Random) -> None:
    """Count some times in one term."""
    store = open_store(url, condition=writing_condition(Tenure.of(campaign), url))
    try:
        for _ in range(chance.randint(1, 12)):
            number = store.database.write(count)
            report(f"{campaign.term} {number}")
            if campaign.candidate.due <= time.monotonic():
                campaign.step()
            if chance.random() < 0.1:
                time.sleep(
                    LENGTH * chance.random() * 2
                )  # longer than the lease at times: it goes on and must fail
    finally:
        store.database.close()


def main(url: str, seed: str) -> None:
    """Compete for the lease for ever."""
    chance = random.Random(seed)
    leases = open_leases(url)
    while True:
        candidate = LeaderCandidate(str(uuid4()), seed, LeaseTerms(LENGTH))
        campaign = LeaderElection(leases, candidate, time.monotonic)
        while not campaign.term:
            time.sleep(campaign.step())
        try:
            lead(url, campaign, chance)
        except StoreUnavailable as error:
            report(f"# {error}")
        if chance.random() < 0.7:
            campaign.resign()


if __name__ == "__main__":
    main(*sys.argv[1:])
