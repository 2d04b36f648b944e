"""`--handover none`: no link starts before the one before it is over, whatever submits early."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from fakes import HOUR, MIN, FakeCluster, Fate, chain
from loops import Service

from mirage.domain.bounds import LARGEST_SCRIPT
from mirage.domain.chain import ChainStatus, DoneCondition, HandoverPolicy, HandoverSettings, Steering
from mirage.domain.errors import SubmissionRejected
from mirage.domain.failurepolicy import FailureAction, FailurePolicies, FailurePolicy
from mirage.domain.job import BatchScript, Dependency, DependencyKind, JobChange, JobRequest, JobState, WarnSignal
from mirage.domain.journal import EntryKind
from mirage.domain.link import LinkState
from mirage.domain.objective import Objective, ObjectiveKind
from mirage.provisioner.handover import NEVER_SATISFIED
from mirage.store.opening import open_store

if TYPE_CHECKING:
    from pathlib import Path

LINKS = DoneCondition(links=3)
SHARED = "OverSubscribe=YES"


def writer(
    steering: Steering = Steering.OFF,
    predictor: str = "fixed:3h",
    lead: int = 10 * MIN,
    wait: int = HOUR,
    sharing: str = "",
) -> Service:
    """Links that are submitted two hours too early, unless steering submits them immediately."""
    cluster = FakeCluster(lambda request: Fate(wait=wait), sharing=sharing)
    return Service(cluster, predictor, chain_=chain(done=LINKS, steering=steering, lead=lead))


def after(*job_ids: int, kind: DependencyKind = DependencyKind.AFTERNOTOK) -> tuple[Dependency, ...]:
    return tuple(Dependency(kind, job_id) for job_id in job_ids)


@pytest.mark.parametrize("steering", Steering)
@pytest.mark.parametrize("predictor", ["reactive", "fixed:3h"])
def test_no_two_links_run_together(steering: Steering, predictor: str) -> None:
    record = writer(steering, predictor).run(500 * HOUR, tick=MIN)
    assert record.status is ChainStatus.DONE
    assert [outcome.overlap for outcome in record.outcomes()] == [0, 0]


def test_early_submission_depends_on_the_predecessor() -> None:
    service = writer()
    service.run(500 * HOUR, tick=MIN)
    assert [request.dependencies for request in service.cluster.submissions] == [(), after(100), after(101)]


def test_predecessor_beyond_its_limit_is_depended_on() -> None:
    """Slurm lets a job run on (OverTimeLimit), or has not got to ending it."""
    service = writer(predictor="reactive", wait=0)
    service.cycle()
    service.cluster._fates[100] = Fate(runtime=49 * HOUR, state=JobState.TIMEOUT)
    service.run(49 * HOUR + HOUR, tick=MIN)
    first, second = service.record.links
    assert second.submit == 48 * HOUR
    assert second.start == first.end == 49 * HOUR


def test_resubmitted_link_keeps_its_dependency() -> None:
    service = writer()
    service.cycle()
    service.cycle(HOUR)
    service.cluster.lose_question = True
    service.run(47 * HOUR, tick=MIN)
    assert [request.dependencies for request in service.cluster.submissions] == [(), after(100)]
    assert service.record.links[1].state is LinkState.PENDING


@pytest.mark.parametrize("lead", [0, 10 * MIN])
def test_pin_is_not_released_while_the_predecessor_runs(lead: int) -> None:
    service = writer(Steering.PIN, lead=lead)
    service.run(48 * HOUR + 59 * MIN, tick=MIN)
    assert not service.cluster.changes
    service.run(49 * HOUR, tick=MIN)
    assert service.cluster.submissions[1].dependencies == ()
    assert service.cluster.submissions[1].node_list == "node-100"
    assert service.record.links[1].start == service.record.links[0].end


def test_pin_is_released_once_the_predecessor_is_over() -> None:
    """Another job has taken a node at that moment: bound to it, the link would wait for that one."""
    service = writer(Steering.PIN, wait=0)
    service.cycle()
    service.cycle(HOUR)
    pinned = service.cluster.jobs[101]
    service.cluster.jobs[100] = replace(
        service.cluster.jobs[100], state=JobState.COMPLETED, end=2 * HOUR, exit_code=9
    )
    service.cluster.jobs[101] = replace(pinned, held=True)  # it does not start
    service.cycle(2 * HOUR)
    assert service.cluster.changes == [(101, JobChange(node_list=""))]


def test_pin_outlasts_cleaning_up() -> None:
    service = writer(Steering.PIN, wait=0)
    service.cycle()
    service.cycle(HOUR)
    ended = replace(service.cluster.jobs[100], state=JobState.TIMEOUT, end=2 * HOUR, completing=True)
    service.cluster.jobs[100] = ended
    service.cluster.jobs[101] = replace(service.cluster.jobs[101], held=True)
    service.cycle(2 * HOUR)
    assert not service.cluster.changes
    service.cluster.jobs[100] = replace(ended, completing=False)
    service.cycle(2 * HOUR + MIN)
    assert service.cluster.changes == [(101, JobChange(node_list=""))]


def test_links_of_a_pinned_chain_are_not_requeued() -> None:
    service = writer(Steering.PIN)
    service.run(2 * HOUR, tick=MIN)
    assert [request.requeue for request in service.cluster.submissions] == [False, False]


def test_pin_on_shared_nodes_becomes_a_dependency() -> None:
    service = writer(Steering.PIN, sharing=SHARED)
    service.run(3 * HOUR, tick=MIN)
    request = service.cluster.submissions[1]
    assert (request.node_list, request.dependencies) == ("", after(100))
    assert not service.cluster.changes, "nor is it pinned later"
    assert SHARED in service.cycle(), "`mirage explain` says why"
    (told,) = [text for text in service.journal.texts(EntryKind.ACTION) if SHARED in text]
    assert "link 2" in told
    record = service.run(500 * HOUR, tick=MIN)
    assert [outcome.overlap for outcome in record.outcomes()] == [0, 0]


class PinRejecting(FakeCluster):
    """Takes no job that is bound to nodes, for this reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(lambda request: Fate(wait=HOUR))
        self.reason, self.asked = reason, 0

    def submit(self, request):
        if request.node_list:
            self.asked += 1
            raise SubmissionRejected(self.reason, "Requested nodes not in this partition")
        return super().submit(request)


