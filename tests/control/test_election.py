"""The election against adversarial time: processes stop for any while, messages are late or lost, clocks vary.

Time here is exact (fractions), and the adversary is hypothesis: it decides which process continues when, how long
each query travels and whether its answer comes. What must hold at every time is checked from outside, by
the true time, which no candidate knows.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirage.control.leader_election import LeaderCandidate, LeaderElection, LeaseTerms
from mirage.domain.errors import StoreUnavailable
from mirage.domain.lease import VACANT, Lease

LENGTH = 9.0
TERMS = LeaseTerms(LENGTH)


@dataclass
class Table:
    """The database: what is done is done at one time."""

    lease: Lease = VACANT
    takers: list[tuple[int, str]] = field(default_factory=list)

    def read(self) -> Lease:
        return self.lease

    def swap(self, old: Lease, new: Lease) -> bool:
        if self.lease not in (old, new):
            return False
        assert new.term >= self.lease.term, "a term never goes back"
        if new.term != self.lease.term:
            self.takers.append((new.term, new.holder))
        self.lease = new
        return True


@dataclass
class Process:
    """A candidate whose query is on its way, or which waits; its clock has a random speed and origin."""

    candidate: LeaderCandidate
    speed: Fraction
    origin: int
    asked: tuple[float, Lease | None, object] | None = None
    """When it was sent by the own clock, what was proposed, and the database's answer once there is one."""

    def clock(self, time: Fraction) -> float:
        return float(time * self.speed + self.origin)

    def send(self, time: Fraction) -> None:
        now = self.clock(time)
        if self.asked is None and now >= self.candidate.due:
            self.asked = (now, self.candidate.proposal(now), None)

    def reach(self, table: Table) -> None:
        if self.asked is not None and self.asked[2] is None:
            sent, proposed, _ = self.asked
            answer = table.read() if proposed is None else table.swap(self.candidate.lease, proposed)
            self.asked = (sent, proposed, answer)

    def hear(self, time: Fraction) -> None:
        if self.asked is None or self.asked[2] is None:
            return
        sent, proposed, answer = self.asked
        self.asked = None
        if proposed is None:
            assert isinstance(answer, Lease)
            self.candidate = self.candidate.looked(answer, self.clock(time))
        elif answer:
            self.candidate = self.candidate.swapped(proposed, sent)
        else:
            self.candidate = self.candidate.refused(self.clock(time))

    def lose(self, time: Fraction) -> None:
        """The query, or its answer, is lost; no candidate knows which."""
        if self.asked is not None:
            self.asked = None
            self.candidate = self.candidate.unanswered(self.clock(time))


MOMENTS = st.integers(0, 600)  # sixtieths of a second: up to ten seconds, more than the lease
ACTS = st.sampled_from(["send", "reach", "hear", "lose"])
STEPS = st.lists(st.tuples(MOMENTS, st.integers(0, 2), ACTS), max_size=150)
SPEEDS = st.tuples(*(st.fractions(Fraction(9, 10), Fraction(11, 10), max_denominator=40) for _ in range(3)))


def processes(speeds: tuple[Fraction, ...], origins: tuple[int, ...]) -> list[Process]:
    pairs = enumerate(zip(speeds, origins, strict=True))
    return [Process(LeaderCandidate(f"id{k}", f"head{k}", TERMS), speed, origin) for k, (speed, origin) in pairs]


