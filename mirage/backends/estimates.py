"""Slurm's own estimate for jobs of others: there is none that may be asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.domain.errors import NotPermitted
from mirage.domain.job import ABSENT

if TYPE_CHECKING:
    from mirage.domain.job import JobRequest, Seconds
    from mirage.ports import StartEstimator


class WhereAllowed:
    """``StartEstimator`` that has no estimate for owners whom the estimator behind may not ask for."""

    def __init__(self, estimator: StartEstimator) -> None:
        self._estimator = estimator

    def estimate_start(self, request: JobRequest) -> Seconds:
        """As the estimator behind; ``ABSENT`` where it is not permitted to ask."""
        try:
            return self._estimator.estimate_start(request)
        except NotPermitted:
            return ABSENT
