"""The request queue: waiting requests, running requests and their results; the gateway without its sockets.

Every accepted request ends in exactly one way: it is answered, ended with a reason, or withdrawn by its client.
Times are arguments; this module never waits and reads no clock.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from mirage.allocation.inference.serving.admission import RequestRefused
from mirage.domain.inference import SystemView
from mirage.domain.shares import find_displaced

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mirage.allocation.inference.serving.seating import Estimates
    from mirage.domain.inference import DeviceSet, Dispatch

_FIRST = 64
_TYPES = {"request": np.int64, "model": np.int32, "tenant": np.int32}
"""Columns that are not float64."""


class Waiter(NamedTuple):
    """One waiting request; the names are those of ``SystemView``."""

    request: int
    model: int
    tenant: int
    arrival: float
    deadline: float
    weight: float
    ready_since: float
    served: float


class WaitingRequests:
    """Rows that are added at the end, or returned to their place, and removed anywhere."""

    def __init__(self) -> None:
        self._count = 0
        self._columns = {name: np.empty(_FIRST, _TYPES.get(name, np.float64)) for name in Waiter._fields}
        self._waiters = dict[int, Waiter]()
        """Numbers of the requests, by row."""

    def __len__(self) -> int:
        return self._count

    def column(self, name: str) -> NDArray[np.generic]:
        """A borrowed array, valid until the next change."""
        return self._columns[name][: self._count]

    def find(self, request: int) -> int | None:
        """The row of a request."""
        row = int(np.searchsorted(self.column("request"), request))
        return row if row < self._count and self._columns["request"][row] == request else None

    def put(self, waiter: Waiter) -> None:
        """Insert a request at its place by number."""
        if self._count == len(self._columns["request"]):
            self._columns = {name: np.resize(column, 2 * self._count) for name, column in self._columns.items()}
        at = self._place(waiter.request)
        for column, value in zip(self._columns.values(), waiter, strict=True):
            if at < self._count:
                column[at + 1 : self._count + 1] = column[at : self._count]
            column[at] = value
        self._waiters[waiter.request] = waiter
        self._count += 1

    def take(self, rows: NDArray[np.integer]) -> list[Waiter]:
        """Remove rows, which are unique; returns them in the order of the argument."""
        taken = [self._waiters.pop(number) for number in self.column("request")[rows].tolist()]
        if len(taken) in (0, self._count):
            self._count -= len(taken)
            return taken
        keep = np.ones(self._count, np.bool_)
        keep[rows] = False
        left = self._count - len(taken)
        for column in self._columns.values():
            column[:left] = column[: self._count][keep]
        self._count = left
        return taken

    def _place(self, request: int) -> int:
        """The row for a number; usually the last row."""
        if not self._count or self._columns["request"][self._count - 1] < request:
            return self._count
        return int(np.searchsorted(self.column("request"), request))


_ATTEMPTS = 2
_OVERRUN = 0.1
"""A request that runs longer than expected is estimated to end after this share of its expected time."""


class BadDispatch(Exception):
    """The policy returned an impossible dispatch."""


@dataclass(frozen=True, slots=True)
class ArrivedRequest:
    """A request on arrival."""

    model: int
    tenant: int
    deadline: float
    """Arrival time, in seconds."""
    weight: float


@dataclass(frozen=True, slots=True)
class Start:
    """Start of a request on a unit."""

    request: int
    unit: int
    model: int


@dataclass(slots=True)
class _Run:
    waiter: Waiter
    since: float
    heard: float
    """When the last part of its answer came."""
    wanted: bool = True
    """Whether its client still waits for the answer."""
    repeatable: bool = True


class _Nothing(NamedTuple):
    """The values that a view holds for free units."""

    running: NDArray[np.int64]
    piece: NDArray[np.int64]
    deadline: NDArray[np.float64]
    weight: NDArray[np.float64]


class RequestQueue:
    """Takes requests, builds views for the policy, and applies the policy's dispatches."""

    def __init__(
        self, system: DeviceSet, estimates: Estimates, tenants: int, most: int, longest_wait: float
    ) -> None:
        """All units are down at first. At most ``most`` requests wait, each at most ``longest_wait`` seconds."""
        units = len(system.names)
        self.system, self.estimates = system, estimates
        self._most, self._longest_wait = most, longest_wait
        self._waiting = WaitingRequests()
        self._attempts = dict[int, int]()
        """Requests that wait again after a failed attempt."""
        self._runs = dict[int, _Run]()
        """Running requests by unit."""
        self._places = dict[int, int]()
        """Units by request."""
        self._nothing = _Nothing(np.full(units, -1), np.full(units, -1), np.full(units, np.inf), np.zeros(units))
        self._able = ~np.isnan(estimates.table.seconds)[:, system.kind]
        """[M, U] Whether a unit runs a model."""
        self._up = np.zeros(units, np.bool_)
        self._coming = np.ones(units, np.bool_)
        self._servable = list[bool]()
        """By model: whether a unit that runs it is up, or will be."""
        self._look_at_units()
        self._numbers = 0
        self._ended = np.zeros(tenants, np.int64)
        self._kept = np.zeros(tenants, np.int64)

    @property
    def waiting(self) -> int:
        """Number of waiting requests."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """Number of running requests."""
        return len(self._runs)

    def admit(self, wish: ArrivedRequest, now: float) -> int:
        """Add a request and return its number. Raises ``RequestRefused``."""
        if not self._servable[wish.model]:
            raise RequestRefused(503, "every unit of this model has failed; the operator was notified", 60)
        if len(self._waiting) >= self._most:
            raise RequestRefused(503, f"the queue is full ({self._most} requests)", self.backlog())
        number, self._numbers = self._numbers, self._numbers + 1
        self._waiting.put(
            Waiter(number, wish.model, wish.tenant, now, wish.deadline, wish.weight, ready_since=now, served=0.0)
        )
        return number

    def make_room(self, wish: ArrivedRequest) -> int | None:
        """The request to reject for this one when the queue is full: the newest of the tenant with most requests.

        ``None``: the queue has room, or no tenant has more requests than this one.
        """
        if len(self._waiting) != self._most or not self._servable[wish.model]:
            return None
        tenants = self._waiting.column("tenant")
        heaviest = find_displaced(Counter(tenants.tolist()), wish.tenant)
        if heaviest is None:
            return None
        (waiter,) = self._waiting.take(np.flatnonzero(tenants == heaviest)[-1:])
        self._close(waiter, kept=False)
        return waiter.request

    def backlog(self) -> float:
        """Estimated seconds until the waiting requests have begun, with all units equally busy; at least 1."""
        best = np.nanmin(self.estimates.table.seconds, axis=1)
        work = float(best[self._waiting.column("model")].sum())
        return max(1.0, work / max(1, int(self._up.sum())))

    def view(self, now: float) -> SystemView:
        """The view for the policy; valid until the next change."""
        nothing, free_at = self._nothing, np.where(self._up, now, np.inf)
        running, piece = nothing.running.copy(), nothing.piece.copy()
        deadline, weight = nothing.deadline.copy(), nothing.weight.copy()
        for unit, run in self._runs.items():
            running[unit], piece[unit] = run.waiter.request, run.waiter.model
            deadline[unit], weight[unit] = run.waiter.deadline, run.waiter.weight
            expected = self._expected(run.waiter.model, unit)
            free_at[unit] = max(run.since + expected, now + _OVERRUN * expected)
        column = self._waiting.column
        return SystemView(
            now=now,
            system=self.system,
            costs=self.estimates.table,
            request=cast("NDArray[np.int64]", column("request")),
            model=cast("NDArray[np.int32]", column("model")),
            piece=cast("NDArray[np.int32]", column("model")),
            tenant=cast("NDArray[np.int32]", column("tenant")),
            arrival=cast("NDArray[np.float64]", column("arrival")),
            deadline=cast("NDArray[np.float64]", column("deadline")),
            weight=cast("NDArray[np.float64]", column("weight")),
            ready_since=cast("NDArray[np.float64]", column("ready_since")),
            served=cast("NDArray[np.float64]", column("served")),
            running=running,
            running_piece=piece,
            running_deadline=deadline,
            running_weight=weight,
            free_at=free_at,
            drawn=nothing.weight,
            tenant_ended=self._ended,
            tenant_kept=self._kept,
        )

    def obey(self, dispatch: Dispatch, now: float) -> list[Start]:
        """Start what the policy chose. Raises ``BadDispatch`` before any change."""
        pairs = list(zip(dispatch.ready.tolist(), dispatch.unit.tolist(), strict=True))
        self._check(pairs)
        starts = []
        for waiter, (_, unit) in zip(self._waiting.take(dispatch.ready), pairs, strict=True):
            self._runs[unit] = _Run(waiter, now, now)
            self._places[waiter.request] = unit
            starts.append(Start(waiter.request, unit, waiter.model))
        return starts

    def answered(self, unit: int, now: float) -> bool:
        """Complete the request of a unit; whether it is before the deadline and its client still waits."""
        run = self._leave(unit)
        self.estimates.observe(run.waiter.model, int(self.system.kind[unit]), max(now - run.since, 0.0))
        return run.wanted and self._close(run.waiter, kept=now <= run.waiter.deadline)

    def rejected(self, unit: int) -> None:
        """End a request that the unit cannot answer: no estimate, and no missed deadline."""
        self._attempts.pop(self._leave(unit).waiter.request, None)

    def begun(self, request: int, now: float) -> None:
        """Note that part of the answer has been sent, so that the request cannot be repeated."""
        run = self._runs[self._places[request]]
        run.repeatable, run.heard = False, now

    def request_on(self, unit: int) -> int:
        """The request that runs on a unit."""
        return self._runs[unit].waiter.request

    def unit_of(self, request: int) -> int | None:
        """The unit that runs a request; ``None``: no unit does."""
        return self._places.get(request)

    def raise_unit(self, unit: int) -> None:
        """Mark a unit as up and free."""
        self._up[unit] = self._coming[unit] = True
        self._look_at_units()

    def lower_unit(self, unit: int, now: float, *, coming: bool) -> int | None:
        """Mark a unit as down and return the request that fails with it. ``coming``: the unit will be up again.

        A request that ran there waits again, once, if no part of its answer has been sent.
        """
        self._up[unit], self._coming[unit] = False, coming
        self._look_at_units()
        if unit not in self._runs:
            return None
        run = self._leave(unit)
        attempts = self._attempts.get(run.waiter.request, 0) + 1
        if not run.wanted:
            return None
        if not run.repeatable or attempts >= _ATTEMPTS:
            self._close(run.waiter, kept=False)
            return run.waiter.request
        self._attempts[run.waiter.request] = attempts
        self._waiting.put(run.waiter._replace(ready_since=now, served=run.waiter.served + now - run.since))
        return None

    def withdraw(self, request: int, now: float) -> int | None:
        """Withdraw a request whose client has left; returns the unit that still runs it and must end it soon."""
        if request in self._places:
            unit = self._places[request]
            self._runs[unit].wanted, self._runs[unit].heard = False, now
            return unit
        row = self._waiting.find(request)
        if row is not None:
            self._waiting.take(np.array([row]))
            self._attempts.pop(request, None)
        return None

    def overdue(self, now: float) -> list[int]:
        """End requests that have waited too long, or whose units will not come back."""
        if not len(self._waiting):
            return []
        waits = cast("NDArray[np.float64]", self._waiting.column("arrival")) < now - self._longest_wait
        models = self._waiting.column("model")
        hopeless = [model for model in np.unique(models).tolist() if not self._servable[model]]
        rows = np.flatnonzero(waits | np.isin(models, hopeless))
        given_up = self._waiting.take(rows)
        for waiter in given_up:
            self._close(waiter, kept=False)
        return [waiter.request for waiter in given_up]

    def hanging(self, now: float, longest: float) -> list[int]:
        """Units that have sent nothing about their request for longer than allowed."""
        return [unit for unit, run in self._runs.items() if now - run.heard > longest]

    def check(self) -> None:
        """Assert the invariants."""
        numbers = self._waiting.column("request").tolist()
        assert numbers == sorted(set(numbers)), "waiting rows are unique and in order"
        assert not set(numbers) & set(self._places), "nothing waits and runs at once"
        assert {run.waiter.request: unit for unit, run in self._runs.items()} == self._places
        assert all(self._up[unit] for unit in self._runs), "nothing runs on a unit that is down"
        assert set(self._attempts) <= set(numbers) | set(self._places), "attempts end with their requests"
        assert (self._kept <= self._ended).all()

    def _expected(self, model: int, unit: int) -> float:
        return self.estimates.seconds(model, int(self.system.kind[unit]))

    def _look_at_units(self) -> None:
        self._servable = [bool(able.any()) for able in self._able & (self._up | self._coming)]

    def _check(self, pairs: list[tuple[int, int]]) -> None:
        rows, units = [row for row, _ in pairs], [unit for _, unit in pairs]
        if len(set(rows)) < len(rows) or len(set(units)) < len(units):
            raise BadDispatch("a request or a unit appears twice")
        models = self._waiting.column("model")
        for row, unit in pairs:
            if not (0 <= row < len(models) and 0 <= unit < len(self._up)):
                raise BadDispatch(f"no waiting row {row}, or no unit {unit}")
            if unit in self._runs or not self._up[unit]:
                raise BadDispatch(f"unit {self.system.names[unit]} is not free")
            if not self._able[models[row], unit]:
                raise BadDispatch(f"unit {self.system.names[unit]} does not run this model")

    def _leave(self, unit: int) -> _Run:
        run = self._runs.pop(unit)
        del self._places[run.waiter.request]
        if not run.wanted:
            self._attempts.pop(run.waiter.request, None)
        return run

    def _close(self, waiter: Waiter, *, kept: bool) -> bool:
        self._attempts.pop(waiter.request, None)
        self._ended[waiter.tenant] += 1
        self._kept[waiter.tenant] += kept
        return kept
