"""Trained models as directories: what they answer, and every way in which one can be wrong."""

from __future__ import annotations

import json
import os
import pickle
from dataclasses import asdict, replace
from hashlib import sha256
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from learnable import LEVELS, USUAL, constant_graph, learnable, learnt, with_vectors

from mirage.domain.decision import ActionScores, PlannedStart, WaitForecast
from mirage.domain.errors import ArtifactMismatch, ConfigError
from mirage.domain.job import ABSENT
from mirage.features.schema import encode, schema
from mirage.plugin import (
    Scores,
    WaitDistribution,
    WaitQuantiles,
    check_predictor,
    load_artifact,
    write_artifact,
)
from mirage.predictors import onnx_predictor
from mirage.predictors.model_manifest import answers_from, check_home
from mirage.predictors.model_registry import ModelRegistry

if TYPE_CHECKING:
    from pathlib import Path

HOUR = 3_600


@pytest.fixture(scope="module")
def table():
    return with_vectors(learnable(0, episodes=40), USUAL)


@pytest.fixture
def folder(tmp_path, table) -> Path:
    return write_artifact(tmp_path / "model", learnt(), table)


def changed_manifest(folder: Path, **changes) -> Path:
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return folder


def test_a_model_answers_with_the_quantiles_it_gives(folder) -> None:
    forecast = load_artifact(folder, "mine").predict(USUAL)
    assert forecast == WaitForecast(LEVELS, tuple(USUAL.time + HOUR * hours for hours in (1.0, 2.0, 4.0)))


def test_it_holds_to_what_every_predictor_must(folder) -> None:
    check_predictor(load_artifact(folder), [USUAL])


def test_many_are_answered_as_each_alone(folder) -> None:
    onnx_predictor = load_artifact(folder)
    assert onnx_predictor.predict_all([USUAL] * 3) == [onnx_predictor.predict(USUAL)] * 3


