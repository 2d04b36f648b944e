"""Protected mode in the loop: Slurm is asked seldom, a restart keeps it, one accepted link ends it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from fakes import HOUR, MIN, FakeCluster, Fate, chain

from mirage.control.commands import CommandQueue
from mirage.control.dependencies import LoopDependencies, LoopSettings
from mirage.control.guard import Guards, PredictorGuard
from mirage.control.loop import ControlLoop
from mirage.control.stores import MemoryJournal, MemoryStore
from mirage.domain.chain import ChainRecord, ChainStatus
from mirage.domain.command import LiftProtection
from mirage.domain.failurepolicy import FailureAction, FailurePolicies, FailurePolicy
from mirage.domain.journal import EntryKind
from mirage.predictors.registry import build_predictor
from mirage.provisioner.limits import Limits

ON = FailurePolicy(FailureAction.CONTINUE)
LIMITS = Limits(protect_after=3, submissions_per_hour=0, submissions_per_hour_per_user=0)


class Site:
    """Six services of two users, each of whose links runs for four hours."""

    def __init__(self) -> None:
        policies = FailurePolicies(ON, ON, ON)
        chains = [
            replace(chain(4 * HOUR, failures=policies, name=f"svc{n}"), owner=("alice", "bob")[n % 2])
            for n in range(6)
        ]
        self.cluster = FakeCluster(lambda request: Fate())
        self.store = MemoryStore(*(ChainRecord(chain) for chain in chains))
        self.attempts: list[int] = []
        submit = self.cluster.submit

        def counted(request):
            self.attempts.append(self.cluster.time)
            return submit(request)

        self.cluster.submit = counted
        self.restart()

    def restart(self) -> None:
        c, self.journal, self.commands = self.cluster, MemoryJournal(), CommandQueue()
        outside = LoopDependencies(c, c, c, c, c, self.store, self.journal, c, self.commands)
        reactive = build_predictor("reactive")
        self.loop = ControlLoop(outside, Guards(PredictorGuard(reactive, reactive)), LoopSettings(limits=LIMITS))

    def run(self, until: int) -> None:
        while self.cluster.time < until:
            self.cluster.advance(self.cluster.time + MIN)
            self.loop.cycle()


def refusing(hours: float) -> Site:
    """A site whose Slurm has rejected everything for this time."""
    site = Site()
    site.run(HOUR)
    assert len(site.attempts) == 6
    site.attempts.clear()
    site.cluster.refuse = "AccountingStorageDown"
    site.run(5 * HOUR + int(hours * HOUR))
    return site


def test_slurm_is_asked_seldom_and_nobody_pays_for_the_tries() -> None:
    site = refusing(3)
    assert site.loop.status.protection is not None
    assert 6 <= len(site.attempts) <= 17, "each chain once, five tries in the first hour, then two an hour"
    records = site.store.load()
    assert all(record.status is ChainStatus.ACTIVE for record in records), "not one has paused itself"
    (text,) = [text for text in site.journal.texts(EntryKind.TROUBLE) if text.startswith("protected mode")]
    assert "rejected 6 chains in a row" in text


def test_as_soon_as_one_is_accepted_all_go_on() -> None:
    site = refusing(3)
    site.cluster.refuse = ""
    site.run(site.cluster.time + HOUR)
    assert site.loop.status.protection is None
    assert len(site.cluster.live()) == 6
    assert "protected mode is over" in site.journal.texts(EntryKind.EVENT)


def test_a_restart_keeps_it_and_says_it_once() -> None:
    site = refusing(1)
    before = site.loop.status.protection
    site.restart()
    assert site.loop.status.protection == before
    site.attempts.clear()
    site.run(site.cluster.time + 5 * MIN)
    assert len(site.attempts) <= 1
    assert not [text for text in site.journal.texts(EntryKind.TROUBLE) if text.startswith("protected mode")]


def test_an_administrator_lifts_it() -> None:
    site = refusing(3)
    site.cluster.refuse = ""
    answer = site.commands.put(LiftProtection("root"))
    site.run(site.cluster.time + MIN)
    assert answer.result(0) == "protected mode lifted by root: all chains may try again"
    assert site.loop.status.protection is None
    assert len(site.cluster.live()) == 6, "at once"


def test_an_unanswered_try_is_not_followed_by_another_of_each_chain() -> None:
    site = refusing(3)
    site.cluster.refuse, site.attempts = "", []

    def lost(request):
        site.attempts.append(site.cluster.time)
        from mirage.domain.errors import ClusterUnavailable

        raise ClusterUnavailable("timed out")

    site.cluster.submit = lost
    site.run(site.cluster.time + HOUR)
    assert 1 <= len(site.attempts) <= 3


def test_tries_go_round_and_a_healthy_chain_is_not_held_back() -> None:
    site = refusing(0.2)
    assert site.loop.status.protection is not None
    site.attempts.clear()
    tried: Counter[str] = Counter()
    submit = site.cluster.submit

    def counted(request):
        tried[request.tag.split(":")[1]] += 1
        return submit(request)

    site.cluster.submit = counted
    site.run(12 * HOUR)
    assert site.loop.status.protection is not None
    assert len(tried) == 6
    assert max(tried.values()) - min(tried.values()) <= 1

    def healed_for_one(request):
        site.cluster.refuse = "" if ":svc5:" in request.tag else "AccountingStorageDown"
        return submit(request)

    site.cluster.submit = healed_for_one
    site.run(16 * HOUR)
    assert site.journal.texts(EntryKind.EVENT).count("protected mode is over") == 1, "the accepted one ends it"
