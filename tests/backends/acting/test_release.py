"""Held links that are released: which jobs are stock, which are links, and how the loop treats both."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fakes import HOUR, FakeCluster, Fate, chain

from mirage.backends.operator import ReleaseCluster
from mirage.control.dependencies import LoopDependencies, LoopSettings
from mirage.control.guard import Guards, PredictorGuard
from mirage.control.loop import ControlLoop
from mirage.control.stores import MemoryJournal, MemoryStore
from mirage.domain.chain import Chain, ChainId, ChainRecord, ChainStatus, DoneCondition, Steering
from mirage.domain.errors import ClusterUnavailable, NotPermitted
from mirage.domain.job import ABSENT, Dependency, DependencyKind, Job, JobChange, JobId, JobState, SignalReach
from mirage.domain.journal import EntryKind
from mirage.domain.link import NO_JOB
from mirage.predictors.registry import build_predictor
from mirage.provisioner.heldlinks import awaited


class Operated(FakeCluster):
    """A Slurm as an Operator sees it: submissions are the users' own, ``down`` cuts every answer off."""

    lose_release = False
    """The next release is done, but its answer does not come back."""
    cancel_fails = False

    def stock(self, of: Chain, *indices: int) -> None:
        """Submit held links like ``mirage submit --held-links``."""
        for index in indices:
            jobs = {int(job.tag.rpartition(":")[2]): job.job_id for job in self.jobs.values() if job.tag}
            apart = awaited(of, jobs, index) if of.one_writer else ()
            super().submit(replace(of.link_request(index), held=True, dependencies=apart))

    def update(self, job_id: JobId, owner: str, change: JobChange) -> None:
        super().update(job_id, owner, change)
        self.advance(self.time)
        if self.lose_release and change.held is False:
            self.lose_release = False
            raise ClusterUnavailable("timed out")

    def cancel(self, job_id: JobId, owner: str) -> None:
        if self.cancel_fails:
            raise ClusterUnavailable("timed out")
        super().cancel(job_id, owner)

    def set(self, job_id: int, **changes: object) -> None:
        self.jobs[job_id] = replace(self.jobs[job_id], **changes)  # type: ignore[arg-type]


def waiting(hours: float = 1) -> Operated:
    return Operated(lambda request: Fate(wait=int(hours * HOUR)))


def links(cluster: ReleaseCluster, **expected: int) -> dict[str, Job]:
    tags = {f"mirage:svc:{name[1:]}": JobId(job_id) for name, job_id in expected.items()}
    return dict(cluster.snapshot(expected=tags).links)


def test_what_is_asked_for_is_let_go() -> None:
    slurm, svc = waiting(), chain()
    slurm.stock(svc, 1, 2)
    cluster = ReleaseCluster(slurm, slurm)
    assert links(cluster) == {}
    assert [job.tag for job in cluster.snapshot().stock or ()] == ["mirage:svc:1", "mirage:svc:2"]
    assert cluster.submit(svc.link_request(1)) == 100
    assert not slurm.jobs[100].held
    assert slurm.jobs[101].held
    assert links(cluster, l1=100).keys() == {"mirage:svc:1"}


def test_nothing_left_is_no_rejection_by_slurm() -> None:
    slurm = waiting()
    slurm.stock(chain(), 1)
    cluster = ReleaseCluster(slurm, slurm)
    cluster.snapshot()
    with pytest.raises(NotPermitted, match="alice has no held job with the tag mirage:svc:2"):
        cluster.submit(chain().link_request(2))
    with pytest.raises(NotPermitted, match="bob has no held job"):
        cluster.submit(replace(chain().link_request(1), user="bob"))


def test_stock_cancelled_by_its_owner_is_no_stock() -> None:
    slurm = waiting()
    slurm.stock(chain(), 1)
    cluster = ReleaseCluster(slurm, slurm)
    cluster.snapshot()
    slurm.cancel(JobId(100), "alice")
    with pytest.raises(NotPermitted, match="no held job"):
        cluster.submit(chain().link_request(1))


