"""A link that looks first never stays away where the chain's own rules would continue."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirage.domain.chain import Chain, ChainId, ChainRecord, DoneCondition, Steering
from mirage.domain.failurepolicy import FailureAction, FailurePolicies, FailurePolicy
from mirage.domain.job import BatchScript, JobId, JobRequest, JobState, WarnSignal
from mirage.domain.link import Link, LinkState
from mirage.provisioner.events import LinkEnded, LinkStarted, LinkSubmitted
from mirage.provisioner.gates import not_begun, with_gate
from mirage.provisioner.machine import apply_all, plan

RAN = 5
SCRIPT = f"#!/bin/sh\nexit {RAN}\n"
LIMIT = 3_600
ENDS = [state for state in JobState if state.finished]
policies = st.builds(FailurePolicy, st.sampled_from(FailureAction), retries=st.integers(0, 2))


def running(chain: Chain, start: int, limit: int) -> ChainRecord:
    """The chain as its first link runs."""
    record, _ = plan(ChainRecord(chain), "", 0)
    events = (LinkSubmitted(1, JobId(7), 0), LinkStarted(1, start, start + limit, limit))
    return apply_all(record, events, start)


def started_after(over: ChainRecord, state: JobState = JobState.COMPLETED) -> ChainRecord:
    """The record with a second link that started at the end of the first one, which ended the chain."""
    end = over.links[0].end
    second = Link(2, over.chain.tag(2), 0, LinkState.ENDED, JobId(8), 0, start=end, end=end + 5, job_state=state)
    return over.with_link(second)


@pytest.mark.parametrize(
    ("recovery", "state", "unseen"),
    [
        (FailureAction.STOP, JobState.COMPLETED, True),
        (FailureAction.STOP, JobState.CANCELLED, False),
        (FailureAction.RETRY, JobState.COMPLETED, False),
    ],
)
def test_script_of_a_link_that_cannot_see_the_end_of_its_chain_has_run(
    recovery: FailureAction, state: JobState, unseen: bool
) -> None:
    """None but Mirage knows that the retries are used up; a link that sees the end is not cancelled after it."""
    request = JobRequest("s", "ann", LIMIT, batch=BatchScript(SCRIPT, directory="/d"))
    policies = FailurePolicies(exit=FailurePolicy(recovery, retries=0))
    record = running(Chain(ChainId("c"), "c", "ann", request, failures=policies, steering=Steering.OFF), 0, LIMIT)
    over = apply_all(record, (LinkEnded(1, 0, 60, JobState.FAILED, 3, limit=LIMIT),), 60)
    assert over.over
    waited = started_after(over, state)
    assert not_begun(waited, waited.links[1]) is unseen


def code_of(text: str, folder: Path, answer: str) -> int:
    """The exit code of a script on a node where ``squeue`` gives this answer."""
    for name, content in (("squeue", f"#!/bin/sh\necho '{answer}'\n"), ("slurm_script", text)):
        (folder / name).write_text(content)
        (folder / name).chmod(0o755)
    environment = {"PATH": f"{folder}:{os.environ['PATH']}", "TMPDIR": str(folder)}
    done = subprocess.run([folder / "slurm_script"], check=False, env=environment, capture_output=True)
    return done.returncode


@settings(max_examples=150, deadline=None)
@given(
    failures=st.builds(FailurePolicies, policies, policies, policies),
    done=st.sampled_from([0, 3, None]),
    warn=st.sampled_from([None, 60, 600, LIMIT]),
    state=st.sampled_from(ENDS),
    code=st.sampled_from([0, 1, 3]),
    lasts=st.tuples(
        st.integers(0, LIMIT) | st.sampled_from([0, 1, LIMIT - 660, LIMIT - 661, LIMIT]),
        st.sampled_from([LIMIT, LIMIT // 2, 2 * LIMIT]),
    ),
)
def test_link_stays_away_only_where_the_chain_is_over(
    failures: FailurePolicies,
    done: int | None,
    warn: int | None,
    state: JobState,
    code: int,
    lasts: tuple[int, int],
) -> None:
    lasted, limit = lasts
    code = 0 if state is JobState.COMPLETED else max(code, 1) if state is JobState.FAILED else 0
    request = JobRequest("s", "ann", LIMIT, batch=BatchScript(SCRIPT, directory="/"))
    request = replace(request, warn=WarnSignal("USR1", warn) if warn else None)
    chain = Chain(ChainId("c"), "c", "ann", request, DoneCondition(done, links=9), failures)
    chain = replace(chain, steering=Steering.OFF)
    record = running(chain, 1_000, LIMIT)
    planned, link = plan(record, "", 1_000)
    text = with_gate(chain.link_request(2), planned, link).batch.text
    left = apply_all(
        record,
        (
            LinkStarted(1, 1_000, 1_000 + limit, limit),
            LinkEnded(1, 1_000, 1_000 + lasted, state, code, limit=limit),
        ),
        1_000 + lasted,
    )
    answer = f"{state.name} {code << 8} 1000 {1_000 + lasted} {limit // 3600}:{limit // 60 % 60:02}:00"
    with TemporaryDirectory() as folder:
        ended = code_of(text, Path(folder), answer)
    if ended != RAN:
        assert left.over
        assert (ended == done) == (left.reason == f"link 1 ended with exit code {code}")
        waited = started_after(left)
        assert not_begun(waited, waited.links[1])
    elif left.over:
        retried = FailureAction.RETRY in (
            failures.exit.recovery,
            failures.node.recovery,
            failures.cancelled.recovery,
        )
        assert retried or warn or not lasted, "nothing else keeps a link from seeing that the chain is over"
