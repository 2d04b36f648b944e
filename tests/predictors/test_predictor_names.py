"""Valid names of predictors: names and bounded numbers, no path, and no number that cannot be used."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from api_world import definition

from mirage.api.access.caller import Caller, Scope
from mirage.api.conventions.problems import BadDocument
from mirage.api.routes.chaindefinition import read_chain
from mirage.bootstrap.interface import replay_command
from mirage.bootstrap.policies import build_guards
from mirage.bootstrap.predictors import check_chosen, chosen_predictor, shelved
from mirage.config.loading import load_config
from mirage.domain.errors import ConfigError, MirageError, PluginNotFound
from mirage.plugin import artifact_factory
from mirage.predictors import registry
from mirage.predictors.registry import build_predictor
from mirage.replay.runs import ReplaySpec

if TYPE_CHECKING:
    from pathlib import Path

VERSION = "0123456789ab"
PATHS = [
    "made-up:/etc/passwd",
    "made-up:/tmp/x/m",
    "made-up:../x",
    "made-up:./x",
    "made-up:~/x",
    "made-up:a/b",
    "ensemble:quantile+made-up:/tmp/x",
    "/tmp/x",
    "made-up:x\n",
    "made-up: x",
    "made-up:x\0",
    "made-up:\ud800",
    "fixed:" + "9" * 5_000 + "d",
    "x" * 1_000_000,
]
NUMBERS = [
    "average:9999999999999999999999999",
    "average:0",
    "average:-1",
    "average:10001",
    "average:1_000",
    "average:" + "9" * 5_000,
    "fixed:999999999w",
    "fixed:367d",
    "fixed:" + "1d" * 1_000,
    "quantile:1e999",
    "quantile:nan",
    "quantile:2",
    "ensemble:" + "+".join(f"fixed:{hours}h" for hours in range(1, 50)),
]


@pytest.fixture(autouse=True)
def installed_predictor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._BUILT_IN, "made-up", artifact_factory("made-up"))
    monkeypatch.setattr("mirage.bootstrap.predictors.is_built_in", lambda name: name in {"fixed", "quantile"})


@pytest.mark.parametrize("name", PATHS, ids=range(len(PATHS)))
def test_a_chain_names_no_path(name: str, tmp_path: Path) -> None:
    with pytest.raises(BadDocument, match="predictor") as raised:
        read_chain(json.dumps(definition(predictor=name)).encode(), Caller("ada", Scope.OPERATE), {})
    assert len(str(raised.value)) < 400
    with pytest.raises(PluginNotFound):
        check_chosen(name, tmp_path)


@pytest.mark.parametrize("name", NUMBERS, ids=range(len(NUMBERS)))
def test_a_number_in_a_name_is_bounded(name: str) -> None:
    with pytest.raises(MirageError):
        build_predictor(name)


@pytest.mark.parametrize("name", ["average:9999999999999999999999999", "fixed:999999999w"])
@pytest.mark.parametrize("key", ["predictor", "fallback"])
def test_a_configuration_with_such_a_number_is_rejected(tmp_path: Path, key: str, name: str) -> None:
    file = tmp_path / "mirage.toml"
    file.write_text(f'[service]\nstate = "{tmp_path}/state"\n[loop]\n{key} = "{name}"\n')
    with pytest.raises(ConfigError, match=f"loop.{key}"):
        build_guards(load_config(file).config)


def test_a_directory_that_a_user_made_is_no_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a slash, too: the daemon's working directory may be one that users write to."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x").mkdir()
    (tmp_path / VERSION).mkdir()
    file = tmp_path / "mirage.toml"
    file.write_text(f'[service]\nstate = "{tmp_path}/state"\n')
    config = load_config(file).config
    for name in ("made-up:x", f"made-up:{VERSION}", "ensemble:quantile+made-up:x"):
        with pytest.raises(ConfigError, match="model registry"):
            chosen_predictor(name, config, None)


def test_a_model_is_named_by_its_version_alone(tmp_path: Path) -> None:
    (tmp_path / "made-up" / VERSION).mkdir(parents=True)
    (tmp_path / "made-up" / "other").mkdir()
    check_chosen(f"made-up:{VERSION}", tmp_path)
    check_chosen(f"ensemble:quantile+made-up:{VERSION}", tmp_path)
    with pytest.raises(ConfigError, match="no such version"):
        check_chosen("made-up:other", tmp_path)
    assert shelved(f"..:{VERSION}", tmp_path / "made-up") == f"..:{VERSION}"


def test_a_replay_of_the_daemon_takes_the_same_names(tmp_path: Path) -> None:
    def command(*names: str) -> list[str]:
        wish = ReplaySpec("generated:demo:1", "demo", names, 1, 3_600, "2025-01-01", "2025-01-02", 600, 60, 2, "")
        return replay_command(wish, "demo", tmp_path)

    model = tmp_path / "made-up" / VERSION
    model.mkdir(parents=True)
    words = command("quantile", f"made-up:{VERSION}", f"ensemble:quantile+made-up:{VERSION}")
    assert f"--predictor=quantile,made-up:{model},ensemble:quantile+made-up:{model}" in words
    for name in ("made-up:x", f"made-up:{tmp_path}"):
        with pytest.raises(MirageError):
            command(name)
