"""A daemon starts with each configuration that ``config check`` accepts."""

from __future__ import annotations

import json
import logging
import shutil
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest

from mirage.bootstrap.assembly import build
from mirage.cli.daemon import check_command
from mirage.config.loading import load_config, settings
from mirage.config.model import Config
from mirage.daemon.chores import learning_chores
from mirage.daemon.process import run_daemon
from mirage.domain.errors import MirageError

if TYPE_CHECKING:
    from pathlib import Path

    from mirage.bootstrap.service import DaemonService

Key = tuple[str, ...]

CHOSEN: dict[Key, tuple[object, ...]] = {
    ("cluster", "backend"): ("cli", "rest", "pyslurm"),
    ("acting", "mode"): ("agent", "release", "sudo", "token"),
    ("training", "every"): (86_400,),
    ("store", "url"): ("sqlite:///{folder}/text", "sqlite:///{folder}/here", "sqlite:///{folder}/text/x"),
    ("api", "listen"): ("127.0.0.1:99999", "127.0.0.1:0", "192.0.2.1:1"),
}
"""Keys by which the daemon is made of other parts."""
TEXTS = ("{folder}/missing/x", "{folder}/text/x", "{folder}", "{folder}/text", "nonsense", "\u00e9" * 150)
WITH: dict[Key, dict[Key, object]] = {
    ("api", "certificate"): {("api", "listen"): "127.0.0.1:0"},
    ("api", "certificate_key"): {("api", "listen"): "127.0.0.1:0", ("api", "certificate"): "{folder}/text"},
    ("api", "trusted_proxies"): {("api", "listen"): "127.0.0.1:0"},
    ("cluster", "rest"): {("cluster", "backend"): "rest", ("cluster", "rest", "url"): "http://127.0.0.1:1"},
    ("acting", "helper"): {("acting", "mode"): "sudo"},
    ("acting", "tokens"): {("acting", "mode"): "token", ("cluster", "rest", "url"): "http://127.0.0.1:1"},
    ("training",): {("training", "every"): 86_400},
    ("notifications", "mail"): {("notifications", "mail", "server"): "127.0.0.1:9"},
    ("notifications", "mail", "user"): {("notifications", "mail", "password_file"): "{folder}/text"},
    ("notifications", "mail", "password_file"): {("notifications", "mail", "user"): "mirage"},
}
"""Settings that a key, or all keys of a section, require to count."""


def bounds_of(key: Key) -> tuple[float, ...]:
    """The least and the greatest value of a number."""
    schema: dict[str, Any] = Config.model_json_schema()
    at = schema
    for name in key:
        at = at["properties"][name]
        while "$ref" in at:
            at = schema["$defs"][at["$ref"].rpartition("/")[2]]
    at = next((each for each in at.get("anyOf", ()) if "maximum" in each), at)
    least = at.get("minimum", at.get("exclusiveMinimum", 0) + 1e-6 if "exclusiveMinimum" in at else None)
    return () if least is None else (least, at["maximum"])


def texts(text: str) -> dict[Key, object]:
    """Each key that takes any text with this one."""
    return {
        key: text if isinstance(value, str) else [text]
        for key, value in settings(Config())
        if isinstance(value, str | tuple) and key not in CHOSEN
    }


def numbers(which: int) -> dict[Key, object]:
    """Each number at one of its ends."""
    schema = {
        key: bounds_of(key) for key, value in settings(Config()) if not isinstance(value, str | tuple | bool)
    }
    return {key: ends[which] for key, ends in schema.items() if ends}


def beside(key: Key) -> dict[Key, object]:
    """Settings that a key requires to count."""
    found: dict[Key, object] = {}
    for length in range(1, len(key) + 1):
        found |= WITH.get(key[:length], {})
    return found


def written(folder: Path, keys: dict[Key, object]) -> Path:
    """A configuration file with these keys."""
    (folder / "empty").touch(mode=0o600)
    (folder / "text").write_text("text\n")
    (folder / "text").chmod(0o600)
    basics: dict[Key, object] = {
        ("service", "state"): "{folder}/state",
        ("service", "runtime"): "{folder}/run",
        ("cluster", "backend"): "simulated",
        ("cluster", "simulated", "trace"): "",
    }
    file = folder / "mirage.toml"
    lines = (f"{'.'.join(name)} = {spelled(value)}\n" for name, value in (basics | keys).items())
    file.write_text("".join(lines).replace("{folder}", str(folder)))
    return file


def spelled(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(spelled, value))}]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str | bool) else repr(value)


def built(config: Config, alive: Any, tenure: Any) -> DaemonService:
    """Build as the daemon does, with its actions right after the first cycle."""
    service = build(config, alive, tenure)
    if service.interface is not None:
        service.interface.start()
        service.interface.stop()
    ended = Event()
    ended.set()
    assert all(chore.every > 0 for chore in learning_chores(service, ended))
    return service


def started(file: Path) -> None:
    """Raises what keeps the daemon from starting."""
    handlers, level = logging.getLogger().handlers[:], logging.getLogger().level
    try:
        run_daemon(lambda: load_config(file), built, once=True)
    finally:
        logging.getLogger().handlers[:] = handlers
        logging.getLogger().setLevel(level)


def is_accepted(file: Path) -> bool:
    """Whether ``config check`` accepts it; it makes nothing."""
    before = sorted(file.parent.rglob("*"))
    try:
        check_command(str(file))
    except MirageError:
        return False
    finally:
        assert sorted(file.parent.rglob("*")) == before
    return True


def start_accepted(folder: Path, keys: dict[Key, object]) -> int:
    """Start with each accepted key, and with as many keys together as are accepted; return the number of those."""
    alone = {key: value for key, value in keys.items() if is_accepted(written(folder, beside(key) | {key: value}))}
    together: dict[Key, object] = {}
    for key, value in alone.items():
        more = beside(key) | together | {key: value}
        if any(more[other] != wanted for other, wanted in beside(key).items()):
            start(folder, beside(key) | {key: value})
        else:
            together = more
    if is_accepted(written(folder, together)):
        start(folder, together)
    else:
        for key, value in alone.items():
            start(folder, beside(key) | {key: value})
    return len(alone)


def start(folder: Path, keys: dict[Key, object]) -> None:
    """Have a daemon run one cycle in this directory as new."""
    try:
        started(written(folder, keys))
    except (Exception, SystemExit) as error:
        raise AssertionError(f"config check accepts it and the daemon does not start: {keys}") from error
    for made in (folder / "state", folder / "run", folder / "missing", *(folder / "here").iterdir()):
        shutil.rmtree(made, ignore_errors=True)


@pytest.fixture(autouse=True)
def in_a_directory_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text[:30])
def test_daemon_starts_with_texts_that_check_accepts(tmp_path: Path, text: str) -> None:
    assert 0 < start_accepted(tmp_path, texts(text)) < len(texts(text))


@pytest.mark.parametrize("which", [0, 1], ids=["least", "greatest"])
def test_daemon_starts_with_numbers_that_check_accepts(tmp_path: Path, which: int) -> None:
    assert start_accepted(tmp_path, numbers(which)) > 40


@pytest.mark.parametrize(
    ("key", "value"), [(key, value) for key, values in CHOSEN.items() for value in values], ids=str
)
def test_daemon_starts_with_parts_that_check_accepts(tmp_path: Path, key: Key, value: object) -> None:
    start_accepted(tmp_path, {key: value})
