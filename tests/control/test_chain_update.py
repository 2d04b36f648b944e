"""Settings changed while a chain runs: what follows for its links, and what is rejected."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from fakes import HOUR, FakeCluster, Fate, chain
from loops import Service, waiting

from mirage.domain.chain import Chain, ChainStatus, DoneCondition, HandoverPolicy, HandoverSettings, Steering
from mirage.domain.command import UpdateChain
from mirage.domain.errors import ChainOver, ConfigError, PluginNotFound
from mirage.domain.failurepolicy import FailureAction, FailurePolicies, FailurePolicy
from mirage.domain.job import JobState, WarnSignal
from mirage.domain.journal import EntryKind
from mirage.domain.link import LinkState
from mirage.store.opening import open_store

if TYPE_CHECKING:
    from pathlib import Path

    from mirage.domain.errors import MirageError
    from mirage.domain.job import JobRequest

PINNED: dict[str, Any] = {"steering": Steering.AUTO}


def service(**more: Any) -> Service:
    return Service(waiting(0), chain_=chain(done=DoneCondition(exit_code=None, links=2), **more))


def update(of: Service, after: Chain, before: Chain | None = None) -> MirageError | None:
    """Ask, let a cycle pass, and return why not."""
    answer = of.commands.put(UpdateChain(before or of.record.chain, after, "alice"))
    of.cycle()
    error = answer.exception(0)
    assert error is None or isinstance(error, (ConfigError, ChainOver, PluginNotFound))
    return error


def with_links(before: Chain, links: int) -> Chain:
    return replace(before, done=replace(before.done, links=links))


def test_more_links_are_asked_for_while_the_last_one_runs() -> None:
    both = service()
    both.run(60 * HOUR)
    assert len(both.record.links) == 2
    assert update(both, with_links(both.record.chain, 4)) is None
    both.run(400 * HOUR)
    assert [link.state for link in both.record.links] == [LinkState.ENDED] * 4
    assert both.record.status is ChainStatus.DONE


def test_fewer_links_end_the_chain_with_those_on_their_way() -> None:
    few = service()
    few.cycle()
    assert update(few, with_links(few.record.chain, 1)) is None
    few.run(400 * HOUR)
    assert len(few.record.links) == 1
    assert few.record.status is ChainStatus.DONE


def test_no_fewer_links_than_have_run() -> None:
    both = service()
    both.run(60 * HOUR)
    before = both.record
    assert isinstance(update(both, with_links(before.chain, 1)), ConfigError)
    assert both.record.chain == before.chain


@pytest.mark.parametrize("steering", [Steering.AUTO, Steering.OFF])
def test_the_running_link_is_made_the_last_one(steering: Steering) -> None:
    """Its successor waits already; it is cancelled and never runs."""
    more = Service(waiting(0), chain_=chain(done=DoneCondition(exit_code=None, links=9), steering=steering))
    more.run(60 * HOUR)
    waits = more.record.waiting
    assert (waits is None, len(more.record.links)) == ((True, 2) if steering is Steering.OFF else (False, 3))
    assert update(more, with_links(more.record.chain, 2)) is None
    more.run(400 * HOUR)
    assert more.record.status is ChainStatus.DONE
    assert sum(link.started for link in more.record.links) == 2
    assert not more.cluster.live()


def test_a_longer_limit_is_that_of_links_to_come() -> None:
    longer = service()
    longer.run(HOUR)
    chain_ = longer.record.chain
    assert update(longer, replace(chain_, request=replace(chain_.request, limit=72 * HOUR))) is None
    longer.run(400 * HOUR)
    assert [request.limit for request in longer.cluster.submissions] == [48 * HOUR, 72 * HOUR]
    assert [link.end - link.start for link in longer.record.links] == [48 * HOUR, 72 * HOUR]


def test_a_limit_waits_until_slurm_has_shown_what_was_sent() -> None:
    unseen = Service(FakeCluster(lambda request: Fate(wait=HOUR)), chain_=chain(done=DoneCondition(links=2)))
    unseen.cycle()
    record = unseen.record
    unseen.store.save(record.with_link(replace(record.links[0], state=LinkState.PLANNED, limit=-1, job_id=0)))
    unseen.cluster.down = True
    chain_ = record.chain
    problem = update(unseen, replace(chain_, request=replace(chain_.request, limit=HOUR)))
    assert isinstance(problem, ConfigError)
    assert problem.where == "request.limit"


def test_a_link_that_waits_is_judged_by_the_limit_it_was_submitted_with() -> None:
    """Of 48 h, though that of links to come is half an hour: ending by itself then is no warning."""

    def fate(request: JobRequest) -> Fate:
        first = request.tag.endswith(":1")
        return Fate(state=JobState.TIMEOUT) if first else Fate(runtime=1_800, state=JobState.COMPLETED)

    chain_ = chain(done=DoneCondition(exit_code=0), steering=Steering.AUTO)
    warned = replace(chain_, request=replace(chain_.request, warn=WarnSignal("USR1", 60)))
    pinned = Service(FakeCluster(fate), chain_=warned)
    pinned.run(10 * HOUR)
    before = pinned.record.chain
    assert update(pinned, replace(before, request=replace(before.request, limit=1_800))) is None
    pinned.run(120 * HOUR)
    assert pinned.record.status is ChainStatus.DONE
    assert pinned.record.ended_by == 2


def test_of_two_that_knew_the_same_chain_the_second_is_told() -> None:
    both = service()
    both.cycle()
    before = both.record.chain
    assert update(both, with_links(before, 5)) is None
    assert isinstance(update(both, replace(before, name="other"), before), ConfigError)
    assert both.record.chain.done.links == 5
    assert both.record.chain.name == "svc"


@pytest.mark.parametrize("changed", ["exit_code", "file", "failures"])
def test_a_waiting_link_knows_what_ends_the_chain_now(changed: str) -> None:
    """It looks at the link before it by itself, also while the daemon is dead."""
    pinned = service(**PINNED)
    pinned.run(10 * HOUR)
    before = pinned.record.chain
    stop = FailurePolicies(exit=FailurePolicy(FailureAction.STOP))
    after = {
        "exit_code": replace(before, done=replace(before.done, exit_code=3)),
        "file": replace(before, done=replace(before.done, file="/home/alice/done")),
        "failures": replace(before, failures=stop),
    }[changed]
    assert update(pinned, after) is None
    pinned.run(20 * HOUR)
    second, third = pinned.record.links[1:]
    assert (second.job_state, second.started) == (JobState.CANCELLED, False)
    first, again = (pinned.cluster.submissions[at].batch for at in (1, 2))
    assert third.job_id
    assert first is not None
    assert again is not None
    assert again.text != first.text, "what it looks at is in its script"


@pytest.mark.parametrize("down", [False, True], ids=["", "while Slurm is away"])
def test_a_link_that_waits_in_another_way_is_withdrawn_and_submitted_again(down: bool) -> None:
    pinned = service(**PINNED)
    pinned.run(10 * HOUR)
    assert pinned.cluster.submissions[1].node_list
    pinned.cluster.down = down
    assert update(pinned, with_links(replace(pinned.record.chain, predictor="reactive"), 4)) is None
    assert pinned.record.chain.method is Steering.OFF
    pinned.run(12 * HOUR)
    pinned.cluster.down = False
    pinned.run(500 * HOUR)
    ran = [link for link in pinned.record.links if link.started]
    assert len(ran) == 4
    assert pinned.record.links[1].job_state is JobState.CANCELLED
    assert all(outcome.overlap == 0 for outcome in pinned.record.outcomes())
    assert not any(request.node_list for request in pinned.cluster.submissions[2:])


def test_a_link_that_nothing_of_ours_keeps_back_goes_on_waiting() -> None:
    """From a forecast to pins: the one that was submitted by the forecast starts when it can."""
    free = Service(waiting(5), chain_=chain(done=DoneCondition(exit_code=None, links=4)), predictor="fixed:20h")
    free.run(5 * HOUR + 30 * HOUR)
    waits = free.record.waiting
    assert waits is not None
    assert update(free, replace(free.record.chain, steering=Steering.AUTO)) is None
    assert free.record.waiting == replace(waits, unpinned=True)
    free.run(500 * HOUR)
    assert [link.job_state for link in free.record.links] == [JobState.TIMEOUT] * 4
    assert all(outcome.overlap == 0 for outcome in free.record.outcomes())
    assert [bool(request.node_list) for request in free.cluster.submissions] == [False, False, True, True]


def test_an_update_between_any_two_cycles_leaves_one_writer_alone() -> None:
    """No two links ever run together, whenever and whatever is changed."""
    for hour in (1, 20, 40, 47, 49, 60, 90):
        for changed in ("links", "limit", "lead", "total_time", "predictor"):
            one = service(**PINNED)
            one.run(hour * HOUR)
            if one.record.over:
                continue
            before = one.record.chain
            after = {
                "links": with_links(before, 3),
                "limit": replace(before, request=replace(before.request, limit=24 * HOUR)),
                "lead": replace(before, lead=5 * HOUR),
                "predictor": replace(before, predictor="reactive"),
                "total_time": replace(before, done=replace(before.done, total_time=60 * HOUR)),
            }[changed]
            update(one, after)
            one.run(500 * HOUR)
            assert one.record.over, (hour, changed)
            assert all(outcome.overlap == 0 for outcome in one.record.outcomes()), (hour, changed)


@pytest.mark.parametrize("policy", [HandoverPolicy.NONE, HandoverPolicy.ON_START])
@pytest.mark.parametrize("changed", ["failures", "predictor"])
def test_a_link_that_has_started_since_the_last_cycle_is_not_cancelled(
    policy: HandoverPolicy, changed: str
) -> None:
    """What the command finds stored is up to a cycle old."""
    both = service(**PINNED, handover=HandoverSettings(policy, WarnSignal("TERM", 60)))
    both.run(48 * HOUR - 60)
    assert both.record.waiting is not None
    both.cluster.advance(48 * HOUR + 30)
    before = both.record.chain
    stop = FailurePolicies(exit=FailurePolicy(FailureAction.STOP))
    after = {
        "failures": replace(before, failures=stop),
        "predictor": replace(before, predictor="reactive"),
    }[changed]
    update(both, after)
    both.run(300 * HOUR)
    assert [link.job_state for link in both.record.links] == [JobState.TIMEOUT] * 2
    assert both.record.status is ChainStatus.DONE


def test_nothing_to_change_no_such_predictor_and_a_chain_that_is_over_are_told() -> None:
    both = service()
    both.cycle()
    before = both.record.chain
    assert isinstance(update(both, before), ConfigError)
    assert isinstance(update(both, replace(before, predictor="nosuch")), PluginNotFound)
    both.run(400 * HOUR)
    assert isinstance(update(both, with_links(before, 9), both.record.chain), ChainOver)


def test_the_journal_says_what_was_changed_and_from_what() -> None:
    both = service(handover=HandoverSettings(HandoverPolicy.OVERLAP))
    both.cycle()
    after = with_links(replace(both.record.chain, predictor="reactive"), 7)
    assert update(both, after) is None
    (entry,) = both.journal.texts(EntryKind.COMMAND)
    for part in ("done.links 7 (was 2)", "predictor reactive (was none)", "by alice"):
        assert part in entry


def test_the_change_and_the_script_outlive_a_restart(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path}/mirage.db"
    store = open_store(address)
    stored = Service(waiting(0), chain_=chain(done=DoneCondition(exit_code=None, links=2)), store=store.chains)
    stored.cycle()
    assert update(stored, with_links(stored.record.chain, 3)) is None
    store.close()
    again = open_store(address)
    (record,) = again.chains.load()
    assert record.chain.done.links == 3
    restored = again.chains.with_script(record.chain.request)
    assert restored.batch is not None
    assert restored.batch.text == "#!/bin/sh\nexec serve\n"
    again.close()
