"""Users' commands for their chains, while the loop runs in another thread."""

from __future__ import annotations

import threading

import pytest
from fakes import HOUR, FakeCluster, Fate, chain
from loops import Service, waiting

from mirage.domain.chain import ChainId, ChainStatus, DoneCondition
from mirage.domain.command import AddChain, CancelChain, PauseChain, ResumeChain
from mirage.domain.errors import ConfigError, NotPermitted, PluginNotFound, StoreUnavailable, UnknownChain
from mirage.domain.job import JobId, JobState
from mirage.domain.journal import EntryKind

SVC = ChainId("svc")


def test_a_chain_asked_for_gets_its_first_link_in_the_same_cycle() -> None:
    service = Service(waiting(1))
    answer = service.commands.put(AddChain(chain(name="other"), "alice"))
    assert not answer.done()
    service.loop.cycle()
    assert answer.result(0) == "chain other added by alice"
    assert [request.tag for request in service.cluster.submissions] == ["mirage:svc:1", "mirage:other:1"]
    assert service.journal.texts(EntryKind.COMMAND) == ("chain other added by alice",)


def test_whoever_has_an_answer_sees_what_it_is_about() -> None:
    """Within the cycle, whose queries to Slurm may take long."""
    service, seen = Service(waiting(1)), []

    def look(answer: object) -> None:
        del answer
        seen.append([(each.chain.chain_id, each.status) for each in service.loop.status.chains])

    first = AddChain(chain(name="other"), "alice"), PauseChain(SVC, "bob")
    later = AddChain(chain(name="third"), "alice")
    for command in (*first, later):
        service.commands.put(command).add_done_callback(look)
    service.loop.cycle()
    known = {"svc": ChainStatus.PAUSED, "other": ChainStatus.ACTIVE}
    assert [dict(each) for each in seen] == [known, known, known | {"third": ChainStatus.ACTIVE}]


def test_a_paused_chain_gets_no_successor_until_resumed() -> None:
    service = Service(waiting(1), "fixed:1h")
    service.run(10 * HOUR)
    service.commands.put(PauseChain(SVC, "alice"))
    service.run(60 * HOUR)
    assert service.record.status is ChainStatus.PAUSED
    assert service.record.reason == "by alice"
    assert len(service.cluster.submissions) == 1
    service.commands.put(ResumeChain(SVC, "alice"))
    service.cycle(60 * HOUR)
    assert len(service.cluster.submissions) == 2


def test_a_cancelled_chain_leaves_nothing_on_the_cluster() -> None:
    service = Service(waiting(1), "fixed:2h")
    service.run(48 * HOUR)
    service.commands.put(CancelChain(SVC, "alice"))
    service.cycle()
    service.cycle()
    assert {job.state for job in service.cluster.jobs.values()} == {JobState.CANCELLED}
    assert service.record.status is ChainStatus.STOPPED


def test_cancelled_chain_whose_job_nobody_can_cancel_says_so() -> None:
    """Such as that of an owner without an agent; it is retried in each cycle."""
    service = Service(FakeCluster(), chain_=chain())
    service.run(2 * HOUR)
    assert service.record.head is not None
    cancel = service.cluster.cancel

    def refuse(job_id: JobId, owner: str) -> None:
        raise NotPermitted("nobody can act for alice")

    service.cluster.cancel = refuse
    service.commands.put(CancelChain(SVC, "alice"))
    service.cycle()
    service.cycle()
    assert "nobody can act for alice" in service.loop.status.explained[SVC]
    service.cluster.cancel = cancel
    service.cycle()
    service.cycle()
    assert {job.state for job in service.cluster.jobs.values()} == {JobState.CANCELLED}


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (PauseChain(ChainId("nobody"), "bob"), UnknownChain),
        (AddChain(chain(), "alice"), ConfigError),
        (AddChain(chain(name="new", predictor="crystal-ball"), "alice"), PluginNotFound),
    ],
)
def test_what_cannot_be_done_is_said_to_the_one_who_asked_and_the_loop_goes_on(command, error) -> None:
    service = Service(waiting(1))
    answer = service.commands.put(command)
    assert service.cycle().startswith("submitted link 1")
    with pytest.raises(error):
        answer.result(0)


def test_commands_are_obeyed_while_the_controller_is_away() -> None:
    service = Service(FakeCluster(lambda request: Fate(wait=HOUR)))
    service.run(2 * HOUR)
    service.cluster.down = True
    service.commands.put(CancelChain(SVC, "alice"))
    service.cycle(3 * HOUR)
    assert service.record.status is ChainStatus.STOPPED
    service.cluster.down = False
    service.cycle(4 * HOUR)
    assert not service.cluster.live()


def test_the_status_shows_the_last_cycle_to_other_threads() -> None:
    service = Service(waiting(1))
    service.cycle()
    status = service.loop.status
    assert status.cycles == 1
    assert status.explained == {SVC: status.sentence}
    assert status.chains == service.store.load()


def test_something_asked_ends_the_wait() -> None:
    service = Service(waiting(1))
    asker = threading.Timer(0.05, lambda: service.commands.put(PauseChain(SVC, "alice")))
    asker.start()
    assert service.commands.wait(30)
    asker.join()
    assert len(service.commands.take()) == 1
    assert not service.commands.wait(0)


def test_jobs_of_somebody_else_with_our_tag_are_none_of_ours() -> None:
    service = Service(waiting(1), chain_=chain(done=DoneCondition(links=2)))
    foreign = chain(name="svc").link_request(1)
    service.cluster.submit(foreign.__class__(name="x", user="mallory", limit=HOUR, tag="mirage:svc:1"))
    service.cycle()
    assert service.record.links[0].job_id != 100
    assert [request.user for request in service.cluster.submissions] == ["mallory", "alice"]


def test_a_question_a_silent_controller_may_still_have_is_not_asked_again_too_soon() -> None:
    """The controller freezes with our submission before it and works it off an hour later."""
    service = Service(waiting(10), settle=120)
    service.cluster.lose_question = True
    service.cycle()
    service.cluster.down = True
    service.cycle(HOUR)
    service.cluster.down = False
    assert "does not show it yet" in service.cycle(2 * HOUR)
    service.cluster.submit(service.record.chain.link_request(1))
    assert service.cycle(2 * HOUR + 60) == "link 1 is pending"
    assert len(service.cluster.submissions) == 1


def test_a_chain_that_fails_keeps_no_other_from_its_turn() -> None:
    service = Service(waiting(1))
    service.commands.put(AddChain(chain(name="other"), "alice"))
    save = service.store.save

    def failing(record, *entries):
        if record.chain.chain_id == SVC and record.links:
            raise StoreUnavailable("no space left on device")
        save(record, *entries)

    service.store.save = failing
    with pytest.raises(StoreUnavailable):
        service.loop.cycle()
    assert [request.tag for request in service.cluster.submissions] == ["mirage:other:1"]
    assert service.loop.status.explained[SVC] == "hold: no space left on device"
    service.store.save = save
    service.loop.cycle()
    assert [request.tag for request in service.cluster.submissions] == ["mirage:other:1", "mirage:svc:1"]
