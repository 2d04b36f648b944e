"""Long runs against queueing theory."""

from __future__ import annotations

import math

import numpy as np
import pytest
from system_cases import cost_table, unit_system

from mirage.allocation.inference.registry import request_policy
from mirage.allocation.inference.simulation import SharingRules, SimulatedSystem
from mirage.domain.inference import RequestTable

MANY = 2_000_000


def mean_wait(rate: float, services: np.ndarray, units: int, seed: int) -> float:
    """Poisson arrivals, each of a service drawn from ``services``, first come first served."""
    rng = np.random.default_rng(seed)
    arrival = np.cumsum(rng.exponential(1.0 / rate, MANY))
    requests = RequestTable(
        arrival=arrival,
        model=rng.integers(0, len(services), MANY, dtype=np.int32),
        tenant=np.zeros(MANY, np.int32),
        deadline=np.full(MANY, np.inf),
        weight=np.ones(MANY),
        tenants=("t",),
    )
    costs = cost_table([[[seconds]] for seconds in services])
    outcome = SimulatedSystem(requests, unit_system([0] * units), costs, SharingRules()).play(
        request_policy("fcfs")
    )
    return float((outcome.begin - arrival).mean())


def exponential_services(count: int = 4000) -> np.ndarray:
    """Mean 1; equally likely, each the mean of its part of the distribution. Second moment: 1.9995, not 2."""
    edges = -np.log1p(-np.arange(count) / count)
    tails = np.append((edges + 1.0) * np.exp(-edges), 0.0)
    return count * -np.diff(tails)


def test_exponential_services_are_what_they_should_be() -> None:
    services = exponential_services()
    assert services.mean() == pytest.approx(1.0, rel=1e-12)
    assert (services**2).mean() == pytest.approx(2.0, rel=5e-4)


@pytest.mark.parametrize("load", [0.5, 0.75])
def test_wait_of_md1(load: float) -> None:
    """Pollaczek-Khinchine: load x service / (2 (1 - load))."""
    assert mean_wait(load, np.ones(1), 1, seed=1) == pytest.approx(load / (2 * (1 - load)), rel=0.01)


@pytest.mark.parametrize("load", [0.5, 0.75])
def test_wait_of_mm1(load: float) -> None:
    """load x service / (1 - load)."""
    assert mean_wait(load, exponential_services(), 1, seed=2) == pytest.approx(load / (1 - load), rel=0.01)


def test_wait_of_mm3() -> None:
    """Erlang C: the probability to wait, over the rate that is left."""
    units, offered = 3, 2.25
    terms = [offered**n / math.factorial(n) for n in range(units)]
    last = offered**units / math.factorial(units) * units / (units - offered)
    waits = last / (sum(terms) + last)
    assert mean_wait(offered, exponential_services(), units, seed=3) == pytest.approx(
        waits / (units - offered), rel=0.01
    )


def test_wait_of_md2() -> None:
    """Crommelin's exact result (Post Office Electrical Engineers' Journal 25, 1932), by his embedded chain.

    The number in the system one service later is what is beyond ``units`` now, and what came meanwhile; Little's
    law gives the wait from its mean.
    """
    units, offered, size = 2, 1.5, 200
    coming = [math.exp(-offered + n * math.log(offered) - math.lgamma(n + 1)) for n in range(size)]
    chain = np.zeros((size, size))
    for now in range(size):
        left = max(now - units, 0)
        chain[now, left:] = coming[: size - left]
    chain[:, -1] += 1.0 - chain.sum(axis=1)
    share = np.linalg.matrix_power(chain, 2**14)[0]
    queue = float(share @ np.maximum(np.arange(size) - units, 0))
    assert mean_wait(offered, np.ones(1), units, seed=4) == pytest.approx(queue / offered, rel=0.01)
