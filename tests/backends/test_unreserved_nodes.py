"""When enough nodes are outside reservations, against the times tried one by one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mirage.backends.owner_limits import Granted
from mirage.domain.job import ABSENT, JobRequest
from mirage.slurm.shares_and_partitions import PartitionNodes, Reserved

NODES = ("n1", "n2", "n3")
RESERVED = st.builds(
    lambda start, length, nodes, users: Reserved(start, start + length, frozenset(nodes), users, ()),
    st.integers(0, 20),
    st.integers(1, 20),
    st.sets(st.sampled_from([*NODES, "elsewhere"]), min_size=1),
    st.sampled_from([("alice",), ("bob",)]),
)


@given(st.lists(RESERVED, max_size=4), st.integers(1, 4), st.integers(1, 15), st.integers(0, 25))
def test_start_outside_reservations_is_the_first_that_fits(
    reservations: list[Reserved], nodes: int, limit: int, now: int
) -> None:
    partitions = {"cpu": PartitionNodes(frozenset(NODES), "", default=True)}
    granted = Granted(reservations=tuple(reservations), partitions=partitions)
    request = JobRequest("job", "alice", limit, nodes=nodes, partition="cpu")

    def fits(start: int) -> bool:
        free = set(NODES)
        for each in reservations:
            if "alice" not in each.users and any(each.start <= t < each.end for t in range(start, start + limit)):
                free -= each.nodes
        return len(free) >= nodes

    expected = next((start for start in range(now, 60) if fits(start)), ABSENT)
    assert granted.standing(request, now).unreserved == (ABSENT if expected == now else expected)
