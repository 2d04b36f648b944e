"""``mirage models``: through a running daemon and by its files, with the same answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from anyone import ANYONE, for_all_users
from api.serving import serving
from api_world import world
from cli.test_chains import MAIN, mirage
from daemon.daemons import DaemonFolder
from kept_models import MANIFEST, NEW, OLD, ModelDesk, measured
from plugins.learnable import USUAL, learnable, learnt, with_vectors

from mirage.api.port import Inquiries
from mirage.plugin import write_artifact
from mirage.predictors.model_registry import ModelRegistry, Version

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from api_world import World

__all__ = ["world"]

pytest.importorskip("onnx")

DAY = 86_400
HOSTILE = "\x1b]0;PWN\x07[red]\nFAKE\u202e"


class Site:
    """A daemon, two versions of a model that it keeps, and one that was just trained."""

    def __init__(self, folder: Path) -> None:
        self.place = DaemonFolder(folder)
        self.models = folder / "state" / "models"
        self.models.mkdir(parents=True)
        self.models.parent.chmod(0o700)
        table = with_vectors(learnable(0, 10), USUAL)
        made = [
            write_artifact(folder / f"made-{seed}", replace(learnt(), plugin="xgboost", seeds=(seed,)), table)
            for seed in range(3)
        ]
        shelf = ModelRegistry(self.models)
        self.old, self.new = shelf.promote(made[0]).version, shelf.keep(made[1]).version
        self.trained = made[2]

    def run(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """``mirage models``, by a user who has chosen no daemon."""
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(self.place.folder), "TZ": "UTC"} | variables
        environment |= {"PYTHONPATH": os.environ["PYTHONPATH"]} if "PYTHONPATH" in os.environ else {}
        argv = [sys.executable, "-c", MAIN, "models", *words]
        return subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)

    def asked(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.run(*words, "--socket", f"{self.place.folder}/run/api.sock")

    def read(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.run(*words, "--config", str(self.place.config))

    def in_use(self) -> list[str]:
        return [each.version for each in ModelRegistry(self.models).versions() if each.current]


@pytest.fixture
def stopped(tmp_path: Path) -> Site:
    return Site(tmp_path)


@pytest.fixture
def site(stopped: Site) -> Iterator[Site]:
    """Its daemon runs."""
    with stopped.place.start() as daemon:
        daemon.wait_for("predictor=reactive")
        yield stopped


def test_daemon_and_its_files_give_the_same_answers(site: Site) -> None:
    graph = site.models / "xgboost" / site.new / "model.onnx"
    graph.write_bytes(graph.read_bytes()[:100])
    for words in (("list",), ("list", "--json"), ("shadow",), ("shadow", "--json")):
        asked, read = site.asked(*words), site.read(*words)
        assert (asked.returncode, asked.stdout) == (0, read.stdout), asked.stderr
    listed = json.loads(site.asked("list", "--json").stdout)["models"]
    assert {each["version"]: (each["current"], bool(each["damage"])) for each in listed} == {
        site.old: (True, False),
        site.new: (False, True),
    }
    of_socket = site.run("list", "--json", MIRAGE_SOCKET=f"{site.place.folder}/run/api.sock")
    assert json.loads(of_socket.stdout)["models"] == listed
    assert json.loads(site.run("list", "--json", "--models", str(site.models)).stdout)["models"] == listed


def test_kept_version_is_promoted_and_rolled_back_by_the_daemon(site: Site) -> None:
    done = site.asked("promote", f"xgboost:{site.new}", "--json")
    assert done.returncode == 0, done.stderr
    promoted = json.loads(done.stdout)
    assert (promoted["name"], promoted["version"], promoted["current"]) == ("xgboost", site.new, True)
    assert site.in_use() == [site.new]
    assert site.asked("rollback", "xgboost").returncode == 0
    assert site.in_use() == [site.old]
    assert site.asked("rollback", "xgboost").returncode == 4, "there is no version before"
    assert site.asked("promote", "xgboost:0123456789ab").returncode == 3
    assert site.asked("promote", f"dqn:{site.new}").returncode == 3
    assert site.in_use() == [site.old]


def test_trained_model_is_copied_by_files_and_then_taken_by_the_daemon(site: Site) -> None:
    refused = site.asked("promote", str(site.trained))
    assert (refused.returncode, site.in_use()) == (2, [site.old])
    done = site.read("promote", str(site.trained), "--json")
    assert done.returncode == 0, done.stderr
    version = json.loads(done.stdout)["version"]
    assert site.in_use() == [version]
    assert site.asked("promote", f"xgboost:{version}").returncode == 0
    assert site.in_use() == [version]


def test_without_daemon_files_are_read_only_if_named(stopped: Site) -> None:
    """Even if the default place has models: another daemon may be the user's."""
    for words in (("list",), ("shadow",), ("rollback", "xgboost"), ("promote", f"xgboost:{stopped.new}")):
        done = stopped.run(*words, STATE_DIRECTORY=f"{stopped.place.folder}/state")
        assert (done.returncode, done.stdout) == (5, ""), done
        assert "--config FILE" in done.stderr
        assert done.stderr.count("\n") == 1
    assert stopped.in_use() == [stopped.old]
    named = ("--models", str(stopped.models))
    assert stopped.run("promote", f"xgboost:{stopped.new}", *named, "--force").returncode == 0
    assert stopped.in_use() == [stopped.new]
    assert json.loads(stopped.read("rollback", "xgboost", "--json").stdout)["version"] == stopped.old
    assert stopped.read("rollback", "xgboost").returncode == 1
    assert stopped.in_use() == [stopped.old]