@pytest.mark.parametrize("policy", [HandoverPolicy.NONE, HandoverPolicy.OVERLAP])
def test_pin_that_slurm_rejects_is_left_out_for_that_handover(policy: HandoverPolicy) -> None:
    """With several partitions, each must have the nodes."""
    cluster = PinRejecting("InvalidNodeName")
    chain_ = chain(done=LINKS, steering=Steering.PIN, lead=0, handover=HandoverSettings(policy))
    service = Service(cluster, "fixed:3h", chain_=chain_)
    service.run(3 * HOUR, tick=MIN)
    early = policy is HandoverPolicy.NONE
    assert [request.dependencies for request in cluster.submissions] == [(), after(100)][: 2 if early else 1]
    record = service.run(500 * HOUR, tick=MIN)
    assert record.status is ChainStatus.DONE
    assert (record.refusals, cluster.asked) == (0, 2)
    assert [outcome.overlap for outcome in record.outcomes()] == ([0] * 2 if early else [2 * HOUR] * 2)


def test_pin_that_a_limit_keeps_out_is_tried_again() -> None:
    cluster = PinRejecting("QOSMaxSubmitJobPerUserLimit")
    service = Service(cluster, "fixed:3h", chain_=chain(done=LINKS, steering=Steering.PIN, lead=0))
    service.run(5 * HOUR, tick=MIN)
    assert cluster.asked > 2
    assert len(cluster.submissions) == 1