def test_another_user_who_writes_the_same_comment_is_in_nobodys_way() -> None:
    slurm, svc = waiting(), chain()
    slurm.submit(replace(svc.link_request(1), user="mallory", held=True))
    slurm.stock(svc, 1)
    slurm.submit(replace(svc.link_request(2), user="mallory"))
    slurm.stock(svc, 2)
    cluster = ReleaseCluster(slurm, slurm)
    assert [job.job_id for job in cluster.snapshot().stock or ()] == [100, 101, 103]
    assert cluster.submit(svc.link_request(1)) == 101
    assert slurm.jobs[100].held
    snapshot = cluster.snapshot(expected={svc.tag(1): JobId(101)})
    shown = [snapshot.link(svc.tag(index), "alice") for index in (1, 2)]
    assert [job and job.job_id for job in shown] == [101, None]
    assert cluster.submit(svc.link_request(2)) == 103
    snapshot = cluster.snapshot(expected={svc.tag(2): JobId(103)})
    shown = [snapshot.link(svc.tag(2), user) for user in ("alice", "mallory")]
    assert [job and job.job_id for job in shown] == [103, 102]


def test_stock_that_its_owner_cancels_ends_no_chain() -> None:
    slurm = waiting(2)
    svc = chain(done=DoneCondition(links=3))
    slurm.stock(svc, 1, 2, 3)
    service = Service(slurm, svc, "fixed:2h")
    service.run(4 * HOUR)
    slurm.cancel(JobId(101), "alice")
    record = service.run(6 * HOUR)
    assert record.status is ChainStatus.ACTIVE
    assert [link.job_id for link in record.links] == [100]
    slurm.stock(svc, 2)
    record = service.run(300 * HOUR)
    assert record.status is ChainStatus.DONE
    assert [link.job_id for link in record.links] == [100, 103, 102]


def test_a_link_that_its_owner_holds_again_is_still_a_link() -> None:
    slurm = waiting()
    slurm.stock(chain(), 1)
    cluster = ReleaseCluster(slurm, slurm)
    cluster.snapshot()
    job_id = cluster.submit(chain().link_request(1))
    slurm.set(job_id, held=True)
    again = ReleaseCluster(slurm, slurm)  # after a restart of the daemon
    assert links(again, l1=job_id)["mirage:svc:1"].held


def test_a_release_whose_answer_was_lost_shows_in_the_next_snapshot() -> None:
    slurm = waiting()
    slurm.stock(chain(), 1)
    cluster = ReleaseCluster(slurm, slurm)
    cluster.snapshot()
    slurm.lose_release = True
    with pytest.raises(ClusterUnavailable):
        cluster.submit(chain().link_request(1))
    assert links(cluster, l1=NO_JOB)["mirage:svc:1"].job_id == 100


def test_a_release_that_never_happened_leaves_stock() -> None:
    slurm = waiting()
    slurm.stock(chain(), 1)
    cluster = ReleaseCluster(slurm, slurm)
    cluster.snapshot()
    slurm.down = True
    with pytest.raises(ClusterUnavailable):
        cluster.submit(chain().link_request(1))
    slurm.down = False
    assert links(cluster, l1=NO_JOB) == {}
    assert cluster.submit(chain().link_request(1)) == 100


def test_what_an_administrator_holds_is_left_alone() -> None:
    slurm = waiting()
    slurm.stock(chain(), 1)
    slurm.set(100, held=False, reason="JobHeldAdmin", state=JobState.PENDING)
    cluster = ReleaseCluster(slurm, slurm)
    assert links(cluster) == {}
    with pytest.raises(NotPermitted, match="an administrator holds job 100"):
        cluster.submit(chain().link_request(1))
    assert slurm.changes == []


def test_priority_is_set_before_the_job_is_free() -> None:
    slurm = waiting()
    slurm.stock(chain(), 1)
    cluster = ReleaseCluster(slurm, slurm)
    cluster.snapshot()
    cluster.submit(replace(chain().link_request(1), nice=500))
    assert slurm.changes == [(100, JobChange(nice=500)), (100, JobChange(held=False))]


@pytest.mark.parametrize("asked", [-2_000_000_000, 0, 499])
def test_nice_is_only_raised_on_release(asked: int) -> None:
    slurm = waiting()
    slurm.stock(chain(), 1)
    slurm.set(100, nice=500)
    cluster = ReleaseCluster(slurm, slurm)
    cluster.snapshot()
    cluster.submit(replace(chain().link_request(1), nice=asked))
    assert slurm.changes == [(100, JobChange(held=False))]


