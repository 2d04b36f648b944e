"""Paths of the configuration mean the same place, whatever directory the daemon is started in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mirage.config.loading import load_config
from mirage.config.model import Config, ConfigSection
from mirage.config.places import default_places
from mirage.domain.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

_NO_PATHS = (
    "backend",
    "name",
    "user",
    "server_user",
    "predictor",
    "fallback",
    "partition",
    "listen",
    "sender",
    "server",
)
_TEXTS = ("user_claim", "audience", "issuer", "rest.url", "api.url", "aim")


def texts(section: type[ConfigSection] = Config, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:  # type: ignore[assignment]
    """Every key that takes any text."""
    for name, about in section.model_fields.items():
        kind: Any = about.annotation
        if isinstance(kind, type) and issubclass(kind, ConfigSection):
            yield from texts(kind, (*path, name))
        elif kind is str:
            yield (*path, name)


PATHS = [key for key in texts() if key[-1] not in (*_NO_PATHS, *_TEXTS) and ".".join(key[-2:]) not in _TEXTS]


def load(tmp_path: Path, key: tuple[str, ...], value: str) -> None:
    file = tmp_path / "mirage.toml"
    file.write_text(f"[{'.'.join(key[:-1])}]\n{key[-1]} = {value!r}\n")
    load_config(file)


def test_every_path_is_among_them() -> None:
    assert {("service", "state"), ("store", "url"), ("api", "socket"), ("cluster", "clock")} <= set(PATHS)
    assert len(PATHS) > 15


@pytest.mark.parametrize("key", PATHS, ids=".".join)
@pytest.mark.parametrize("value", ["here/it", "./it", "~/it", "it.db"])
def test_relative_path_is_refused(key: tuple[str, ...], value: str, tmp_path: Path) -> None:
    text = f"sqlite:///{value}" if key == ("store", "url") else value
    with pytest.raises(ConfigError) as refused:
        load(tmp_path, key, text)
    assert f"mirage.toml:2: {'.'.join(key)}" in str(refused.value)


def test_names_and_absolute_paths_are_taken(tmp_path: Path) -> None:
    for value in ("ls6", "/etc/slurm/slurm.conf"):
        load(tmp_path, ("cluster", "simulated", "cluster"), value)
    load(tmp_path, ("cluster", "simulated", "trace"), "generated:demo:1")
    load(tmp_path, ("store", "url"), f"sqlite:///{tmp_path}/mirage.db")
    load(tmp_path, ("store", "url"), "postgresql://mirage@localhost/mirage")


def test_relative_variables_are_ignored() -> None:
    """As the XDG specification has it."""
    found = default_places({"HOME": "/h", "XDG_STATE_HOME": "here"}, 4_000_000_000)
    assert found.state == Path("/h/.local/state/mirage")