@given(STEPS, SPEEDS, st.tuples(*(st.integers(-1_000_000, 1_000_000) for _ in range(3))))
@settings(max_examples=600, deadline=None)
def test_never_two_that_would_act(
    steps: list[tuple[int, int, str]], speeds: tuple[Fraction, ...], origins: tuple[int, ...]
) -> None:
    table, time, all_of_them = Table(), Fraction(0), processes(speeds, origins)
    for moment, which, act in steps:
        time += Fraction(moment, 60)
        process = all_of_them[which]
        {"send": process.send, "hear": process.hear, "lose": process.lose}.get(act, lambda _: None)(time)
        if act == "reach":
            process.reach(table)
        acting = [each.candidate.name for each in all_of_them if each.candidate.leads(each.clock(time))]
        assert len(acting) <= 1, f"{acting} at {float(time)}"
        assert len({term for term, _ in table.takers}) == len(table.takers), "one holder a term"


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 2)), max_size=60),
    st.integers(0, 2),
    st.tuples(*(st.fractions(Fraction(99, 100), Fraction(101, 100), max_denominator=200) for _ in range(3))),
)
@settings(max_examples=200, deadline=None)
def test_when_a_leader_is_gone_another_acts_within_the_lease_and_one_look(
    delays: list[tuple[int, int]], gone: int, speeds: tuple[Fraction, ...]
) -> None:
    """Whatever came before: when queries are answered within a tenth of a second, silence is bounded."""
    table, time, all_of_them = Table(), Fraction(0), processes(speeds, (5, -70, 900))
    for delay, which in delays:
        time += Fraction(delay, 10)
        process = all_of_them[which]
        process.send(time)
        process.reach(table)
        process.hear(time)
    survivors = [process for k, process in enumerate(all_of_them) if k != gone]
    died = time
    while not any(each.candidate.leads(each.clock(time)) for each in survivors):
        time += Fraction(1, 10)
        for process in survivors:
            process.send(time)
            process.reach(table)
            process.hear(time)
        assert time - died <= Fraction(LENGTH + TERMS.look) * Fraction(101, 99) + Fraction(1, 2)


def test_the_margin_is_needed() -> None:
    """Were a holder to believe for the whole length, a clock that runs slow by a hundredth would make two."""

    class NoMargin(LeaseTerms):
        margin = 0.0  # type: ignore[assignment]

    table = Table()
    slow, other = processes((Fraction(99, 100), Fraction(1)), (0, 0))
    slow.candidate = LeaderCandidate("slow", "slow", NoMargin(LENGTH))
    for process in (slow, slow, other):
        process.send(Fraction(0))
        process.reach(table)
        process.hear(Fraction(0))
    time = Fraction(LENGTH) * Fraction(1_005, 1_000)
    other.send(time)
    other.reach(table)
    other.hear(time)
    assert slow.candidate.leads(slow.clock(time))
    assert other.candidate.leads(other.clock(time))


# One story after the other


class Machine:
    """A table that may be away, and a clock that the test moves."""

    def __init__(self) -> None:
        self.table, self.time, self.away = Table(), 0.0, ""

    def read(self) -> Lease:
        if self.away and self.away != "full":
            raise StoreUnavailable("the server does not answer")
        return self.table.read()

    def swap(self, old: Lease, new: Lease) -> bool:
        if self.away in ("before", "full"):
            raise StoreUnavailable("the server does not answer")
        done = self.table.swap(old, new)
        if self.away == "after":
            raise StoreUnavailable("the server closed the connection")
        return done

    def campaign(self, name: str, holder: str = "") -> LeaderElection:
        return LeaderElection(self, LeaderCandidate(holder or f"id of {name}", name, TERMS), lambda: self.time)

    def run(self, until: float, *campaigns: LeaderElection) -> None:
        due = dict.fromkeys(campaigns, self.time)
        while (first := min(due, key=lambda each: due[each])) and due[first] <= until:
            self.time = max(self.time, due[first])
            due[first] = self.time + max(first.step(), 0.001)
        self.time = until


@pytest.fixture
def machine() -> Machine:
    return Machine()


def test_a_vacant_lease_is_taken_at_once_and_the_second_waits(machine: Machine) -> None:
    first, second = machine.campaign("head1"), machine.campaign("head2")
    machine.run(0.1, first, second)
    assert (first.term, first.impediment(1), second.term) == (1, "", 0)
    machine.run(100, first, second)
    assert (first.term, second.term, second.leader) == (1, 0, "head1")
    assert second.impediment(0) == "head1 leads"


def test_one_that_resigns_is_followed_at_the_next_look(machine: Machine) -> None:
    first, second = machine.campaign("head1"), machine.campaign("head2")
    machine.run(20, first, second)
    first.resign()
    machine.run(20 + TERMS.look + 0.1, second)
    assert (second.term, second.impediment(2)) == (2, "")