def test_others_jobs_are_out_of_reach() -> None:
    slurm = waiting()
    slurm.stock(chain(), 1)
    slurm.submit(replace(chain().request, user="alice", name="her own business"))
    slurm.submit(replace(chain().request, user="bob", tag="mirage:his:1"))
    cluster = ReleaseCluster(slurm, slurm)
    cluster.snapshot()
    for job_id, owner in ((101, "alice"), (102, "alice"), (100, "bob"), (999, "alice")):
        with pytest.raises(NotPermitted):
            cluster.cancel(JobId(job_id), owner)
        with pytest.raises(NotPermitted):
            cluster.update(JobId(job_id), owner, JobChange(nice=1))
        with pytest.raises(NotPermitted):
            cluster.signal(JobId(job_id), owner, "USR1", reach=SignalReach.BATCH)
    cluster.cancel(JobId(100), "alice")
    assert [job.job_id for job in slurm.live()] == [101, 102]


class Service:
    """A loop over stock; ``crash`` keeps the cluster and the database."""

    def __init__(self, slurm: Operated, of: Chain, predictor: str) -> None:
        self.slurm, self.predictor = slurm, predictor
        self.store = MemoryStore(ChainRecord(of))
        self.crash()

    def crash(self) -> None:
        slurm, cluster, self.journal = self.slurm, ReleaseCluster(self.slurm, self.slurm), MemoryJournal()
        self.store.journal = self.journal
        outside = LoopDependencies(
            cluster, cluster, slurm, slurm, slurm, self.store, self.journal, slurm, sharing=slurm
        )
        guard = PredictorGuard(build_predictor(self.predictor), build_predictor("reactive"))
        self.loop = ControlLoop(outside, Guards(guard), LoopSettings())

    @property
    def record(self) -> ChainRecord:
        (record,) = self.store.load()
        return record

    def run(self, until: int) -> ChainRecord:
        for time in range(self.slurm.time, until, HOUR // 2):
            self.slurm.advance(time)
            self.loop.cycle()
            self.record.check()
        return self.record


@pytest.mark.parametrize("steering", list(Steering))
def test_a_chain_lives_on_stock(steering: Steering) -> None:
    slurm = waiting(2)
    svc = replace(chain(done=DoneCondition(links=3)), steering=steering)
    slurm.stock(svc, 1, 2, 3, 4)
    record = Service(slurm, svc, "fixed:2h").run(300 * HOUR)
    assert record.status is ChainStatus.DONE
    assert [link.job_id for link in record.links] == [100, 101, 102]
    assert all(outcome.interruption <= HOUR for outcome in record.outcomes())
    assert slurm.live() == [], "stock that will never be asked for is cancelled"


@pytest.mark.parametrize("steering", list(Steering))
def test_crashes_cost_no_link(steering: Steering) -> None:
    slurm = waiting(2)
    svc = replace(chain(done=DoneCondition(links=3)), steering=steering)
    slurm.stock(svc, 1, 2, 3)
    service = Service(slurm, svc, "fixed:2h")
    for day in range(1, 8):
        slurm.lose_release = True
        service.run(day * 24 * HOUR)
        service.crash()
    record = service.run(300 * HOUR)
    assert record.status is ChainStatus.DONE
    assert [link.job_id for link in record.links] == [100, 101, 102]


def test_held_links_that_run_out_are_announced_and_added() -> None:
    slurm = waiting(2)
    svc = chain()
    slurm.stock(svc, 1, 2)
    service = Service(slurm, svc, "fixed:2h")
    service.run(4 * HOUR)
    assert [link.job_id for link in service.record.links] == [100]
    add = "`mirage submit --held-links N --chain svc`"
    (asked,) = (text for text in service.journal.texts(EntryKind.TROUBLE) if add in text)
    assert "link 2 is the last" in asked
    record = service.run(150 * HOUR)
    assert (record.status, record.refusals, record.rejection) == (ChainStatus.ACTIVE, 0, "")
    assert [link.job_id for link in record.links] == [100, 101]
    assert add in service.loop.status.explained[svc.chain_id]
    assert not any("reject" in entry.text for entry in service.journal.entries)
    slurm.stock(svc, 3)
    assert [link.job_id for link in service.run(160 * HOUR).links] == [100, 101, 102]


def test_a_held_link_missing_between_others_is_named() -> None:
    slurm = waiting(2)
    svc = chain(done=DoneCondition(links=9))
    slurm.stock(svc, 1, 2, 3, 4, 5)
    service = Service(slurm, svc, "fixed:2h")
    service.run(4 * HOUR)
    for job_id in (102, 104):
        slurm.cancel(JobId(job_id), "alice")
    for until in (6 * HOUR, 150 * HOUR):  # link 2 is held, then released
        service.run(until)
        said = service.loop.status.explained[svc.chain_id]
        assert "the held job of link 3 is missing, so link 4 stays held; add link 3" in said
        assert "no held link" not in said
        assert "last held link" not in said
    slurm.stock(svc, 3)
    assert len(service.run(160 * HOUR).links) == 3


@pytest.mark.parametrize("done", [DoneCondition(links=2), DoneCondition(total_time=96 * HOUR)])
def test_held_links_that_complete_the_chain_are_enough(done: DoneCondition) -> None:
    slurm = waiting(2)
    svc = chain(done=done)
    slurm.stock(svc, 1, 2)
    service = Service(slurm, svc, "fixed:2h")
    record = service.run(300 * HOUR)
    assert record.status is ChainStatus.DONE
    assert not any("--held-links" in entry.text for entry in service.journal.entries)


def test_only_the_stock_of_chains_that_are_over_is_cancelled() -> None:
    slurm = waiting(2)
    svc, other = chain(done=DoneCondition(links=1)), replace(chain(), chain_id=ChainId("svc-2"))
    slurm.stock(svc, 1, 2, 3)
    slurm.stock(other, 1)
    slurm.submit(replace(svc.link_request(4), user="mallory", held=True))
    service = Service(slurm, svc, "fixed:2h")
    service.store.save(ChainRecord(other, status=ChainStatus.PAUSED))
    for time in range(0, 300 * HOUR, HOUR):
        slurm.advance(time)
        service.loop.cycle()
    assert [(job.user, job.tag) for job in slurm.live()] == [
        ("alice", "mirage:svc-2:1"),
        ("mallory", "mirage:svc:4"),
    ]
    said = [entry.text for entry in service.journal.entries if "held job" in entry.text]
    assert said == [f"cancelled the held job {job_id}: the chain is over" for job_id in (101, 102)]


def test_stock_that_could_not_be_cancelled_is_tried_again() -> None:
    slurm = waiting(2)
    svc = chain()
    slurm.stock(svc, 1)
    service = Service(slurm, svc, "fixed:2h")
    service.store.save(ChainRecord(svc, status=ChainStatus.STOPPED))
    slurm.cancel_fails = True
    service.loop.cycle()
    assert [job.job_id for job in slurm.live()] == [100]
    assert "could not cancel the held job 100" in service.journal.entries[-1].text
    slurm.cancel_fails, slurm.down = False, True
    service.loop.cycle()
    slurm.down = False
    assert [job.job_id for job in slurm.live()] == [100], "no action follows from an earlier snapshot"
    service.loop.cycle()
    assert slurm.live() == []


def test_a_chain_without_stock_says_so_and_goes_on_once_there_is_some() -> None:
    slurm = waiting(1)
    svc = chain(done=DoneCondition(links=3))
    slurm.stock(svc, 1)
    service = Service(slurm, svc, "fixed:2h")
    record = service.run(300 * HOUR)
    assert (record.status, record.refusals, record.refused) == (ChainStatus.ACTIVE, 0, ABSENT)
    assert len(record.links) == 1
    assert "--held-links N --chain svc" in service.loop.status.explained[svc.chain_id]
    slurm.stock(svc, 2, 3)
    assert service.run(500 * HOUR).status is ChainStatus.DONE


@pytest.mark.parametrize(("exit_code", "kind"), [(0, DependencyKind.AFTERNOTOK), (None, DependencyKind.AFTERANY)])
def test_held_link_that_is_added_later_only_waits_until_ended_links_are_over(
    exit_code: int | None, kind: DependencyKind
) -> None:
    """Slurm may not know such a job any more, nor how it ended."""
    jobs = {1: JobId(11), 2: JobId(12)}
    found = awaited(chain(done=DoneCondition(exit_code)), jobs, 3, over=[JobId(11)])
    assert found == (Dependency(DependencyKind.AFTERANY, JobId(11)), Dependency(kind, JobId(12)))
