"""The savings of a handover: predicted one time, as its predecessor ends, in a queue without the successor."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from fakes import HOUR, MIN, FakeCluster, Fate, chain
from loops import Service

from mirage.control.dependencies import LoopSettings
from mirage.control.guard import Guards, PredictorGuard
from mirage.domain.chain import DoneCondition, HandoverPolicy, HandoverSettings, Steering
from mirage.domain.decision import ActionScores, WaitForecast, Wants
from mirage.domain.errors import StoreUnavailable
from mirage.domain.journal import EntryKind
from mirage.domain.objective import Alternative
from mirage.domain.snapshot import PartitionState
from mirage.predictors.baselines import Reactive
from mirage.predictors.registry import build_predictor

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirage.domain.decision import Observation, Prediction

LEVELS = (0.1, 0.5, 0.9)


class Teller:
    """Predicts waits of 1, 3 and 9 hours; remembers what it was shown."""

    name = "teller"
    wants = Wants(queue=True)

    def __init__(self, answer: Callable[[Observation], Prediction] | None = None) -> None:
        self.answer = answer or hours(1, 3, 9)
        self.asked: list[Observation] = []

    def predict(self, observation: Observation) -> Prediction:
        self.asked.append(observation)
        return self.answer(observation)


def hours(*waits: float) -> Callable[[Observation], Prediction]:
    return lambda seen: WaitForecast(LEVELS, tuple(seen.time + wait * HOUR for wait in waits))


def pinned(teller: Teller, wait: int = 2 * HOUR, usual: object = None, **more: object) -> Service:
    """Three links of 48 hours; the first waits for ``wait``, those that are pinned start as its nodes are free."""
    cluster = FakeCluster(lambda request: Fate(wait=wait))
    both = HandoverSettings(HandoverPolicy.OVERLAP)
    chosen = {"steering": Steering.PIN, "lead": 0, "handover": both} | more
    asked = chain(done=DoneCondition(links=3), **chosen)
    service = Service(cluster, chain_=asked)
    guard = PredictorGuard(teller, usual or Reactive())
    service.loop.reconfigure(Guards(guard), LoopSettings(appraise=900))
    return service


def test_each_hand_over_is_appraised_once_in_a_queue_without_the_successor() -> None:
    teller = Teller()
    service = pinned(teller)
    record = service.run(300 * HOUR)
    assert [link.alternative for link in record.links] == [None, *[Alternative(1 * HOUR, 3 * HOUR, 9 * HOUR)] * 2]
    assert [outcome.saved for outcome in record.outcomes()] == [Alternative(1 * HOUR, 3 * HOUR, 9 * HOUR)] * 2
    assert [seen.time for seen in teller.asked] == [link.end for link in record.links[:2]]
    for seen, link in zip(teller.asked, record.links[1:], strict=True):
        shown = {*seen.snapshot.pending.job_id.tolist(), *seen.snapshot.running.job_id.tolist()}
        assert link.job_id not in shown
        assert seen.successor.nodes == record.chain.request.nodes


def test_what_was_interrupted_was_not_saved() -> None:
    """Submitted two hours early by a median of two, it waits for five: three are lost of one, two or nine."""
    service = pinned(Teller(hours(1, 2, 9)), wait=5 * HOUR, steering=Steering.OFF)
    outcome, _ = service.run(300 * HOUR).outcomes()
    assert outcome.interruption == pytest.approx(3 * HOUR, abs=10 * MIN)
    assert outcome.saved == Alternative(0, 0, 9 * HOUR - outcome.interruption)


def test_a_successor_submitted_at_the_end_saves_nothing_and_nobody_is_asked() -> None:
    teller = Teller(lambda seen: WaitForecast.point(seen.time))
    cluster = FakeCluster(lambda request: Fate(wait=5 * HOUR))
    service = Service(cluster, chain_=chain(done=DoneCondition(links=3)))
    service.loop.reconfigure(Guards(PredictorGuard(Reactive(), teller)), LoopSettings(appraise=900))
    record = service.run(300 * HOUR)
    assert [outcome.alternative for outcome in record.outcomes()] == [Alternative.certain(5 * HOUR)] * 2
    assert [outcome.saved for outcome in record.outcomes()] == [Alternative.certain(0)] * 2
    assert not teller.asked


@pytest.mark.parametrize(
    "answer",
    [lambda seen: WaitForecast.point(seen.time), lambda seen: ActionScores(1.0, 0.0)],
    ids=["a rule", "scores"],
)
def test_who_foresees_no_range_is_answered_for(answer: Callable[[Observation], Prediction]) -> None:
    usual = Teller(hours(2, 4, 6))
    record = pinned(Teller(answer), usual=usual).run(300 * HOUR)
    assert [link.alternative for link in record.links[1:]] == [Alternative(2 * HOUR, 4 * HOUR, 6 * HOUR)] * 2


def test_where_nobody_foresees_a_range_nothing_is_claimed() -> None:
    record = pinned(Teller(lambda seen: WaitForecast.point(seen.time))).run(300 * HOUR)
    assert [outcome.saved for outcome in record.outcomes()] == [None, None]


def test_hand_over_of_which_the_end_was_seen_late_is_not_appraised() -> None:
    teller = Teller()
    service = pinned(teller)
    service.run(49 * HOUR)
    end = service.record.links[0].end
    service.cycle(end + 900 + MIN)
    assert service.record.outcomes()[0].saved is None
    assert not teller.asked


def test_an_error_costs_no_turn() -> None:
    service = pinned(Teller())

    class Broken:
        def observe(self, *_: object) -> Observation:
            raise RuntimeError("the history is gone")

    service.loop._appraiser = replace(service.loop._appraiser, observer=Broken())
    record = service.run(300 * HOUR)
    assert [outcome.x for outcome in record.outcomes()] == [0, 0]
    troubles = [entry for entry in service.journal.entries if entry.kind is EntryKind.TROUBLE]
    assert [entry.link for entry in troubles] == [2, 3]
    assert all("the history is gone" in entry.text for entry in troubles)


def test_a_store_that_is_away_is_told_as_ever() -> None:
    service = pinned(Teller())
    service.run(49 * HOUR)

    class Away:
        def observe(self, *_: object) -> None:
            raise StoreUnavailable("away")

    service.loop._appraiser = replace(service.loop._appraiser, observer=Away())
    with pytest.raises(StoreUnavailable):
        service.cycle(service.record.links[0].end + MIN)


def test_a_replay_asks_nobody() -> None:
    teller = Teller()
    service = pinned(teller)
    service.loop.reconfigure(Guards(PredictorGuard(teller, build_predictor("quantile"))), LoopSettings())
    service.run(300 * HOUR)
    assert not teller.asked


def test_where_no_job_waits_nothing_was_saved_whatever_the_predictor_says() -> None:
    """The predecessor's nodes are free as it ends, and a job submitted then has them."""
    teller = Teller()
    service = pinned(teller)
    service.cluster.partitions = (PartitionState("p", 4, 0, 4, 0),)
    record = service.run(300 * HOUR)
    assert [outcome.saved for outcome in record.outcomes()] == [Alternative.certain(0)] * 2
    assert not teller.asked
