"""In whose name the daemon acts: what each mode changes of the world that its own user sees."""

from __future__ import annotations

import pytest
from fakes import FakeCluster

from mirage.backends.estimates import WhereAllowed
from mirage.bootstrap.acting import act_as_configured
from mirage.bootstrap.world import Lore, World
from mirage.config.model import Config
from mirage.domain.errors import ConfigError


@pytest.fixture
def own() -> World:
    cluster = FakeCluster()
    lore = Lore(refresh=lambda: "nothing new")
    return World(cluster, cluster, cluster, cluster, lore)  # type: ignore[arg-type]


def config(mode: str, *, url: str = "http://127.0.0.1:6820", helper: str = "/opt/mirage-act") -> Config:
    acting = {"mode": mode, "tokens": "/run/tokens", "helper": helper}
    return Config.model_validate({"acting": acting, "cluster": {"rest": {"url": url}}})


def test_in_its_own_name_nothing_changes(own: World) -> None:
    assert act_as_configured(config("own"), own) is own


@pytest.mark.parametrize("mode", ["agent", "release", "sudo", "token"])
def test_another_acts_and_all_else_stays(own: World, mode: str) -> None:
    world = act_as_configured(config(mode), own)
    assert world.actuator is not own.actuator
    assert isinstance(world.estimator, WhereAllowed)
    assert (world.lore, world.clock) == (own.lore, own.clock)
    assert (world.desk is not None) == (mode == "agent")
    assert (world.cluster is own.cluster) == (mode != "release")


def test_released_jobs_are_seen_by_what_releases_them(own: World) -> None:
    world = act_as_configured(config("release"), own)
    assert world.cluster is world.actuator


@pytest.mark.parametrize(
    ("mode", "given", "key"),
    [("sudo", {"helper": "mirage-act"}, "acting.helper"), ("token", {"url": ""}, "cluster.rest.url")],
)
def test_what_is_missing_is_named(own: World, mode: str, given: dict[str, str], key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        act_as_configured(config(mode, **given), own)
