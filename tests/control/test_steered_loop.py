"""A successor in the queue is held until it is due, and the decision stays open until it starts."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from fakes import HOUR, MIN, FakeCluster, Fate, chain
from loops import Service

from mirage.domain.chain import ChainStatus, DoneCondition, HandoverPolicy, HandoverSettings, Steering
from mirage.domain.command import PauseChain
from mirage.domain.errors import ClusterUnavailable, JobBlocked, UnknownJob
from mirage.domain.job import JobChange, JobState, WarnSignal
from mirage.domain.journal import EntryKind
from mirage.domain.link import LinkState
from mirage.provisioner.steering import BACK

LAUNCH_FAILED = "launch failed requeued held"
LET_GO = {
    Steering.HOLD: JobChange(held=False),
    Steering.NICE: JobChange(nice=0),
    Steering.PIN: JobChange(node_list=""),
}
WAYS = pytest.mark.parametrize("steering", LET_GO)


def steered(steering: Steering, lead: int = HOUR, wait: int = 5 * HOUR) -> Service:
    cluster = FakeCluster(lambda request: Fate(wait=wait))
    both = HandoverSettings(HandoverPolicy.OVERLAP)
    asked = chain(done=DoneCondition(links=3), steering=steering, lead=lead, handover=both)
    return Service(cluster, "reactive", chain_=asked)


@WAYS
def test_the_first_link_is_not_held_back(steering: Steering) -> None:
    service = steered(steering)
    service.cycle()
    (request,) = service.cluster.submissions
    assert (request.held, request.nice, request.node_list) == (False, 0, "")


@WAYS
def test_the_successor_bids_as_its_predecessor_starts_and_is_let_go_in_time(steering: Steering) -> None:
    service = steered(steering)
    service.run(51 * HOUR)
    first, second = service.record.links
    assert second.submit == first.start
    request = service.cluster.submissions[1]
    assert (request.held, request.nice, request.node_list) == {
        Steering.HOLD: (True, 0, ""),
        Steering.NICE: (False, BACK, ""),
        Steering.PIN: (False, 0, "node-100"),
    }[steering]
    assert not service.cluster.changes
    service.run(53 * HOUR, tick=MIN)
    assert service.cluster.changes == [(101, LET_GO[steering])]


@WAYS
def test_it_has_aged_and_starts_as_it_is_let_go(steering: Steering) -> None:
    record = steered(steering).run(300 * HOUR)
    assert [outcome.x for outcome in record.outcomes()] == [-HOUR] * 2, "its five hours of waiting were over"


def test_one_that_stays_pinned_starts_as_its_predecessor_ends() -> None:
    service = steered(Steering.PIN, lead=0)
    record = service.run(300 * HOUR)
    assert [outcome.x for outcome in record.outcomes()] == [0, 0]


@WAYS
def test_when_the_predecessor_ends_early_the_successor_is_let_go_at_once(steering: Steering) -> None:
    fates = iter([Fate(wait=HOUR, runtime=10 * HOUR), Fate(wait=HOUR), Fate(wait=HOUR)])
    done = DoneCondition(exit_code=None, links=3)
    cluster = FakeCluster(lambda request: next(fates))
    service = Service(cluster, chain_=chain(done=done, steering=steering))
    service.run(12 * HOUR)
    assert service.record.links[1].start == 11 * HOUR


def test_a_link_let_go_is_held_back_again_when_its_predecessor_gets_more_time() -> None:
    service = steered(Steering.HOLD, wait=100 * HOUR)
    service.run(147 * HOUR + 10 * MIN)
    assert service.cluster.changes == [(101, JobChange(held=False))]
    service.cluster.jobs[100] = replace(service.cluster.jobs[100], end=170 * HOUR)
    service.cycle(147 * HOUR + 20 * MIN)
    assert service.cluster.changes[1:] == [(101, JobChange(held=True))]
    assert service.record.links[1].state is LinkState.PENDING


@WAYS
def test_a_crash_leaves_nothing_to_remember(steering: Steering) -> None:
    service = steered(steering)
    service.run(20 * HOUR)
    service.crash()
    record = service.run(300 * HOUR)
    assert len(service.cluster.submissions) == 3
    assert [outcome.x for outcome in record.outcomes()] == [-HOUR] * 2


@pytest.mark.parametrize("policy", [HandoverPolicy.NONE, HandoverPolicy.OVERLAP])
def test_a_pinned_link_of_a_paused_chain_is_unpinned_once_its_predecessor_has_ended(
    policy: HandoverPolicy,
) -> None:
    """Else it waits without end where the node of its predecessor was drained."""
    fates = iter([Fate(wait=HOUR, runtime=20 * HOUR), Fate(wait=100 * HOUR)])
    asked = chain(
        done=DoneCondition(exit_code=None, links=3), steering=Steering.PIN, handover=HandoverSettings(policy)
    )
    service = Service(FakeCluster(lambda request: next(fates)), "reactive", chain_=asked)
    service.run(5 * HOUR)
    service.commands.put(PauseChain(service.record.chain.chain_id, "alice"))
    service.cycle(5 * HOUR + MIN)
    service.run(20 * HOUR)
    assert not service.cluster.changes, "its predecessor runs"
    sentence = service.cycle(21 * HOUR + MIN)
    assert service.cluster.changes == [(101, JobChange(node_list=""))]
    assert sentence.startswith("paused: by alice")
    assert service.record.status is ChainStatus.PAUSED
    service.run(25 * HOUR)
    assert len(service.cluster.submissions) == 2


def test_an_unreachable_controller_changes_nothing() -> None:
    service = steered(Steering.HOLD)
    service.run(51 * HOUR)
    service.cluster.down = True
    service.run(52 * HOUR + 30 * MIN)
    assert not service.cluster.changes
    service.cluster.down = False
    service.cycle(52 * HOUR + 31 * MIN)
    assert service.cluster.changes == [(101, JobChange(held=False))]


def test_a_link_that_an_administrator_holds_is_left_alone() -> None:
    service = steered(Steering.HOLD)
    service.run(20 * HOUR)
    job = service.cluster.jobs[101]
    service.cluster.jobs[101] = replace(job, reason="JobHeldAdmin")
    for now in (20 * HOUR + MIN, 52 * HOUR + 30 * MIN, 53 * HOUR + 30 * MIN):
        assert "administrator" in service.cycle(now)
    assert not service.cluster.changes
    service.cluster.jobs[101] = replace(job, held=True, reason="JobHeldUser")
    service.cycle(53 * HOUR + 40 * MIN)
    assert service.cluster.changes == [(101, LET_GO[Steering.HOLD])]


@pytest.mark.parametrize("steering", list(Steering))
@pytest.mark.parametrize("policy", [HandoverPolicy.NONE, HandoverPolicy.ON_START])
def test_first_link_keeps_the_nodes_that_its_owner_names(steering: Steering, policy: HandoverPolicy) -> None:
    """Mirage has not bound it to them, and nothing of it has Mirage put off."""
    cluster = FakeCluster(lambda request: Fate(wait=5 * HOUR))
    service = Service(cluster, chain_=chain(steering=steering, handover=HandoverSettings(policy)))
    service.cycle()
    job = service.cluster.jobs[100]
    service.cluster.jobs[100] = replace(job, node_list="n7", nice=3, reason="Resources")
    for minute in range(1, 5 * 60, 7):
        service.cycle(minute * MIN)
    assert not service.cluster.changes
    assert service.cluster.jobs[100].node_list == "n7"


def test_a_release_without_effect_is_tried_less_and_less_and_not_told_as_done() -> None:
    service = steered(Steering.HOLD)
    service.run(20 * HOUR)
    tries: list[int] = []
    service.cluster.update = lambda *_: tries.append(service.cluster.time)
    sentences = [service.cycle(52 * HOUR + minute * MIN) for minute in range(60)]
    waits = [(after - before) // MIN for before, after in itertools.pairwise(tries)]
    assert waits == [1, 2, 4, 8, 15, 15]
    assert not any("waits in the queue" in sentence for sentence in sentences)


@pytest.mark.parametrize("steering", [Steering.HOLD, Steering.NICE])
def test_a_link_that_slurm_never_lets_go_is_replaced(steering: Steering) -> None:
    """A slurmctld that is killed while it stores a job in accounting rejects all later changes of that job."""
    service = steered(steering)
    service.run(20 * HOUR)
    update, blocked = service.cluster.update, service.record.links[1].job_id

    def updating(job_id: int, owner: str, change: JobChange) -> None:
        if job_id == blocked:
            raise JobBlocked("scontrol release: the DB index is being set, try again in a bit")
        update(job_id, owner, change)

    service.cluster.update = updating
    service.run(53 * HOUR - 5 * MIN, tick=MIN)
    assert service.record.links[0].running
    assert "the DB index is being set" in service.loop.status.sentence, "between the tries, too"
    assert [link.index for link in service.record.live] == [1, 2], "kept while its predecessor runs"
    record = service.run(300 * HOUR, tick=MIN)
    assert record.status is ChainStatus.DONE
    assert service.cluster.jobs[blocked].state is JobState.CANCELLED
    ran = [link for link in record.links if link.started]
    assert len(ran) == 3
    assert ran[1].submit <= ran[0].end + 30 * MIN


@pytest.mark.parametrize("steering", Steering)
def test_link_that_slurm_holds_after_a_failed_launch_is_released(steering: Steering) -> None:
    service = steered(steering, wait=5 * HOUR)
    service.cycle()
    service.cluster.jobs[100] = replace(service.cluster.jobs[100], held=True, reason=LAUNCH_FAILED)
    tries: list[int] = []
    service.cluster.update = lambda *_: tries.append(service.cluster.time)
    for minute in range(1, 32):
        service.cycle(minute * MIN)
        service.cluster.jobs[100] = replace(service.cluster.jobs[100], held=True, reason=LAUNCH_FAILED)
    assert [(after - before) // MIN for before, after in itertools.pairwise(tries)] == [1, 2, 4, 8, 15]


def test_link_that_its_owner_put_back_in_held_state_stays_held() -> None:
    service = steered(Steering.OFF)
    service.cycle()
    service.cluster.jobs[100] = replace(service.cluster.jobs[100], held=True, reason="job requeued in held state")
    for minute in range(1, 5):
        service.cycle(minute * MIN)
    assert not service.cluster.changes


def test_a_link_that_cannot_be_let_go_during_an_outage_is_kept() -> None:
    service = steered(Steering.HOLD)
    service.run(20 * HOUR)
    update = service.cluster.update

    def away(*_: object) -> None:
        raise ClusterUnavailable("scontrol release: Unable to contact slurm controller")

    service.cluster.update = away
    service.run(60 * HOUR, tick=MIN)
    service.cluster.update = update
    record = service.run(300 * HOUR)
    assert len(record.links) == 3
    assert JobState.CANCELLED not in {job.state for job in service.cluster.jobs.values()}


@WAYS
def test_release_of_a_link_that_started_is_no_trouble(steering: Steering) -> None:
    """Slurm started it between the snapshot and the release."""
    service = steered(steering)
    service.run(20 * HOUR)

    def update(*_: object) -> None:
        raise UnknownJob("job 101 does not pend: it is RUNNING")

    service.cluster.update = update
    assert service.cycle(52 * HOUR + 30 * MIN) == "job 101 is no longer pending"
    assert not [entry for entry in service.journal.entries if entry.kind is EntryKind.TROUBLE]


def test_a_pending_link_is_told_with_slurms_reason() -> None:
    service = Service(FakeCluster(lambda request: Fate(wait=5 * HOUR)))
    service.cycle()
    service.cluster.jobs[100] = replace(service.cluster.jobs[100], reason="AssocMaxJobsLimit")
    assert "AssocMaxJobsLimit" in service.cycle(MIN)


@pytest.mark.parametrize("policy", [HandoverPolicy.ON_START, HandoverPolicy.WHEN_READY])
@pytest.mark.parametrize("wait", [0, 5 * HOUR], ids=["idle", "busy"])
def test_auto_pins_a_service_and_lets_it_go_shortly_before_the_end(policy: HandoverPolicy, wait: int) -> None:
    """It starts then, and the predecessor exits: both run for its grace period."""
    grace = HandoverSettings(policy, WarnSignal("TERM", 2 * MIN))
    asked = chain(done=DoneCondition(links=3), steering=Steering.AUTO, handover=grace)
    service = Service(FakeCluster(lambda request: Fate(wait=wait)), chain_=asked)
    service.run(40 * HOUR)
    assert service.cluster.submissions[1].node_list == "node-100"
    record = service.run(300 * HOUR, tick=MIN)
    first, second, _ = record.links
    assert second.start == first.limit_end - 10 * MIN
    longest = 4 * MIN if policy is HandoverPolicy.ON_START else 10 * MIN
    assert [0 < outcome.overlap <= longest for outcome in record.outcomes()] == [True] * 2


def test_auto_lets_short_links_go_a_tenth_of_their_limit_before_the_end() -> None:
    """Otherwise each would start with its predecessor, which would exit immediately."""
    short = chain(10 * MIN, steering=Steering.AUTO, handover=HandoverSettings(HandoverPolicy.ON_START))
    assert short.release_lead == MIN
    assert replace(short, handover=HandoverSettings(HandoverPolicy.OVERLAP)).release_lead == 0
    assert replace(short, handover=HandoverSettings()).release_lead == 0
    assert replace(short, steering=Steering.PIN).release_lead == short.lead


@pytest.mark.parametrize("steering", [Steering.PIN, Steering.NICE])
def test_a_hold_by_its_owner_is_told_with_what_ends_it(steering: Steering) -> None:
    service = steered(steering)
    service.run(7 * HOUR)
    second = service.record.links[1]
    service.cluster.jobs[second.job_id] = replace(
        service.cluster.jobs[second.job_id], held=True, reason="JobHeldUser"
    )
    assert f"scontrol release {second.job_id}" in service.cycle(8 * HOUR)


@pytest.mark.parametrize("policy", [HandoverPolicy.WHEN_READY, HandoverPolicy.ON_START])
@pytest.mark.parametrize("warned", [15 * MIN, 10 * MIN, 2 * MIN])
def test_a_service_that_leaves_at_slurms_warning_has_its_successor_before(
    policy: HandoverPolicy, warned: int
) -> None:
    """Nothing is lost though its warning comes before the lead begins."""
    limit = 2 * HOUR
    asked = chain(
        limit,
        DoneCondition(exit_code=None, links=4),
        handover=HandoverSettings(policy),
        steering=Steering.AUTO,
        lead=10 * MIN,
    )
    asked = replace(asked, request=replace(asked.request, warn=WarnSignal("TERM", warned, batch_only=True)))
    cluster = FakeCluster(lambda request: Fate(runtime=limit - warned, state=JobState.COMPLETED))
    record = Service(cluster, chain_=asked).run(30 * HOUR, tick=MIN)
    assert record.status is ChainStatus.DONE
    assert [outcome.interruption for outcome in record.outcomes()] == [0, 0, 0]
    least = 8 * MIN if policy is HandoverPolicy.WHEN_READY else MIN
    assert all(least <= outcome.overlap <= 10 * MIN for outcome in record.outcomes())


def test_what_its_links_have_done_counts_more_than_slurms_warning() -> None:
    """They save when they are warned, and run on to their limit."""
    asked = chain(2 * HOUR, DoneCondition(exit_code=None, links=4), steering=Steering.PIN, lead=10 * MIN)
    asked = replace(
        asked,
        handover=HandoverSettings(HandoverPolicy.OVERLAP),
        request=replace(asked.request, warn=WarnSignal("USR1", 30 * MIN)),
    )
    record = Service(FakeCluster(lambda request: Fate()), chain_=asked).run(30 * HOUR, tick=MIN)
    assert [outcome.interruption for outcome in record.outcomes()] == [0, 0, 0]
    assert all(8 * MIN <= outcome.overlap <= 11 * MIN for outcome in record.outcomes())
