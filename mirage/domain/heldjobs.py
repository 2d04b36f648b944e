"""Jobs with a Mirage tag that their owners hold until the loop asks for them, by chain and by tag."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from mirage.domain.chain import Chain
    from mirage.domain.job import Job


class HeldJobs:
    """Held jobs by tag and owner. Immutable: each cycle creates a new one for all chains."""

    def __init__(self, jobs: Iterable[Job] = ()) -> None:
        self._jobs = tuple(jobs)
        self._of_chain: dict[tuple[str, str], list[Job]] = defaultdict(list)
        self._of_tag: dict[tuple[str, str], Job] = {}
        for job in self._jobs:
            self._of_chain[job.user, job.tag.rpartition(":")[0]].append(job)
            self._of_tag.setdefault((job.user, job.tag), job)

    def __iter__(self) -> Iterator[Job]:
        return iter(self._jobs)

    def of(self, chain: Chain) -> Sequence[Job]:
        """Held jobs of the chain's owner that have tags of its links."""
        return self._of_chain.get((chain.owner, chain.tag(0).rpartition(":")[0]), ())

    def find(self, tag: str, owner: str) -> Job | None:
        """Return the owner's job with this tag; any user may write any comment."""
        return self._of_tag.get((owner, tag))