def test_sharing_is_asked_once_for_each_handover() -> None:
    service = writer(Steering.PIN, sharing=SHARED)
    asked = []
    service.cluster.why_shared = lambda job, *, spreads: asked.append(job.job_id) or SHARED
    service.run(500 * HOUR, tick=MIN)
    assert asked == [100, 101]


def test_rejected_dependency_is_tried_again_at_once() -> None:
    service = writer()
    service.cycle()
    submit = service.cluster.submit

    def refused(request):
        raise SubmissionRejected("InvalidDependency", "Job dependency problem")

    service.cluster.submit = refused
    service.run(46 * HOUR + 30 * MIN, tick=MIN)
    assert service.record.status is ChainStatus.ACTIVE
    assert service.record.refusals == 0
    service.cluster.submit = submit
    service.cycle(47 * HOUR)
    assert len(service.record.links) == 2


FINISHES = Fate(wait=HOUR, runtime=46 * HOUR)


def finishing(fate: Fate, **kind: object) -> Service:
    """The first link ends by itself while its successor waits; both would be looked at ten minutes later."""
    chain_ = chain(done=DoneCondition(), failures=FailurePolicies(exit=FailurePolicy(FailureAction.STOP)), **kind)
    service = Service(FakeCluster(lambda request: fate), "fixed:3h", chain_=chain_)
    service.run(46 * HOUR + 50 * MIN)
    assert service.record.links[1].waiting
    return service


@pytest.mark.parametrize("steering", [Steering.OFF, Steering.NICE, Steering.HOLD])
def test_no_link_starts_once_the_work_is_done(steering: Steering) -> None:
    service = finishing(FINISHES, steering=steering)
    service.cluster.advance(60 * HOUR)
    assert service.cluster.jobs[101].state is JobState.PENDING, "the daemon was down all the time"
    service.cycle(60 * HOUR)
    service.cycle(60 * HOUR + MIN)
    assert service.record.status is ChainStatus.DONE
    assert [link.started for link in service.record.links] == [True, False]


def test_a_link_that_is_warned_of_its_limit_has_a_successor_whatever_its_exit_code() -> None:
    request = chain().request
    service = writer()
    service.store.save(
        replace(
            service.record,
            chain=replace(service.record.chain, request=replace(request, warn=WarnSignal("USR1", HOUR))),
        )
    )
    service.run(500 * HOUR, tick=MIN)
    asked = [request.dependencies for request in service.cluster.submissions]
    assert asked == [(), after(100, kind=DependencyKind.AFTERANY), after(101, kind=DependencyKind.AFTERANY)]


@pytest.mark.parametrize("steering", [Steering.OFF, Steering.PIN])
def test_a_link_that_started_after_the_one_that_stopped_the_chain_is_cancelled(steering: Steering) -> None:
    service = finishing(replace(FINISHES, state=JobState.FAILED, exit_code=3), steering=steering)
    service.cycle(47 * HOUR + 10 * MIN)
    assert service.record.status is ChainStatus.STOPPED
    assert service.record.links[1].running, "it began before the first poll"
    service.cycle(47 * HOUR + 11 * MIN)
    assert service.record.links[1].job_state is JobState.CANCELLED


def test_a_link_beside_the_one_that_stopped_the_chain_runs_on() -> None:
    kind = {"handover": HandoverSettings(HandoverPolicy.OVERLAP)}
    fate = Fate(wait=HOUR, runtime=47 * HOUR, state=JobState.FAILED, exit_code=3)
    failures = FailurePolicies(exit=FailurePolicy(FailureAction.STOP))
    service = Service(FakeCluster(lambda request: fate), "fixed:3h", chain_=chain(failures=failures, **kind))
    service.run(49 * HOUR)
    assert service.record.status is ChainStatus.STOPPED
    assert service.record.links[1].running
    service.cycle(50 * HOUR)
    assert service.record.links[1].running


