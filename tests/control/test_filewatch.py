"""An unreadable chain file never counts as absent, and is reported one time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from fakes import HOUR, MIN, FakeCluster, Fate, chain
from loops import Service

from mirage.domain.chain import ChainStatus, DoneCondition, HandoverPolicy, HandoverSettings
from mirage.domain.failurepolicy import FailureAction, FailurePolicies, FailurePolicy
from mirage.domain.files import FileState, Presence
from mirage.domain.job import JobState, WarnSignal
from mirage.domain.journal import EntryKind

if TYPE_CHECKING:
    from collections.abc import Collection

    from mirage.domain.files import WatchedFile

DONE = "/home/alice/done"
DENIED = FileState(Presence.UNKNOWN, "/home/alice: mirage has no search permission", denied=True)


def service(files: dict[str, FileState], **more) -> Service:
    cluster = FakeCluster(lambda request: Fate(wait=HOUR, obeys=0), unknown_files=files)
    return Service(cluster, "fixed:3h", chain_=chain(**more))


def troubles(service: Service) -> list[str]:
    return [entry.text for entry in service.journal.entries if entry.kind is EntryKind.TROUBLE]


def test_an_unknown_done_file_is_journalled_once_and_shown() -> None:
    held = service({DONE: DENIED}, done=DoneCondition(exit_code=None, file=DONE))
    for minute in range(5):
        held.cycle(minute * MIN)
        assert held.loop.status.files_unknown == {"svc": DENIED.reason}
    assert len([text for text in troubles(held) if DENIED.reason in text]) == 1
    held.cluster.unknown_files.clear()
    held.cycle(6 * MIN)
    assert held.loop.status.files_unknown == {}
    assert held.record.status is ChainStatus.ACTIVE
    held.cluster.files.add(DONE)
    held.cycle(7 * MIN)
    assert held.record.status is ChainStatus.DONE
    assert held.record.reason == f"{DONE} exists"
    assert len([text for text in troubles(held) if "file" in text]) == 1


@pytest.mark.parametrize("reason", ["", "gone"])
def test_a_file_that_is_not_checked_yet_is_no_trouble(reason: str) -> None:
    held = service({DONE: FileState(Presence.UNKNOWN, reason)}, done=DoneCondition(file=DONE))
    held.cycle(0)
    assert held.record.status is ChainStatus.ACTIVE
    assert bool(troubles(held)) is bool(reason)


@pytest.mark.parametrize("policy", [HandoverPolicy.WHEN_READY, HandoverPolicy.ON_START])
def test_running_link_is_unready_until_its_file_is_there(policy: HandoverPolicy) -> None:
    """Also the one that runs alone, where links say when they are ready."""
    held = service({}, handover=HandoverSettings(policy))
    held.cycle(0)
    held.cycle(HOUR)
    held.cycle(HOUR + MIN)
    assert held.record.head is not None
    waits = policy is HandoverPolicy.WHEN_READY
    assert held.loop.status.unready == ({"svc"} if waits else frozenset())
    held.cluster.files.add(held.record.chain.handover_file(1))
    held.cycle(HOUR + 2 * MIN)
    assert not held.loop.status.unready


class SlowFiles(FakeCluster):
    """A check takes until ``finish``; meanwhile the last result counts, unless a new check is requested."""

    def refresh(self, wanted: Collection[WatchedFile], anew: Collection[WatchedFile] = ()) -> None:
        super().refresh(wanted)
        self.unknown_files |= {file.path: FileState(Presence.UNKNOWN) for file in anew}

    def finish(self) -> None:
        self.unknown_files.clear()


def ended(cluster: FakeCluster) -> Service:
    """A chain in the cycle that sees the end of its first link."""
    made = Service(cluster, "reactive", chain_=chain(done=DoneCondition(exit_code=None, file=DONE)))
    made.run(3 * HOUR)
    cluster.jobs[100] = replace(cluster.jobs[100], state=JobState.COMPLETED, end=3 * HOUR)
    return made


def test_no_link_follows_until_the_done_file_is_checked_after_the_end() -> None:
    cluster = SlowFiles(lambda request: Fate(wait=HOUR))
    one = ended(cluster)
    cluster.files.add(DONE)
    wake = one.loop.cycle().wake
    assert len(cluster.submissions) == 1
    assert wake <= cluster.time + MIN
    cluster.finish()
    one.cycle(3 * HOUR + MIN)
    assert one.record.status is ChainStatus.DONE
    assert len(cluster.submissions) == 1


def test_link_follows_once_the_check_has_found_nothing() -> None:
    cluster = SlowFiles(lambda request: Fate(wait=HOUR))
    one = ended(cluster)
    one.cycle()
    cluster.finish()
    one.cycle(3 * HOUR + MIN)
    assert len(cluster.submissions) == 2


def test_link_follows_where_the_done_file_cannot_be_checked() -> None:
    cluster = FakeCluster(lambda request: Fate(wait=HOUR), unknown_files={DONE: DENIED})
    ended(cluster).cycle()
    assert len(cluster.submissions) == 2


def test_a_handover_file_is_watched_before_its_link_runs() -> None:
    handover = HandoverSettings(HandoverPolicy.WHEN_READY, WarnSignal("USR1", 10 * MIN))
    held = service({"/home/alice/.mirage/svc.2.ready": DENIED}, done=DoneCondition(links=3), handover=handover)
    held.run(46 * HOUR + 30 * MIN, tick=10 * MIN)
    assert held.loop.status.files_unknown == {"svc": DENIED.reason}
    assert not held.cluster.signals


def test_chains_without_such_files_have_none_checked() -> None:
    held = service({}, done=DoneCondition(links=3))
    held.run(48 * HOUR)
    assert held.cluster.watched == set()


def failing(recovery: FailureAction = FailureAction.RETRY, runtime: int = 1, **more: Any) -> Service:
    """Links that end as those whose directory is gone: Slurm runs them, and cannot open their output."""
    fate = Fate(runtime=runtime, state=JobState.FAILED, exit_code=15)
    policies = FailurePolicies(exit=FailurePolicy(recovery))
    made = Service(FakeCluster(lambda request: fate, **more), chain_=chain(failures=policies))
    made.run(4 * HOUR, tick=MIN)
    return made


@pytest.mark.parametrize("recovery", list(FailureAction))
def test_stop_reason_names_the_missing_directory(recovery: FailureAction) -> None:
    made = failing(recovery, directories=set())
    assert made.record.status is (
        ChainStatus.PAUSED if recovery is FailureAction.CONTINUE else ChainStatus.STOPPED
    )
    assert made.record.reason.endswith("; working directory of the links not found: /home/alice")
    assert [text for text in troubles(made) if "/home/alice" in text], "also before it stops"
    assert made.loop.status.files_unknown == {}


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"directories": set(), "runtime": 10 * MIN},
        {"directories": set(), "unknown_files": {"/home/alice": FileState(Presence.UNKNOWN, "it hangs")}},
    ],
    ids=["there", "ran", "unknown"],
)
def test_directory_is_blamed_only_when_known_missing(more: dict[str, Any]) -> None:
    made = failing(**more)
    assert made.record.status is ChainStatus.STOPPED
    assert "directory" not in made.record.reason
    assert made.loop.status.files_unknown == {}


def test_directory_is_checked_only_after_a_failed_start() -> None:
    made = failing(runtime=10 * MIN)
    assert made.cluster.watched == set()
