"""Orders and answers survive the journey as they were; anything else is rejected, by the name of the field."""

from __future__ import annotations

import dataclasses
import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirage.backends.agent_requests import (
    AgentRequest,
    AgentResponse,
    BadOrder,
    CancelJob,
    CheckFiles,
    SignalJob,
    UpdateJob,
    Verdict,
)
from mirage.backends.owner_turns import ByOrder
from mirage.domain.errors import (
    ClusterUnavailable,
    JobBlocked,
    MirageError,
    NotPermitted,
    SubmissionRejected,
    UnknownJob,
    UnsupportedSlurm,
)
from mirage.domain.files import FileState, Presence
from mirage.domain.job import (
    HIGHEST_JOB_ID,
    BatchScript,
    Dependency,
    DependencyKind,
    JobChange,
    JobId,
    JobRequest,
    SignalReach,
    WarnSignal,
)
from mirage.slurm.error_messages import refused_act

text = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20) | st.just("caf\udce9 \n'\"$(x)")
number = st.integers(0, 1 << 40)
job_id = st.integers(0, HIGHEST_JOB_ID).map(JobId)
script = st.builds(
    BatchScript,
    text,
    st.tuples(text, text) | st.just(()),
    st.lists(st.tuples(text, text), max_size=3).map(tuple),
    text,
)
request = st.builds(
    JobRequest,
    text,
    text,
    number,
    gres_per_node=st.just((("gpu:a100", 4),)),
    features=st.lists(text, max_size=2).map(tuple),
    dependencies=st.just((Dependency(DependencyKind.AFTERANY, JobId(7), 60),)),
    warn=st.none() | st.just(WarnSignal("USR2", 60, batch_only=True)),
    tag=text,
    batch=st.none() | script,
)
change = st.builds(JobChange, st.none() | st.booleans(), st.none() | number, st.none() | number)
act = (
    request
    | st.builds(CancelJob, job_id)
    | st.builds(UpdateJob, job_id, change)
    | st.builds(SignalJob, job_id, text, st.sampled_from(SignalReach))
    | st.builds(CheckFiles, st.lists(text, max_size=3).map(tuple))
)
states = st.builds(FileState, st.sampled_from(Presence), text, st.booleans())
orders = st.builds(AgentRequest.of, act, text, number)
answers = st.builds(
    AgentResponse, st.sampled_from(Verdict), job_id, text, text, st.lists(states, max_size=3).map(tuple)
)
jsons = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(orders)
def test_an_order_arrives_as_it_was_sent(order: AgentRequest) -> None:
    line = order.to_text()
    assert line.isascii()
    assert "\n" not in line
    assert AgentRequest.from_text(line) == order
    assert AgentRequest.from_text(line.encode()).act == order.act


@given(answers)
def test_an_answer_arrives_as_it_was_sent(answer: AgentResponse) -> None:
    arrived = AgentResponse.from_text(answer.to_text(), len(answer.files))
    assert (arrived.verdict, arrived.job_id, len(arrived.files)) == (
        answer.verdict,
        answer.job_id,
        len(answer.files),
    )
    for sent, got in zip(words_of(answer), words_of(arrived), strict=True):
        assert got.isprintable()
        if sent.isprintable() and sent == " ".join(sent.split()):
            assert got == sent


@pytest.mark.parametrize("letter", ["\udcff", "\x1b", "\x9b", "\n", "\u202e", "\u2028"])
def test_words_of_answer_can_be_stored_and_shown(letter: str) -> None:
    words = f"Bad{letter}account"
    state = FileState(Presence.UNKNOWN, words)
    answer = AgentResponse.from_text(
        AgentResponse(Verdict.REJECTED, reason=words, text=words, files=(state,)).to_text(), 1
    )
    for word in words_of(answer):
        assert word.encode().decode().isprintable()
        assert word.startswith("Bad")
        assert word.endswith("account")


def words_of(answer: AgentResponse) -> tuple[str, ...]:
    return (answer.reason, answer.text, *(state.reason for state in answer.files))


@given(orders, st.data())
def test_any_change_of_an_orders_shape_is_refused(order: AgentRequest, data: st.DataObject) -> None:
    tree = json.loads(order.to_text())
    spot = tree
    while True:
        name = data.draw(st.sampled_from(sorted(spot)))
        if isinstance(spot[name], dict) and data.draw(st.booleans()):
            spot = spot[name]
            continue
        break
    if data.draw(st.booleans()):
        del spot[name]
    else:
        spot[name] = [{"unlike": "anything"}, None]
    with pytest.raises(BadOrder, match=name):
        AgentRequest.from_text(json.dumps(tree))