def test_a_link_that_slurm_will_never_start_gives_its_place_to_the_next() -> None:
    service = writer()
    service.run(47 * HOUR, tick=MIN)
    job = service.cluster.jobs[101]
    service.cluster.jobs[100] = replace(service.cluster.jobs[100], state=JobState.TIMEOUT, end=47 * HOUR)
    service.cluster.jobs[101] = replace(job, reason=NEVER_SATISFIED, held=True)
    service.run(300 * HOUR, tick=MIN)
    assert service.record.links[1].job_state is JobState.CANCELLED
    assert not service.record.links[1].started
    assert service.record.reason == "3 links have run"


def scripted(text: str = "#!/bin/sh\n#SBATCH -n 2\ntrain\n", **changes: object) -> JobRequest:
    request = chain().request
    return replace(request, batch=BatchScript(text, directory="/home/ann"), **changes)


def second_link(**kind: object) -> JobRequest:
    """The request submitted while the first link runs, an hour after its start."""
    chain_ = replace(chain(), **{"steering": Steering.AUTO, "request": scripted()} | kind)
    service = Service(FakeCluster(lambda request: Fate(wait=0)), "fixed:3h", chain_=chain_)
    service.run(3 * HOUR, tick=MIN)
    return service.cluster.submissions[1] if len(service.cluster.submissions) > 1 else scripted("")


def test_auto_pins_and_never_begins_work_that_is_done() -> None:
    request = second_link()
    assert (request.node_list, request.dependencies, request.requeue) == ("node-100", (), False)
    assert "squeue" in request.batch.text
    assert "--jobs=100" in request.batch.text
    assert request.batch.text.count("#SBATCH -n 2") == 2, "once for sbatch, once as the script has it"


@pytest.mark.parametrize(
    ("kind", "state"),
    [
        ({"done": DoneCondition(exit_code=None, links=3)}, "CANCELLED"),
        ({"handover": HandoverSettings(HandoverPolicy.OVERLAP)}, "COMPLETED"),
        ({"request": scripted(warn=WarnSignal("USR1", HOUR))}, "COMPLETED"),
        ({"steering": Steering.HOLD}, "COMPLETED"),
        ({"failures": FailurePolicies(exit=FailurePolicy(FailureAction.STOP))}, "OUT_OF_MEMORY"),
        ({"failures": FailurePolicies(node=FailurePolicy(FailureAction.STOP))}, "NODE_FAIL"),
    ],
)
def test_link_that_is_queued_ahead_looks_for_what_ends_the_chain(kind: dict[str, object], state: str) -> None:
    text = second_link(**kind).batch.text
    assert "--jobs=100" in text
    assert f"= {state} ]" in text


def test_link_that_has_nothing_to_look_for_looks_for_its_directory_alone() -> None:
    goes_on, done = FailurePolicies(cancelled=FailurePolicy(FailureAction.CONTINUE)), DoneCondition(None, links=3)
    assert "squeue" in second_link(done=done, failures=goes_on).batch.text, "one writer looks"
    request = second_link(done=done, failures=goes_on, handover=HandoverSettings(HandoverPolicy.OVERLAP), lead=0)
    assert request.node_list == "node-100"
    assert ("squeue" in request.batch.text, "[ . -ef /home/ann ]" in request.batch.text) == (False, True)


@pytest.mark.parametrize(
    "kind",
    [
        {"predictor": "reactive"},
        {"aim": Objective(ObjectiveKind.OVERLAP, 1_800)},
        {"request": scripted(requeue=True)},
    ],
)
def test_auto_leaves_to_the_forecast_what_is_to_follow_one(kind: dict[str, object]) -> None:
    assert second_link(**kind).batch.text == "", "nothing is submitted yet"


def test_auto_pins_where_few_interruptions_are_asked_for() -> None:
    assert second_link(aim=Objective(ObjectiveKind.NO_INTERRUPTION, 0.9)).node_list == "node-100"


