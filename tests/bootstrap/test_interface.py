"""The daemon's parts behind the API, put together as the daemon does: queries, models, configuration."""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pytest
from fakes import HOUR, FakeCluster
from plugins.learnable import USUAL, learnable, learnt, with_vectors

from mirage.api.access.caller import Scope
from mirage.bootstrap.assembly import assemble
from mirage.bootstrap.cluster import ClusterConnection, SlurmVersion
from mirage.bootstrap.interface import named_guard
from mirage.bootstrap.models import AccuracyMeasurements, ModelDesk
from mirage.config.loading import load_config
from mirage.control.guard import NOBODY
from mirage.control.prediction_requests import PredictionRequest, Role
from mirage.domain.errors import ArtifactMismatch, ConfigError, PluginNotFound
from mirage.domain.job import JobRequest
from mirage.domain.objective import Weights
from mirage.plugin import write_artifact
from mirage.predictors.model_manifest import read_manifest
from mirage.predictors.model_registry import ModelRegistry
from mirage.replay.shadows import ShadowScore, objection_to

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mirage.bootstrap.service import DaemonService

KEY = b"k" * 32
JOB = JobRequest("probe", "alice", 4 * HOUR)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[DaemonService]:
    cluster = FakeCluster(waits=[HOUR] * 30)
    cluster.rate = 1.0  # type: ignore[attr-defined]
    file = tmp_path / "mirage.toml"
    file.write_text(
        f'[service]\nstate = "{tmp_path}"\nruntime = "{tmp_path}"\n[loop]\nshadows = ["fixed:6h"]\n'
        f'[api]\nadmins = ["chief"]\npolicy = "{tmp_path}/policy.toml"\njwt.key = "{tmp_path}/jwt.key"\n'
        f'[store]\nurl = "sqlite:///{tmp_path}/mirage.db"\n'
    )
    (tmp_path / "policy.toml").write_text('everybody = "operate"\n')
    (tmp_path / "jwt.key").write_bytes(KEY)
    loaded = load_config(file)
    made = assemble(loaded.config, ClusterConnection(cluster, cluster, cluster, cluster), lambda: None)  # type: ignore[arg-type]
    made.origin = loaded.origin
    yield made
    made.close()


def test_the_admins_of_the_configuration_may_do_everything(service: DaemonService) -> None:
    assert service.interface is not None
    gate = service.interface.service.gate
    assert gate.scope_of("chief") is Scope.ADMIN
    assert gate.scope_of("alice") is not Scope.ADMIN


def test_service_says_which_access_files_are_outdated(service: DaemonService, tmp_path: Path) -> None:
    for name, right, problem in (
        ("policy.toml", b'everybody = "none"\n', "api.policy"),
        ("jwt.key", b"n" * 32, "api.jwt.key"),
    ):
        (tmp_path / name).unlink()
        service.refresh_access()
        (said,) = service.outdated
        assert said.startswith(problem)
        assert "mirage_access_files_outdated 1.0" in service.watching.telemetry("nobody").expose("")[0].decode()
        (tmp_path / name).write_bytes(right)
        service.refresh_access()
        assert not service.outdated
    assert "mirage_access_files_outdated 0.0" in service.watching.telemetry("nobody").expose("")[0].decode()
    assert service.interface is not None
    assert service.interface.service.gate.scope_of("alice") is None


def test_a_question_goes_through_the_daemon(service: DaemonService) -> None:
    service.loop.cycle()
    assert service.interface is not None
    inquiries = service.interface.service.inquiries
    assert inquiries is not None
    promise = inquiries.ask(PredictionRequest(JOB, inquiries.named("fixed:9h", NOBODY)))
    shown: list[str] = []
    assert service.answer_question(lambda: shown.append("alive"))
    assert not service.answer_question(lambda: None)
    said = promise.result(0).said
    assert [(each.predictor, each.role) for each in said] == [
        ("auto", Role.IN_CHARGE),
        ("fixed:6h", Role.SHADOW),
        ("fixed:9h", Role.NAMED),
    ]
    assert len(shown) == 3, "the watchdog receives each"
    assert inquiries.measured(None) == ()


def test_named_predictors_are_kept_and_no_paths(service: DaemonService, tmp_path: Path) -> None:
    named = partial(named_guard, service, asker=NOBODY)
    first = named("fixed:1h")
    assert named("fixed:1h") is first
    assert named("fixed:6h") is None, "it is asked anyway"
    service.reconfigure(service.config)
    assert named("fixed:1h") is not first
    for name in ("xgboost:/etc", "xgboost:../x", "", "a b", f"xgboost:{tmp_path}"):
        with pytest.raises(PluginNotFound):
            named(name)
    with pytest.raises(ConfigError):
        named("fixed:soon")


def test_the_configuration_is_told_with_its_sources(service: DaemonService) -> None:
    assert service.interface is not None
    told = {each.key: each for each in service.interface.service.configuration()}
    assert told["loop.interval"].value == 60
    assert told["loop.interval"].source == "default"
    assert told["loop.shadows"].source.endswith("mirage.toml:5")
    service.config = service.config.model_copy(
        update={
            "store": service.config.store.model_copy(update={"url": "postgresql://m:secret@db/x?password=also"})
        }
    )
    url = next(each.value for each in service.interface.service.configuration() if each.key == "store.url")
    assert url == "postgresql://m:***@db/x?password=***"


