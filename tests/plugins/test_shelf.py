"""Versions of models: which is in use, whatever is interrupted or changed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import replace
from hashlib import sha256

import pytest
from anyone import ANYONE, for_all_users
from learnable import USUAL, learnable, learnt, with_vectors
from typer.testing import CliRunner

from mirage.bootstrap.predictors import shelved
from mirage.cli.models import models_app
from mirage.domain.errors import ArtifactMismatch, ConfigError
from mirage.plugin import load_artifact, write_artifact
from mirage.predictors.model_manifest import read_manifest
from mirage.predictors.model_registry import ModelRegistry


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory):
    """Three artifacts that differ."""
    folder, table = tmp_path_factory.mktemp("made"), with_vectors(learnable(0, 10), USUAL)
    return [write_artifact(folder / str(seed), replace(learnt(), seeds=(seed,)), table) for seed in range(3)]


def current(shelf: ModelRegistry) -> list[tuple[int, ...]]:
    return [one.manifest.seeds for one in shelf.versions() if one.current]


def test_the_last_promoted_is_in_use_and_each_rollback_goes_one_back(tmp_path, artifacts) -> None:
    shelf = ModelRegistry(tmp_path)
    for artifact in artifacts:
        shelf.promote(artifact)
    assert current(shelf) == [(2,)]
    assert len(shelf.versions()) == 3
    assert shelf.rollback("made-up").manifest.seeds == (1,)
    assert shelf.rollback("made-up").manifest.seeds == (0,)
    with pytest.raises(ConfigError, match="no earlier version"):
        shelf.rollback("made-up")
    assert current(shelf) == [(0,)]


def test_promoting_again_changes_nothing(tmp_path, artifacts) -> None:
    shelf = ModelRegistry(tmp_path)
    assert shelf.promote(artifacts[0]) == shelf.promote(artifacts[0])
    with pytest.raises(ConfigError, match="no earlier version"):
        shelf.rollback("made-up")


def test_promoting_again_mends_a_version_that_was_damaged_on_the_shelf(tmp_path, artifacts) -> None:
    shelf, artifact = ModelRegistry(tmp_path), artifacts[0]
    kept = shelf.promote(artifact)
    graph = tmp_path / kept.name / kept.version / "model.onnx"
    whole = graph.read_bytes()
    graph.write_bytes(whole[:100])
    (seen,) = shelf.versions()
    assert "model.onnx" in shelf.damage(seen)
    assert shelf.promote(artifact).current
    assert graph.read_bytes() == whole
    (seen,) = shelf.versions()
    assert shelf.damage(seen) == ""


@pytest.mark.parametrize("content", [b"", b"\x00\xff\xfe", b"no version\n", b"x" * 2_000_000])
def test_promoting_mends_a_list_of_promotions_that_was_damaged(tmp_path, artifacts, content: bytes) -> None:
    shelf = ModelRegistry(tmp_path / "models")
    first, second = (shelf.promote(artifact) for artifact in artifacts[:2])
    (tmp_path / "models" / first.name / "current").write_bytes(content)
    assert shelf.promote(artifacts[0]).current
    assert [each.version for each in shelf.versions() if each.current] == [first.version]
    shelf.promote(artifacts[1])
    assert shelf.rollback(first.name).version == first.version != second.version


def test_a_version_on_the_shelf_can_be_promoted_where_it_is(tmp_path, artifacts) -> None:
    shelf = ModelRegistry(tmp_path)
    first = shelf.promote(artifacts[0])
    shelf.promote(artifacts[1])
    shelf.promote(tmp_path / "made-up" / first.version)
    assert current(shelf) == [(0,)]
    assert len(shelf.versions()) == 2


def test_the_folder_of_versions_answers_with_the_one_in_use(tmp_path, artifacts) -> None:
    shelf = ModelRegistry(tmp_path)
    shelf.promote(artifacts[0])
    shelf.promote(artifacts[2])
    assert load_artifact(tmp_path / "made-up").manifest.seeds == (2,)
    shelf.rollback("made-up")
    assert load_artifact(tmp_path / "made-up").manifest.seeds == (0,)


@pytest.mark.parametrize("plugin", ["../../outside", "/outside", "..", "a/b", "", "x" * 41])
def test_promoted_model_leaves_no_file_outside_the_shelf(tmp_path, artifacts, plugin: str) -> None:
    hostile, shelf = tmp_path / "hostile", tmp_path / "in" / "shelf"
    shutil.copytree(artifacts[0], hostile)
    path = hostile / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"plugin": plugin}))
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ArtifactMismatch, match="plugin"):
        ModelRegistry(shelf).promote(hostile)
    assert sorted(tmp_path.rglob("*")) == before


def test_rollback_touches_no_directory_outside_the_shelf(tmp_path, artifacts) -> None:
    outside = ModelRegistry(tmp_path)
    for artifact in artifacts:
        outside.promote(artifact)
    pointer = tmp_path / "made-up" / "current"
    before = pointer.read_bytes()
    (tmp_path / "shelf").mkdir()
    with pytest.raises(ConfigError, match="not on the registry"):
        ModelRegistry(tmp_path / "shelf").rollback("../made-up")
    assert pointer.read_bytes() == before


def test_a_manifest_changed_on_the_shelf_is_not_used(tmp_path, artifacts) -> None:
    shelf = ModelRegistry(tmp_path)
    version = shelf.promote(artifacts[0]).version
    path = tmp_path / "made-up" / version / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"metrics": {"absolute_x": 0.0}}))
    with pytest.raises(ArtifactMismatch, match="changed after its promotion"):
        load_artifact(tmp_path / "made-up")


def test_a_damaged_artifact_is_not_promoted(tmp_path, artifacts) -> None:
    shelf, bad = ModelRegistry(tmp_path / "shelf"), tmp_path / "bad"
    bad.mkdir()
    for path in artifacts[0].iterdir():
        (bad / path.name).write_bytes(path.read_bytes())
    (bad / "model.onnx").write_bytes(b"")
    shelf.promote(artifacts[1])
    with pytest.raises(ArtifactMismatch, match=r"model\.onnx"):
        shelf.promote(bad)
    assert current(shelf) == [(1,)]


@pytest.mark.parametrize(
    "content", ["[" * 3_000_000, "{}", json.dumps({"low": [0.0]}), '{"low": NaN}', f'{{"low": [{"9" * 200_000}]}}']
)
def test_model_whose_ranges_cannot_be_used_is_not_promoted(tmp_path, artifacts, content: str) -> None:
    broken = shutil.copytree(artifacts[0], tmp_path / "broken")
    (broken / "ranges.json").write_text(content)
    manifest = json.loads((broken / "manifest.json").read_text())
    manifest["files"]["ranges.json"] = sha256(content.encode()).hexdigest()
    (broken / "manifest.json").write_text(json.dumps(manifest))
    done = CliRunner().invoke(models_app, ["promote", str(broken), "--models", str(tmp_path / "shelf"), "--force"])
    assert isinstance(done.exception, ArtifactMismatch)
    assert "ranges.json" in str(done.exception)
    assert not ModelRegistry(tmp_path / "shelf").versions()


def test_what_a_kill_leaves_behind_is_no_version(tmp_path, artifacts) -> None:
    shelf = ModelRegistry(tmp_path)
    shelf.promote(artifacts[0])
    half = tmp_path / "made-up" / ".0123456789ab.xyz"
    half.mkdir()
    (half / "manifest.json").write_bytes((artifacts[1] / "manifest.json").read_bytes())
    (tmp_path / "made-up" / ".current.abc").write_text("nonsense\n")
    assert [one.manifest.seeds for one in shelf.versions()] == [(0,)]


def test_an_empty_shelf_has_nothing(tmp_path) -> None:
    assert ModelRegistry(tmp_path / "none").versions() == ()
    with pytest.raises(ConfigError, match="not on the registry"):
        ModelRegistry(tmp_path).rollback("xgboost")


@pytest.mark.skipif(os.geteuid() != 0, reason="to become another user needs root")
@pytest.mark.parametrize("command", ["promote", "rollback"])
def test_root_leaves_the_model_registry_to_the_account_of_the_daemon(tmp_path, artifacts, command: str) -> None:
    """Under any umask of root: the daemon reads it, and promotes by itself."""
    state, private = tmp_path / "state", tmp_path / "root"
    state.mkdir()
    shutil.copytree(artifacts[0], private)
    private.chmod(0o700)
    packages = for_all_users(tmp_path)
    if command == "rollback":
        shelf = ModelRegistry(state / "models")
        shelf.promote(artifacts[1])
        shelf.promote(private)
    for path in (state, *state.rglob("*")):
        os.chown(path, 65_534, 65_534)
    config = tmp_path / "mirage.toml"
    config.write_text(f'[service]\nstate = "{state}"\n')
    config.chmod(0o600)
    words = [command, "made-up" if command == "rollback" else str(private), "--config", str(config)]
    ran = subprocess.run([*ANYONE, "models", *words], env=packages, umask=0o077, capture_output=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert {path.stat().st_uid for path in state.rglob("*")} == {65_534}
    assert current(ModelRegistry(state / "models")) == ([(1,)] if command == "rollback" else [(0,)])


@pytest.mark.skipif(os.geteuid() != 0, reason="to become another user needs root")
def test_a_model_registry_that_cannot_be_read_is_named_and_concerns_trained_models_alone(
    tmp_path, artifacts
) -> None:
    shelf = ModelRegistry(tmp_path / "models")
    shelf.promote(artifacts[0])
    for_all_users(tmp_path)
    (tmp_path / "models").chmod(0o700)
    child = os.fork()
    if child == 0:
        os.setuid(65_534)
        told = [error_of(shelf.versions), error_of(lambda: shelved("xgboost", tmp_path / "models"))]
        named = all(str(tmp_path / "models") in each for each in told)
        os._exit(0 if named and shelved("quantile", tmp_path / "models") == "quantile" else 1)
    assert os.waitpid(child, 0)[1] == 0


def error_of(act) -> str:
    try:
        act()
    except (ArtifactMismatch, ConfigError) as error:
        return str(error)
    return ""


def test_an_artifact_that_changes_while_it_is_read_is_not_promoted(tmp_path, artifacts, monkeypatch) -> None:
    """The version that was tried is the one promoted."""
    folder, other = tmp_path / "made", json.loads((artifacts[1] / "manifest.json").read_text())
    shutil.copytree(artifacts[0], folder)

    def swapped(*arguments):
        found = read_manifest(*arguments)
        (folder / "manifest.json").write_text(json.dumps(other))
        return found

    monkeypatch.setattr("mirage.predictors.model_registry.read_manifest", swapped)
    with pytest.raises(ArtifactMismatch, match="while it was read"):
        ModelRegistry(tmp_path / "models").promote(folder)
    assert not (tmp_path / "models").exists()
