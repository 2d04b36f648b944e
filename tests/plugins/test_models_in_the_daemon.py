"""Trained models in a daemon: by path, by name, by version; what was tampered with stops the start; the gate."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from learnable import USUAL, learnable, learnt, with_vectors
from typer.testing import CliRunner

from mirage.bootstrap.cluster import ClusterInfo
from mirage.bootstrap.policies import build_guards, models_in_shadow
from mirage.cli import shadows
from mirage.cli.main import app
from mirage.config.loading import load_config
from mirage.daemon.chores import ModelTrial
from mirage.domain.decision import RecentWaits
from mirage.domain.errors import ClusterUnavailable, ConfigError
from mirage.plugin import artifact_factory, write_artifact
from mirage.predictors import registry
from mirage.predictors.model_registry import ModelRegistry
from mirage.predictors.registry import build_predictor
from mirage.replay.shadows import ShadowScore
from mirage.simulator.configuration.clusterfile import load_cluster

if TYPE_CHECKING:
    from mirage.config.model import Config
    from mirage.simulator.cluster import ClusterConfig


@pytest.fixture(autouse=True)
def installed_predictor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._BUILT_IN, "made-up", artifact_factory("made-up"))


def artifact(folder: Path, seed: int = 0) -> Path:
    return write_artifact(folder, replace(learnt(), seeds=(seed,)), with_vectors(learnable(0, 10), USUAL))


def config(folder: Path, loop: str) -> Config:
    file = folder / "mirage.toml"
    file.write_text(f'[service]\nstate = "{folder}/state"\n[loop]\n{loop}\n')
    return load_config(file).config


def seeds(folder: Path, name: str) -> tuple[int, ...]:
    guards = build_guards(config(folder, f'predictor = "average"\nshadows = ["{name}"]'), ClusterInfo())
    (shadow,) = guards.shadows
    guards.close()
    return shadow.predictor.manifest.seeds


def test_a_model_is_named_by_folder_by_version_or_by_name_alone(tmp_path: Path) -> None:
    first, second = artifact(tmp_path / "first", 1), artifact(tmp_path / "second", 2)
    shelf = ModelRegistry(tmp_path / "state/models")
    kept = shelf.keep(second)
    assert not kept.current
    assert seeds(tmp_path, f"made-up:{first}") == (1,)
    assert seeds(tmp_path, f"made-up:{kept.version}") == (2,)
    with pytest.raises(ConfigError, match=r"loop.shadows: .*needs a trained model"):
        seeds(tmp_path, "made-up")
    shelf.promote(first)
    assert seeds(tmp_path, "made-up") == (1,)


def test_what_was_tampered_with_stops_the_start_with_one_line(tmp_path: Path) -> None:
    made = artifact(tmp_path / "made")
    (made / "model.onnx").write_bytes((made / "model.onnx").read_bytes() + b"x")
    for loop in (
        f'predictor = "made-up:{made}"',
        f'shadows = ["made-up:{made}"]',
        'shadows = ["made-up:/nowhere"]',
    ):
        with pytest.raises(ConfigError) as raised:
            build_guards(config(tmp_path, loop), ClusterInfo())
        assert str(raised.value).startswith(f"loop.{loop.split(' ')[0]}")
        assert "\n" not in str(raised.value)


def described(name: str) -> ClusterInfo:
    return ClusterInfo(description=lambda: replace(load_cluster("demo"), name=name))


def test_a_model_of_another_cluster_stops_the_start(tmp_path: Path) -> None:
    wanted = config(tmp_path, f'predictor = "made-up:{artifact(tmp_path / "made")}"')
    with pytest.raises(
        ConfigError, match=r"loop.predictor: .*was trained on 'made up' .*, and this is 'demo'"
    ) as raised:
        build_guards(wanted, described("demo"))
    assert "\n" not in str(raised.value)
    build_guards(wanted).close()  # without asking the cluster: as far as a configuration can be checked


def refuse() -> ClusterConfig:
    raise ClusterUnavailable("scontrol: exit 1")


@pytest.mark.parametrize(
    ("lore", "words"),
    [
        (described("made up"), "was changed since the model was trained"),
        (ClusterInfo(), "cannot check whether it was trained on this cluster"),
        (ClusterInfo(description=refuse), "trained on this cluster: scontrol: exit 1"),
    ],
)
def test_a_cluster_that_has_changed_or_does_not_tell_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, lore: ClusterInfo, words: str
) -> None:
    build_guards(config(tmp_path, f'predictor = "made-up:{artifact(tmp_path / "made")}"'), lore).close()
    assert words in caplog.text


def test_where_a_model_knows_nothing_the_fallback_answers_and_it_is_said(tmp_path: Path) -> None:
    made = artifact(tmp_path / "made")
    guards = build_guards(config(tmp_path, f'predictor = "made-up:{made}"\nbudget = 60'))
    assert guards.wants.waits > 0
    strange = replace(USUAL, successor=replace(USUAL.successor, nodes=4_000))
    answer = guards.of("").predict(strange)
    assert answer.by == "quantile"
    assert answer.prediction == build_predictor("quantile").predict(strange)
    assert "was not trained for such jobs; fell back to quantile" in answer.trouble
    answer = guards.of("").predict(replace(strange, waits=RecentWaits.none()))
    assert answer.by == "reactive"
    assert answer.trouble.endswith("; fell back to reactive")
    assert "quantile: no prediction: no job has started yet" in answer.trouble
    guards.close()


def measured(predictor: str, gain: float, handovers: int = 20) -> ShadowScore:
    return ShadowScore(predictor, False, 20, 0.0, 1.0, 0.5, 0.8, handovers, 1.0, 0.5, 1.5, gain, 0.1)


@pytest.mark.parametrize(("gain", "handovers", "promoted"), [(-0.4, 20, False), (0.4, 20, True), (-0.4, 2, True)])
def test_a_model_that_did_worse_in_shadow_is_promoted_by_force_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gain: float, handovers: int, promoted: bool
) -> None:
    made = artifact(tmp_path / "made")
    watched = ModelRegistry(tmp_path / "state/models").keep(made)
    name = f"made-up:{tmp_path / 'state/models/made-up' / watched.version}"
    found = (measured("average", 0.0), measured(name, gain, handovers))
    monkeypatch.setattr(shadows, "measurements", lambda *_: found)
    models = str(tmp_path / "state/models")
    result = CliRunner().invoke(app, ["models", "promote", str(made), "--models", models])
    in_use = [version for version in ModelRegistry(Path(models)).versions() if version.current]
    assert (result.exit_code, bool(in_use)) == ((0, True) if promoted else (4, False))
    if not promoted:
        assert "it would have cost 0.40 h more per handover" in result.output
        forced = CliRunner().invoke(app, ["models", "promote", str(made), "--models", models, "--force"])
        assert forced.exit_code == 0


def test_a_watched_model_is_asked_in_shadow_and_one_that_is_damaged_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shelf = ModelRegistry(tmp_path / "state/models")
    shelf.watch(kept := shelf.keep(artifact(tmp_path / "made")))
    folder = tmp_path / "state/models/made-up" / kept.version
    told = config(tmp_path, 'predictor = "average"')
    guards = build_guards(told, ClusterInfo(), in_shadow=models_in_shadow(told))
    assert [shadow.predictor.name for shadow in guards.shadows] == [f"made-up:{folder}"]
    guards.close()
    (folder / "model.onnx").write_bytes(b"no model")
    guards = build_guards(told, ClusterInfo(), in_shadow=models_in_shadow(told))
    assert guards.shadows == ()
    guards.close()
    assert "event=model_not_watched" in caplog.text


@pytest.mark.parametrize(
    ("of", "used", "watched"),
    [
        ({"gain": 0.4}, True, False),
        ({"gain": -0.4}, False, False),
        ({"gain": 0.1}, False, True),
        ({"gain": 0.4, "handovers": 19}, False, True),
        ({"gain": -0.4, "handovers": 19}, False, True),
    ],
)
def test_a_watched_model_is_judged_by_the_sites_own_handovers(
    tmp_path: Path, of: dict[str, float], used: bool, watched: bool
) -> None:
    shelf, changes = ModelRegistry(tmp_path / "models"), []
    shelf.watch(kept := shelf.keep(artifact(tmp_path / "made")))
    found = (measured("average", 0.0), measured(f"made-up:{tmp_path / 'models/made-up' / kept.version}", **of))
    trial = ModelTrial(shelf, lambda: found, lambda: changes.append(1))
    assert bool(trial.run()) == bool(changes) == (used or not watched)
    assert (bool(shelf.in_use()), bool(shelf.watched())) == (used, watched)


def test_a_loss_in_one_partition_outweighs_a_gain_in_another(tmp_path: Path) -> None:
    shelf = ModelRegistry(tmp_path / "models")
    shelf.watch(kept := shelf.keep(artifact(tmp_path / "made")))
    name = f"made-up:{tmp_path / 'models/made-up' / kept.version}"
    found = (replace(measured(name, 0.4), partition="a"), replace(measured(name, -0.4), partition="b"))
    ModelTrial(shelf, lambda: found, lambda: None).run()
    assert (shelf.in_use(), shelf.watched()) == ({}, {})