def artifact(folder: Path, name: str = "xgboost", seed: int = 1) -> Path:
    made = replace(learnt(), plugin=name, seeds=(seed,))
    return write_artifact(folder, made, with_vectors(learnable(0, 10), USUAL))


def test_models_are_promoted_and_rolled_back_and_the_daemon_reloads(
    service: DaemonService, tmp_path: Path
) -> None:
    shelf = ModelRegistry(tmp_path / "models")
    old, new = (shelf.keep(artifact(tmp_path / f"a{seed}", seed=seed)).version for seed in (1, 2))
    reloads: list[bool] = []
    service.reload = lambda: reloads.append(True)
    desk = ModelDesk(service, AccuracyMeasurements(service.store, service.clock, Weights))
    assert desk.promote("xgboost", old, force=False).current
    assert desk.promote("xgboost", new, force=False).version == new
    assert [each.version for each in desk.versions() if each.current] == [new]
    assert desk.rollback("xgboost").version == old
    with pytest.raises(ConfigError, match="no earlier version"):
        desk.rollback("xgboost")
    assert len(reloads) == 3
    assert desk.at_work() == ("auto", ("fixed:6h",), "quantile")


def test_damage_of_a_kept_model_is_found_and_whole_files_are_read_once(
    service: DaemonService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf, read = ModelRegistry(tmp_path / "models"), []
    kept = shelf.keep(artifact(tmp_path / "made"))
    desk = ModelDesk(service, AccuracyMeasurements(service.store, service.clock, Weights))
    damage = ModelRegistry.damage
    monkeypatch.setattr(ModelRegistry, "damage", lambda *given: read.append(given) or damage(*given))
    assert [desk.damage(kept) for _ in range(3)] == [""] * 3
    assert len(read) == 1
    graph = tmp_path / "models" / kept.name / kept.version / "model.onnx"
    whole = graph.read_bytes()
    graph.write_bytes(whole[:100])
    assert "model.onnx" in desk.damage(kept)
    graph.write_bytes(whole)
    assert desk.damage(kept) == ""


def test_model_in_shadow_is_told_as_such_until_it_is_promoted(service: DaemonService, tmp_path: Path) -> None:
    shelf = ModelRegistry(tmp_path / "models")
    kept = shelf.keep(artifact(tmp_path / "made"))
    desk = ModelDesk(service, AccuracyMeasurements(service.store, service.clock, Weights))
    shelf.watch(kept)
    service.models_changed()
    assert f"xgboost:{kept.version}" in desk.in_shadow()
    desk.promote("xgboost", kept.version, force=True)
    assert f"xgboost:{kept.version}" not in desk.in_shadow()


def test_model_of_another_cluster_is_not_put_in_use(service: DaemonService, tmp_path: Path) -> None:
    """The daemon would not start with it."""
    service.store.cluster.settle("elsewhere")
    kept = ModelRegistry(tmp_path / "models").keep(artifact(tmp_path / "made"))
    desk = ModelDesk(service, AccuracyMeasurements(service.store, service.clock, Weights))
    for force in (True, False):
        with pytest.raises(ArtifactMismatch, match="elsewhere"):
            desk.promote("xgboost", kept.version, force=force)
    assert not any(each.current for each in desk.versions())


def test_what_did_worse_in_shadow_is_objected_to(tmp_path: Path) -> None:
    folder = artifact(tmp_path / "model")
    nan = float("nan")
    worse = ShadowScore(f"xgboost:{folder}", False, 9, nan, nan, nan, nan, 9, nan, nan, nan, -0.5, 0.1)
    assert "0.50 h more per handover" in objection_to(read_manifest(folder), [worse])
    assert objection_to(read_manifest(folder), [replace(worse, gain=0.5)]) == ""
    assert objection_to(read_manifest(folder), [replace(worse, handovers=4)]) == ""
    assert objection_to(read_manifest(artifact(tmp_path / "other", seed=9)), [worse]) == ""


def test_measuring_is_done_once_for_all_who_ask_at_once(service: DaemonService) -> None:
    measurements = AccuracyMeasurements(service.store, service.clock, Weights)
    threads = [threading.Thread(target=measurements.errors) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert measurements.errors(JOB) == ()
    assert measurements.comparison() == ()


def test_slurms_version_is_asked_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = tmp_path / "bin"
    commands.mkdir()
    scontrol = commands / "scontrol"
    scontrol.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/asked\necho slurm-wlm 22.05.8\n')
    scontrol.chmod(0o755)
    monkeypatch.setenv("PATH", f"{commands}:/usr/bin:/bin")
    (tmp_path / "mirage.toml").write_text("")
    config = load_config(tmp_path / "mirage.toml").config
    release = SlurmVersion(config)
    assert release() == release() == ("cli", "22.05.8")
    assert (tmp_path / "asked").read_text() == "--version\n"
    scontrol.write_text("#!/bin/sh\nexit 1\n")
    assert SlurmVersion(config)() == ("cli", None)
