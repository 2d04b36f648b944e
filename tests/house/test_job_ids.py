"""Numbers from outside become job IDs in one place, which checks them."""

from __future__ import annotations

import re
from itertools import chain

from house.sources import sources

BORDERS = ("mirage/slurm", "mirage/backends", "mirage/store", "mirage/api", "mirage/cli", "mirage/client")

UNCHECKED = {
    "mirage/backends/wrappers.py": "an ID that an actuator has checked",
    "mirage/backends/agent_requests.py": "0, where there is no job",
    "mirage/backends/recorded.py": "submissions that are only noted: no job has them",
}


def test_only_checked_numbers_become_job_ids() -> None:
    calls = re.compile(r"\bJobId\(")
    found = {
        str(source.path) for source in chain.from_iterable(map(sources, BORDERS)) if calls.search(source.text)
    }
    assert found == set(UNCHECKED), "use job_id_of, or say in UNCHECKED why not"