@pytest.mark.parametrize("policy", [HandoverPolicy.OVERLAP, HandoverPolicy.ON_START])
@pytest.mark.parametrize("asked", [None, False, True])
def test_pinned_link_is_requeued_only_where_its_owner_says_so(policy: HandoverPolicy, asked: bool | None) -> None:
    """By Slurm's default (JobRequeue=1) no pin would delay any of them."""
    pinned = replace(
        chain(), steering=Steering.PIN, handover=HandoverSettings(policy), request=scripted(requeue=asked)
    )
    assert pinned.link_request(2).requeue is (asked or False)


def test_script_too_long_to_look_first_depends_on_its_predecessor() -> None:
    request = second_link(request=scripted("#!/bin/sh\n" + "#" * (LARGEST_SCRIPT - 100)))
    assert (request.node_list, request.dependencies) == ("", after(100))


def test_script_that_cannot_be_read_is_submitted_as_it_is() -> None:
    """sbatch reports it in different words."""
    request = scripted("train\n")
    link = second_link(request=request)
    assert link.batch == replace(request.batch, environment=link.batch.environment)


@pytest.mark.parametrize("where", ["option", "script"])
def test_link_in_a_container_depends_on_its_predecessor_and_looks_at_nothing(where: str) -> None:
    """There may be neither the shell nor squeue that it would need."""
    request = scripted("#!/bin/sh\n#SBATCH --container=/bundle\ntrain\n")
    if where == "option":
        request = scripted()
        assert request.batch is not None
        request = replace(request, batch=replace(request.batch, options=("--container-image=ubuntu",)))
    link = second_link(request=request)
    assert (link.node_list, link.dependencies) == ("", after(100))
    assert link.batch == replace(request.batch, environment=link.batch.environment)


@pytest.mark.parametrize(
    ("directive", "pinned"), [("-n 2", True), ("-w n7", False), ("--container=/bundle", False)]
)
def test_what_the_script_asks_for_counts_though_the_database_keeps_it(
    tmp_path: Path, directive: str, pinned: bool
) -> None:
    request = scripted(f"#!/bin/sh\n#SBATCH {directive}\ntrain\n")
    wanted = replace(chain(), steering=Steering.AUTO, request=request)
    opened, cluster = open_store(f"sqlite:///{tmp_path}/mirage.db"), FakeCluster(lambda request: Fate(wait=0))
    Service(cluster, "fixed:3h", chain_=wanted, store=opened.chains).run(3 * HOUR, tick=MIN)
    opened.close()
    second = cluster.submissions[1]
    assert (second.node_list, second.dependencies) == (("node-100", ()) if pinned else ("", after(100)))
    assert second.batch is not None
    assert ("squeue" in second.batch.text) == (directive != "--container=/bundle")


@pytest.mark.parametrize("where", ["option", "script"])
def test_link_that_asks_for_nodes_by_name_is_not_pinned(where: str) -> None:
    """The list would replace the pin, or be lost when the link is released: it waits by its dependency."""
    wanted = chain(done=LINKS, steering=Steering.PIN)
    assert wanted.request.batch is not None
    batch = replace(wanted.request.batch, options=("--nodelist=n7",))
    if where == "script":
        batch = replace(wanted.request.batch, text="#!/bin/sh\n#SBATCH -w n7\nexec serve\n")
    wanted = replace(wanted, request=replace(wanted.request, batch=batch))
    cluster = FakeCluster(lambda request: Fate(wait=HOUR))
    record = Service(cluster, chain_=wanted).run(500 * HOUR, tick=MIN)
    assert [request.dependencies for request in cluster.submissions] == [(), after(100), after(101)]
    assert {request.node_list for request in cluster.submissions} == {""}
    assert [change for _, change in cluster.changes if change.node_list is not None] == []
    assert [outcome.overlap for outcome in record.outcomes()] == [0, 0]