def test_trained_model_needs_no_daemon(stopped: Site) -> None:
    done = stopped.run("promote", str(stopped.trained), "--json", STATE_DIRECTORY=f"{stopped.place.folder}/state")
    assert done.returncode == 0, done.stderr
    assert stopped.in_use() == [json.loads(done.stdout)["version"]]


@pytest.fixture
def modelled(world: World) -> Iterator[World]:
    """A daemon's interface before two versions, of which the newer did worse in shadow."""
    past = (measured("xgboost:/state/models/xgboost", True), measured("average", False))
    inquiries = Inquiries(
        lambda question: Future(), lambda name: None, lambda alike: past, lambda span: past if span > DAY else ()
    )
    with serving(world, models=ModelDesk(), inquiries=inquiries) as served:
        yield served


def test_model_that_did_worse_is_promoted_by_force_only(modelled: World) -> None:
    refused = mirage(modelled, "models", "promote", f"xgboost:{NEW}")
    assert (refused.returncode, refused.stdout) == (4, "")
    assert json.loads(mirage(modelled, "models", "list", "--json").stdout)["models"][1]["version"] == NEW
    forced = mirage(modelled, "models", "promote", f"xgboost:{NEW}", "--force", "--json")
    assert (forced.returncode, json.loads(forced.stdout)["version"]) == (0, NEW)
    back = mirage(modelled, "models", "rollback", "xgboost", "--json")
    assert (back.returncode, json.loads(back.stdout)["version"]) == (0, OLD)


def test_shadow_counts_the_handovers_of_the_span_that_is_asked_for(modelled: World) -> None:
    def predictors(*words: str) -> int:
        return len(json.loads(mirage(modelled, "models", "shadow", "--json", *words).stdout)["predictors"])

    assert (predictors(), predictors("--since", "2d"), predictors("--since", f"{DAY}s")) == (2, 2, 0)
    assert mirage(modelled, "models", "shadow", "--since", "31d").returncode == 2
    table = mirage(modelled, "models", "shadow").stdout
    assert "xgboost:/state/models/xgboost *" in table
    assert "80%" in table


@pytest.mark.skipif(os.geteuid() != 0, reason="to become another user needs root")
def test_only_administrators_change_which_model_is_in_use(modelled: World) -> None:
    packages = for_all_users(modelled.socket.parent) | {"MIRAGE_SOCKET": str(modelled.socket)}

    def by_nobody(*words: str) -> int:
        argv = [*ANYONE, "models", *words]
        return subprocess.run(
            argv, env=packages, capture_output=True, check=False, user=65_534, cwd="/"
        ).returncode

    assert (by_nobody("list"), by_nobody("shadow")) == (0, 0)
    assert by_nobody("promote", f"xgboost:{NEW}", "--force") == 4
    assert by_nobody("rollback", "xgboost") == 4


def test_hostile_names_of_models_command_no_terminal(world: World) -> None:
    class Hostile(ModelDesk):
        def versions(self) -> tuple[Version, ...]:
            manifest = replace(MANIFEST, cluster=replace(MANIFEST.cluster, name=HOSTILE))
            return (Version("xgboost" + HOSTILE, OLD + HOSTILE, True, manifest),)

    inquiries = Inquiries(lambda question: Future(), lambda name: None, lambda alike: ())
    with serving(world, models=Hostile(), inquiries=inquiries) as served:
        document = mirage(served, "models", "list", "--json")
        assert document.returncode == 0, document.stderr
        table = mirage(served, "models", "list").stdout
    assert "[red]" in table
    assert not set("\x1b\x07\u202e") & set(table)
    assert not any(line.startswith("FAKE") for line in table.splitlines())


def test_daemon_without_models_says_so(world: World) -> None:
    for words in (("list",), ("shadow",), ("promote", f"xgboost:{NEW}"), ("rollback", "xgboost")):
        done = mirage(world, "models", *words)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), done