def test_an_observation_becomes_a_vector_once_for_all_models_and_never_that_of_another(
    folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []

    def counted(known, observation):
        made.append(observation.time)
        return encode(known, observation)

    monkeypatch.setattr(onnx_predictor, "encode", counted)
    one, other = load_artifact(folder), load_artifact(folder)
    first, second = (replace(USUAL, time=USUAL.time + k) for k in (1, 2))
    for observation in (first, second, first):
        assert one.predict(observation) == other.predict(observation)
        assert (onnx_predictor.vector_of(schema("v2"), observation) == encode(schema("v2"), observation)).all()
    assert made == [first.time, second.time, first.time]


def test_the_manifest_tells_what_it_was_made_from(folder, table) -> None:
    manifest = load_artifact(folder).manifest
    assert manifest.schema_hash == table.schema.hash
    assert manifest.cluster.nodes == (76, 76)
    assert manifest.training.handovers == 40
    assert manifest.training.known == table.start.max()
    assert manifest.seeds == (3,)
    assert "onnx" in manifest.libraries
    assert manifest.files["model.onnx"] == sha256((folder / "model.onnx").read_bytes()).hexdigest()


def test_nothing_is_written_over(folder, table) -> None:
    with pytest.raises(ConfigError, match="is there already"):
        write_artifact(folder, learnt(), table)


@pytest.mark.parametrize("name", ["model.onnx", "ranges.json"])
@pytest.mark.parametrize("harm", ["cut", "changed", "gone"])
def test_a_spoilt_file_is_named(folder, name: str, harm: str) -> None:
    path = folder / name
    content = path.read_bytes()
    if harm == "gone":
        path.unlink()
    else:
        path.write_bytes(content[: len(content) // 2] if harm == "cut" else content[:-1] + b"?")
    with pytest.raises(ArtifactMismatch, match=rf"{name}.*copy the artifact again"):
        load_artifact(folder)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format": 2}, "format 2.*update mirage"),
        ({"format": 0}, "no manifest"),
        ({"schema": "v9"}, "v9.*update mirage"),
        ({"schema_hash": "0" * 64}, "another version.*train the model again"),
        ({"answers": {"kind": "oracle"}}, "oracle"),
        ({"answers": {"kind": "wait-quantiles", "levels": [0.5, 0.1]}}, "ascend"),
        ({"answers": {"kind": "wait-quantiles", "levels": [0.5]}}, "answers .*numbers"),
        ({"files": {}}, "does not list model.onnx"),
        ({"files": {"../../etc/passwd": "0"}}, "no file of the artifact"),
        ({"surprise": 1}, "no manifest"),
        ({"cluster": None}, "no manifest"),
    ],
)
def test_a_manifest_that_does_not_fit_says_why(folder, changes, words: str) -> None:
    with pytest.raises(ArtifactMismatch, match=words):
        load_artifact(changed_manifest(folder, **changes))


@given(st.binary(max_size=60))
def test_any_manifest_is_an_artifact_or_a_clear_error(tmp_path_factory, content: bytes) -> None:
    folder = tmp_path_factory.mktemp("any")
    (folder / "manifest.json").write_bytes(content)
    with pytest.raises(ArtifactMismatch, match=r"manifest\.json"):
        load_artifact(folder)


def test_a_folder_that_is_none_is_named(tmp_path) -> None:
    with pytest.raises(ArtifactMismatch, match="there is no such file"):
        load_artifact(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["manifest.json", "model.onnx", "ranges.json", "curves.json"])
@pytest.mark.parametrize("kind", ["fifo", "link", "directory", "large"])
def test_a_file_that_is_not_regular_is_rejected_at_once(folder, name, kind) -> None:
    """A FIFO would hang its reader, a link lead anywhere, a large file take the memory."""
    path = folder / name
    kept = path.rename(folder / "kept")
    match kind:
        case "fifo":
            os.mkfifo(path)
        case "link":
            path.symlink_to(kept)
        case "directory":
            path.mkdir()
        case "large":
            path.touch()
            os.truncate(path, 300 << 20)
    for read in (load_artifact, ModelRegistry(folder.parent / "models").keep):
        with pytest.raises(ArtifactMismatch, match=name):
            read(folder)


@pytest.mark.parametrize("content", [b"../../x\n", b"/tmp\n", b"current\n", b"\xff"])
def test_the_promoted_version_is_no_path(tmp_path, content) -> None:
    (tmp_path / "current").write_bytes(content)
    with pytest.raises(ArtifactMismatch, match="current"):
        load_artifact(tmp_path)


def test_a_graph_that_is_no_graph_is_named(tmp_path, table) -> None:
    folder = write_artifact(tmp_path / "bad", replace(learnt(), model=b"not a graph"), table)
    with pytest.raises(ArtifactMismatch, match=r"model\.onnx: must not be run"):
        load_artifact(folder)


def test_another_cluster_or_another_plugin_is_refused(folder, table) -> None:
    cluster = load_artifact(folder, plugin="made-up").manifest.cluster
    assert check_home(cluster, "made up", table.origin.cluster_fingerprint) == ""
    assert "was changed since the model was trained" in check_home(cluster, "made up", "1" * 64)
    with pytest.raises(ArtifactMismatch, match=r"trained on 'made up' .*, and this is 'elsewhere'"):
        check_home(cluster, "elsewhere", "1" * 64)
    with pytest.raises(ArtifactMismatch, match="made by 'made-up'"):
        load_artifact(folder, plugin="xgboost")


class Bomb:
    def __reduce__(self):
        return (pytest.fail, ("it was unpickled",))


@pytest.mark.parametrize("name", ["model.onnx", "ranges.json", "manifest.json"])
def test_nothing_is_ever_unpickled(folder, name: str) -> None:
    (folder / name).write_bytes(pickle.dumps(Bomb()))
    if name != "manifest.json":
        digest = sha256((folder / name).read_bytes()).hexdigest()
        files = json.loads((folder / "manifest.json").read_text())["files"] | {name: digest}
        changed_manifest(folder, files=files)
    with pytest.raises(ArtifactMismatch, match=name):
        load_artifact(folder)


# Observations that are unlike those of the training.


def test_a_queue_unlike_the_training_is_not_answered(folder) -> None:
    rows = USUAL.window.rows * 40
    strange = replace(USUAL, window=replace(USUAL.window, rows=rows))
    with pytest.raises(ArtifactMismatch, match="unlike what the model was trained on"):
        load_artifact(folder).predict(strange)


@pytest.mark.parametrize("change", [{"limit": 12 * HOUR}, {"nodes": 60}])
def test_a_job_unlike_those_of_the_training_is_not_answered(folder, change) -> None:
    strange = replace(USUAL, successor=replace(USUAL.successor, **change))
    with pytest.raises(ArtifactMismatch, match="not trained for such jobs"):
        load_artifact(folder).predict(strange)


def test_a_partition_of_another_size_is_not_answered(folder) -> None:
    (partition,) = USUAL.snapshot.partitions
    larger = replace(USUAL.snapshot, partitions=(replace(partition, total=500),))
    with pytest.raises(ArtifactMismatch, match="500 nodes; the model was trained for 76"):
        load_artifact(folder).predict(replace(USUAL, snapshot=larger))


def test_features_without_weight_may_be_anything(tmp_path, table) -> None:
    weight = np.zeros(table.schema.size)
    weight[table.schema.names.index("plan_wait")] = 1
    onnx_predictor = load_artifact(write_artifact(tmp_path / "one", replace(learnt(), weight=weight), table))
    onnx_predictor.predict(replace(USUAL, window=replace(USUAL.window, rows=USUAL.window.rows * 40)))
    with pytest.raises(ArtifactMismatch, match="plan_wait"):
        onnx_predictor.predict(replace(USUAL, planned_start=PlannedStart.known(USUAL.time + 95 * HOUR)))


def test_an_answer_that_is_no_number_never_passes(tmp_path, table) -> None:
    model = constant_graph([1.0, float("nan"), 2.0])
    onnx_predictor = load_artifact(write_artifact(tmp_path / "nan", replace(learnt(), model=model), table))
    with pytest.raises(ValueError, match="not finite"):
        onnx_predictor.predict(USUAL)


# Answers.


@given(st.lists(st.floats(-5, 100), min_size=3, max_size=3))
def test_quantiles_never_cross_nor_lie_in_the_past(hours) -> None:
    found = WaitQuantiles((0.1, 0.5, 0.9)).quantiles(np.array(hours))
    assert found.tolist() == sorted(max(hour, 0.0) for hour in hours)


@given(st.floats(0.5, 50), st.floats(0.05, 0.95))
def test_a_distribution_is_read_as_its_inverse(mean: float, level: float) -> None:
    """An exponential wait, whose quantiles are known: between steps of half an hour within a quarter."""
    hours = np.arange(0, 500, 0.5)
    answers = WaitDistribution(tuple(hours), (level,))
    (found,) = answers.quantiles(1 - np.exp(-hours / mean))
    assert found == pytest.approx(-mean * np.log(1 - level), abs=0.26)


@given(st.lists(st.floats(0, 1), min_size=4, max_size=4))
def test_any_distribution_gives_quantiles_that_do_not_descend(steps) -> None:
    answers = WaitDistribution((0.0, 1.0, 5.0, 24.0))
    found = answers.quantiles(np.array([steps, sorted(steps)]))
    assert (np.diff(found, axis=1) >= 0).all()
    assert ((found >= 0) & (found <= 24)).all()


def test_scores_are_kept_within_the_leads() -> None:
    """The predecessor of the usual observation runs for two hours more."""
    assert USUAL.predecessor is not None
    left = (USUAL.predecessor.end - USUAL.time) / HOUR
    eager, idle = np.array([0.0, 1.0]), np.array([1.0, 0.0])

    def submits(scores: Scores, output) -> bool:
        answer = scores.prediction(output, USUAL)
        assert isinstance(answer, ActionScores)
        return answer.submit >= answer.hold

    assert submits(Scores(), eager)
    assert not submits(Scores(), idle)
    assert not submits(Scores(max_lead=left / 2), eager)
    assert submits(Scores(min_lead=left * 2), idle)
    ended = replace(USUAL, predecessor=replace(USUAL.predecessor, end=ABSENT))
    assert Scores(min_lead=left * 2).prediction(idle, ended) == ActionScores(submit=0.0, hold=1.0)


@pytest.mark.parametrize("answers", [WaitQuantiles((0.1, 0.9)), WaitDistribution((0.0, 1.0)), Scores(0.5, 24.0)])
def test_answers_survive_the_manifest(answers) -> None:
    assert answers_from(json.loads(json.dumps(asdict(answers)))) == answers