@given(jsons.map(json.dumps) | st.text() | st.binary())
def test_anything_else_is_refused(line: str | bytes) -> None:
    with pytest.raises(BadOrder):
        AgentRequest.from_text(line)
    with pytest.raises(BadOrder):
        AgentResponse.from_text(line)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("start_by", True),
        ("start_by", 1.5),
        ("start_by", 10**30),
        ("owner", 7),
        ("owner", "a\0b"),
        ("owner", "a\ud800b"),
        ("owner", "\udcff\ud83d"),
        ("owner", None),
    ],
)
def test_values_of_another_kind_are_refused(field: str, value: object) -> None:
    tree = json.loads(AgentRequest.of(CancelJob(JobId(1)), "alice", 5).to_text())
    with pytest.raises(BadOrder, match=f"AgentRequest.{field}"):
        AgentRequest.from_text(json.dumps(tree | {field: value}))


def test_an_order_says_one_thing() -> None:
    order = AgentRequest.of(CancelJob(JobId(1)), "alice", 5)
    two = dataclasses.replace(order, signal=SignalJob(JobId(1), "USR1", SignalReach.BATCH))
    none = dataclasses.replace(order, cancel=None)
    for wrong in (two, none):
        with pytest.raises(BadOrder, match="exactly one"):
            AgentRequest.from_text(wrong.to_text())


def test_depth_without_end_is_refused() -> None:
    with pytest.raises(BadOrder, match="not JSON"):
        AgentRequest.from_text("[" * 100_000)


def test_no_two_orders_have_the_same_id() -> None:
    assert len({AgentRequest.of(CancelJob(JobId(1)), "alice", 5).order_id for _ in range(100)}) == 100


@pytest.mark.parametrize(
    ("error", "arrives"),
    [
        (SubmissionRejected("PartitionTimeLimit", "48 h at most"), SubmissionRejected),
        (SubmissionRejected("Invalid account"), SubmissionRejected),
        (UnknownJob("job 7"), UnknownJob),
        (NotPermitted("no"), NotPermitted),
        (ClusterUnavailable("timed out"), ClusterUnavailable),
        (UnsupportedSlurm("20.02"), ClusterUnavailable),
        (JobBlocked("try again in a bit"), JobBlocked),
    ],
)
def test_errors_keep_their_kind_and_words(error: MirageError, arrives: type[MirageError]) -> None:
    answer = AgentResponse.from_text(AgentResponse.failed(error).to_text())
    with pytest.raises(arrives) as caught:
        answer.job()
    assert str(caught.value) == str(error)
    if isinstance(error, SubmissionRejected):
        assert isinstance(caught.value, SubmissionRejected)
        assert caught.value.reason == error.reason


def test_job_whose_changes_slurm_puts_off_is_told_from_a_controller_that_is_away() -> None:
    text = "scontrol: error: Job update not available right now, the DB index is being set, try again in a bit"
    assert type(refused_act(text, "it")) is JobBlocked
    assert type(refused_act("Unable to contact slurm controller", "it")) is ClusterUnavailable


def test_a_sentence_tells_no_secret() -> None:
    batch = BatchScript("#!/bin/sh\nexport KEY=hush", environment=(("TOKEN", "hush"),))
    order = AgentRequest.of(JobRequest("svc", "alice", 60, tag="mirage:svc:1", batch=batch), "alice", 5)
    assert order.sentence == "submit mirage:svc:1 for alice"


@pytest.mark.parametrize("number", [-5, -1, HIGHEST_JOB_ID + 1, 2**32, 1 << 62, True, 1.0, "7"])
def test_answer_with_impossible_job_id_is_rejected(number: object) -> None:
    document = json.loads(AgentResponse(Verdict.DONE).to_text()) | {"job_id": number}
    with pytest.raises(BadOrder, match=r"^AgentResponse\.job_id: "):
        AgentResponse.from_text(json.dumps(document))


def test_submission_without_job_id_is_unknown() -> None:
    actuator = ByOrder(lambda owner, act: AgentResponse(Verdict.DONE))
    with pytest.raises(ClusterUnavailable):
        actuator.submit(JobRequest("svc", "alice", 60, tag="mirage:svc:1"))


@pytest.mark.parametrize("verdict", Verdict)
def test_answer_that_does_not_fit_raises_what_the_loop_expects(verdict: Verdict) -> None:
    actuator = ByOrder(lambda owner, act: AgentResponse(verdict, JobId(7), text="so it says"))
    expected = (ClusterUnavailable, NotPermitted)
    with suppress(*expected, SubmissionRejected):
        actuator.submit(JobRequest("svc", "alice", 60, tag="mirage:svc:1"))
    with suppress(*expected, UnknownJob):
        actuator.cancel(JobId(7), "alice")
    with suppress(*expected, UnknownJob):
        actuator.update(JobId(7), "alice", JobChange(held=True))
    with suppress(*expected, UnknownJob):
        actuator.signal(JobId(7), "alice", "TERM", reach=SignalReach.ALL)