def test_after_a_restart_ones_own_lease_is_taken_up_again_in_a_new_term(machine: Machine) -> None:
    machine.run(1, machine.campaign("head1"))
    again = machine.campaign("head1")
    machine.run(1.1, again)
    assert (again.term, again.impediment(2)) == (2, "")


@pytest.mark.parametrize("away", ["before", "after"])
def test_while_the_database_is_away_it_may_not_act_and_goes_on_in_its_term_afterwards(
    machine: Machine, away: str
) -> None:
    only = machine.campaign("head1")
    machine.run(1, only)
    machine.away = away
    machine.run(1 + LENGTH, only)
    assert only.term == 1
    assert "could not be renewed in time: the server" in only.impediment(1)
    machine.away = ""
    machine.run(1 + LENGTH + TERMS.look + 0.1, only)
    assert (only.term, only.impediment(1)) == (1, "")


@pytest.mark.parametrize("away", ["before", "full"])
def test_the_log_says_once_that_the_lease_cannot_be_asked_for_and_once_that_it_can(
    machine: Machine, caplog: pytest.LogCaptureFixture, away: str
) -> None:
    """A full disk answers queries and takes no lease."""
    only = machine.campaign("head1")
    machine.run(1, only)
    machine.away = away
    with caplog.at_level(logging.INFO, logger="mirage"):
        machine.run(1 + 10 * LENGTH, only)
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        machine.away = ""
        machine.run(1 + 12 * LENGTH, only)
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


@pytest.mark.parametrize("before", [False, True], ids=["vacant", "its own"])
def test_lease_that_cannot_be_written_is_the_impediment(machine: Machine, before: bool) -> None:
    """Not that this daemon itself leads, whose name a lease from before a restart has."""
    if before:
        machine.run(1, machine.campaign("head1"))
    machine.away = "full"
    again = machine.campaign("head1")
    for time in (2, 40, 80):
        machine.run(time, again)
        assert again.impediment(again.term) == "the lease cannot be written: the server does not answer"
    machine.away = ""
    machine.run(100, again)
    assert (again.term > 0, again.impediment(again.term)) == (True, "")


def test_lease_that_cannot_be_read_is_the_impediment(machine: Machine) -> None:
    leader, other = machine.campaign("head1"), machine.campaign("head2")
    machine.run(1, leader, other)
    assert other.impediment(0) == "head1 leads"
    machine.away = "before"
    machine.run(1 + TERMS.look + 0.1, other)
    assert other.impediment(0) == "the lease cannot be read: the server does not answer"


def test_one_that_was_stopped_finds_another_in_its_place(machine: Machine) -> None:
    first, second = machine.campaign("head1"), machine.campaign("head2")
    machine.run(5, first, second)
    machine.run(40, second)
    assert first.impediment(1), "also before its first query"
    machine.run(41, first, second)
    assert (first.term, second.term) == (0, 2)
    assert first.impediment(1) == "head2 leads"


def test_a_lease_taken_in_a_swap_whose_answer_was_lost_is_taken_again(machine: Machine) -> None:
    only = machine.campaign("head1")
    only.step()
    machine.away = "after"
    only.step()
    machine.away = ""
    machine.run(5, only)
    assert (only.term, machine.table.lease.holder) == (2, "id of head1")


def test_campaign_that_is_disqualified_leaves_the_lease(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = machine.campaign("head1"), machine.campaign("head2")
    machine.run(5, first, second)
    first.disqualify("another cluster")
    assert (first.term, first.impediment(1), first.impediment(0)) == (0, "another cluster", "another cluster")
    machine.run(5 + TERMS.renewal + TERMS.look + 0.1, first, second)
    assert (first.term, second.term, second.impediment(2)) == (0, 2, "")
    machine.run(500, first, second)
    assert (first.term, second.term) == (0, 2)
    assert "event=daemon_disqualified" in caplog.text


def test_campaign_disqualified_while_the_database_is_away_leads_no_more(machine: Machine) -> None:
    only = machine.campaign("head1")
    machine.run(1, only)
    machine.away = "before"
    only.disqualify("another cluster")
    machine.run(100, only)
    machine.away = ""
    machine.run(200, only)
    assert (only.term, machine.table.lease.vacant) == (0, True)
