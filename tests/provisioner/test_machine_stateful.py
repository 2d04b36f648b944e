"""Random users, failures, crashes and delays against the loop: a chain never has two successors, never none."""

from __future__ import annotations

from fakes import BY_EXIT_CODE, HOUR, FakeCluster, Fate, chain
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from mirage.control.dependencies import LoopDependencies, LoopSettings
from mirage.control.guard import Guards, PredictorGuard
from mirage.control.loop import ControlLoop
from mirage.control.stores import MemoryJournal, MemoryStore
from mirage.domain.chain import ChainRecord, ChainStatus, DoneCondition, HandoverPolicy, HandoverSettings, Steering
from mirage.domain.failurepolicy import FailureAction, FailurePolicies, FailurePolicy
from mirage.domain.job import JobState, WarnSignal
from mirage.predictors.baselines import FixedLead, Reactive
from mirage.provisioner.limits import Limits

ENDS = st.sampled_from(
    [
        (None, JobState.COMPLETED, 0),
        (HOUR, JobState.FAILED, 1),
        (5 * HOUR, JobState.NODE_FAIL, 0),
        (20 * HOUR, JobState.COMPLETED, 7),
    ]
)
ALWAYS = FailurePolicy(FailureAction.CONTINUE)
SETTLE = 120


class ChainUnderFire(RuleBasedStateMachine):
    """One chain that must survive everything: every failure is followed by another link."""

    @initialize(
        lead=st.integers(0, 10),
        limit=st.sampled_from([10, 48]),
        forget=st.sampled_from([None, 300]),
        handover=st.builds(
            HandoverSettings,
            st.sampled_from(HandoverPolicy),
            st.just(WarnSignal("USR1", 900)),
            st.sampled_from([0, HOUR]),
        ),
        steering=st.sampled_from(Steering),
    )
    def begin(
        self, lead: int, limit: int, forget: int | None, handover: HandoverSettings, steering: Steering
    ) -> None:
        self.fate = Fate(wait=HOUR)
        self.cluster = FakeCluster(lambda request: self.fate, forget_after=forget)
        policies = FailurePolicies(ALWAYS, ALWAYS, ALWAYS)
        # Where Slurm forgets, an exit code that ends the chain may have been missed: it would wait for its owner.
        done = BY_EXIT_CODE if forget is None else DoneCondition(exit_code=None)
        self.store = MemoryStore(
            ChainRecord(chain(limit * HOUR, done, policies, handover=handover, steering=steering))
        )
        self.requeued: set[int] = set()
        self.lead = lead * HOUR
        self.restart()

    @rule()
    def restart(self) -> None:
        c = self.cluster
        outside = LoopDependencies(c, c, c, c, c, self.store, MemoryJournal(), c, sharing=c)
        guard = PredictorGuard(FixedLead(self.lead, "fixed"), Reactive())
        limits = Limits(
            submissions_per_hour=0, submissions_per_hour_per_user=0, pause_after_refusals=0, refusal_backoff=10
        )
        self.loop = ControlLoop(outside, Guards(guard), LoopSettings(limits=limits, settle=SETTLE))

    @rule(wait=st.integers(0, 30), end=ENDS)
    def the_next_jobs_go_like_this(self, wait: int, end: tuple[int | None, JobState, int]) -> None:
        self.fate = Fate(wait * HOUR, *end)

    @rule(minutes=st.integers(1, 3_000))
    def time_passes_unwatched(self, minutes: int) -> None:
        self.cluster.advance(self.cluster.time + 60 * minutes)

    @rule(cycles=st.integers(1, 20))
    def the_loop_runs(self, cycles: int) -> None:
        for _ in range(cycles):
            self.cluster.advance(self.cluster.time + 600)
            assert self.loop.cycle().sentence

    @rule(fault=st.sampled_from(["lose_answer", "lose_question"]))
    def the_next_submission_goes_wrong(self, fault: str) -> None:
        setattr(self.cluster, fault, True)

    @rule(down=st.booleans(), refuse=st.sampled_from(["", "QOSMaxSubmitJobPerUserLimit"]))
    def the_controller_misbehaves(self, down: bool, refuse: str) -> None:
        self.cluster.down, self.cluster.refuse = down, refuse

    @rule(which=st.integers(0, 5))
    def someone_cancels_a_job(self, which: int) -> None:
        live = self.cluster.live()
        if live and not self.cluster.down:
            job = live[which % len(live)]
            self.cluster.cancel(job.job_id, job.user)

    @rule(which=st.integers(0, 5), wait=st.integers(0, 30))
    def a_running_job_is_requeued(self, which: int, wait: int) -> None:
        requests = {100 + at: request for at, request in enumerate(self.cluster.submissions)}
        running = [
            job for job in self.cluster.live() if job.state is JobState.RUNNING and requests[job.job_id].requeue
        ]
        if running:
            job = running[which % len(running)]
            self.cluster.requeue(job.job_id, wait * HOUR)
            self.requeued.add(job.job_id)

    @rule(link=st.integers(1, 30))
    def a_link_says_it_is_ready(self, link: int) -> None:
        self.cluster.files.add(f"/home/alice/.mirage/svc.{link}.ready")

    @rule()
    def all_is_well_again(self) -> None:
        """Then within a few cycles the chain has a job again: never none."""
        self.cluster.down = self.cluster.lose_answer = self.cluster.lose_question = False
        self.cluster.refuse = ""
        self.fate = Fate(wait=HOUR)
        self.the_loop_runs(8)
        assert self.cluster.live(), "the chain has died"
        pending = [job for job in self.cluster.live() if job.state is JobState.PENDING]
        assert len(pending) <= 1, "a requeued job that was overtaken is abandoned"

    @invariant()
    def never_two_successors(self) -> None:
        pending = [job for job in self.cluster.live() if job.state is JobState.PENDING]
        waiting = [job for job in pending if job.job_id not in self.requeued]
        assert len(waiting) <= 1, waiting
        live = [job.tag for job in self.cluster.live()]
        assert len(live) == len(set(live)), "two jobs carry the same tag"
        tags = [request.tag for request in self.cluster.submissions]
        if self.cluster.forget_after is None:
            assert len(tags) == len(set(tags)), "a tag was used twice"

    @invariant()
    def one_writer_is_one(self) -> None:
        (record,) = self.store.load()
        running = [job.tag for job in self.cluster.live() if job.state is JobState.RUNNING]
        assert not record.chain.one_writer or len(running) <= 1, running

    @rule(why=st.sampled_from(["", "OverSubscribe=YES"]))
    def nodes_are_shared_or_not(self, why: str) -> None:
        self.cluster.sharing = why

    @invariant()
    def the_record_is_sound(self) -> None:
        (record,) = self.store.load()
        record.check()
        assert record.status is ChainStatus.ACTIVE


TestChainUnderFire = ChainUnderFire.TestCase
TestChainUnderFire.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
