"""Configuration: where values come from, which win, and how mistakes are named."""

from __future__ import annotations

import json
import os
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from mirage.bootstrap.policies import build_pacing, build_policy
from mirage.cli.main import app
from mirage.config.loading import Source, _validated, load_config, masked, settings
from mirage.config.model import Config
from mirage.config.places import Places, default_file, default_places
from mirage.control.clocks import Pacing
from mirage.control.dependencies import LoopSettings
from mirage.control.startplans import PlanBudget
from mirage.domain.errors import ConfigError
from mirage.store.opening import Retention

if TYPE_CHECKING:
    from collections.abc import Callable

Write = "Callable[[str], Path]"


@pytest.fixture(autouse=True)
def _nothing_from_outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in os.environ:
        if name.startswith(("MIRAGE_", "XDG_")) or name in ("STATE_DIRECTORY", "RUNTIME_DIRECTORY"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    def to_file(text: str, name: str = "mirage.toml") -> Path:
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        return file

    return to_file


def test_without_files_the_defaults_of_the_code_hold() -> None:
    config = Config()
    assert build_policy(config, rate=1.0) == LoopSettings(
        decision_seconds=30.0, plans=PlanBudget(), between_polls=True, queue_age=900, appraise=1_200
    )
    assert build_policy(config, rate=60.0).settle == 60 * LoopSettings().settle
    rare = Config.model_validate({"loop": {"interval": 3_600}})
    assert build_policy(rare, rate=1.0).appraise == 7_200, "at least one poll falls into that time"
    assert build_pacing(config) == Pacing(calm=300)
    sudo = Config.model_validate({"acting": {"mode": "sudo"}})
    assert (build_pacing(sudo), build_policy(sudo, rate=1.0).queue_age) == (Pacing(), 0), "it serves many users"
    assert Retention(**config.store.retention.model_dump()) == Retention()


def test_conf_d_that_cannot_be_listed_is_an_error(write, tmp_path: Path) -> None:
    file = write("[loop]\ninterval = 10\n")
    (tmp_path / "conf.d").symlink_to(tmp_path / "not-mounted")
    with pytest.raises(ConfigError, match=r"conf\.d"):
        load_config(file)
    (tmp_path / "conf.d").unlink()
    write("no directory", "conf.d")
    with pytest.raises(ConfigError, match=r"conf\.d"):
        load_config(file)


def test_default_file_that_leads_nowhere_is_an_error(tmp_path: Path) -> None:
    own = tmp_path / "mirage" / "mirage.toml"
    environ = {"XDG_CONFIG_HOME": str(tmp_path)}
    assert default_file(environ, 1_000) is None
    own.parent.mkdir()
    assert default_file(environ, 1_000) is None
    own.symlink_to(tmp_path / "not-mounted")
    found = default_file(environ, 1_000)
    assert found == own
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(found)


def test_environment_wins_over_conf_d_wins_over_the_file(write, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write("[loop]\ninterval = 10\nsettle = 11\njitter = 0.2\n[limits]\nlive_links = 3\n")
    write("[loop]\nsettle = 21\njitter = 0.3\n", "conf.d/10-site.toml")
    last = write("[loop]\njitter = 0.4\n", "conf.d/20-site.toml")
    monkeypatch.setenv("MIRAGE_LOOP__MARGIN", "2m")
    monkeypatch.setenv("MIRAGE_LIMITS__LIVE_LINKS", "5")
    monkeypatch.setenv("MIRAGE_CLUSTER__REST__URL", "http://127.0.0.1:1")
    monkeypatch.setenv("MIRAGE_API__ADMINS", '["root", "ops"]')
    loaded = load_config(file)
    loop = loaded.config.loop
    assert (loop.interval, loop.settle, loop.jitter, loop.margin) == (10, 21, 0.4, 120)
    assert loaded.config.limits.live_links == 5
    assert loaded.config.cluster.rest.url == "http://127.0.0.1:1"
    assert loaded.config.api.admins == ("root", "ops")
    assert loaded.origin(("loop", "interval")) == f"{file}:2"
    assert loaded.origin(("loop", "jitter")) == f"{last}:2"
    assert loaded.origin(("loop", "margin")) == "MIRAGE_LOOP__MARGIN"
    assert loaded.origin(("log", "level")) == "default"


def test_what_jobs_carry_in_their_environment_is_no_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MIRAGE_CHAIN_ID", "MIRAGE_LINK", "MIRAGE_HANDOVER_FILE", "MIRAGE_TASKS_STATE"):
        monkeypatch.setenv(name, "x")
    load_config()


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("[loop]\nintervall = 5\n", 2, "loop.intervall: no such key; did you mean interval?"),
        ("[lop]\n", 1, "lop: no such key; did you mean loop?"),
        ("\n[loop]\njitter = 0.9\n", 3, "loop.jitter: Input should be less than or equal to 0.5"),
        ("[loop]\ninterval = 0\n", 2, "loop.interval"),
        ("[loop]\ninterval = true\n", 2, "expected a duration"),
        ('[loop]\ninterval = "soon"\n', 2, "loop.interval: 'soon': expected a number with its unit"),
        ("[limits]\nlive_links = true\n", 2, "expected a number"),
        ('[chains]\naim = "often"\n', 2, "chains.aim: 'often': expected cheapest, no-interruption=90%"),
        ("loop = 5\n", 1, "loop: expected a section"),
        ('[cluster]\nbackend = "pbs"\n', 2, "cluster.backend: Input should be 'cli', 'rest', 'pyslurm'"),
        ("[cluster.rest]\nport = 5\n", 2, "cluster.rest.port: no such key"),
        ("[api]\nadmins = [1]\n", 2, "api.admins.0: Input should be a valid string"),
        ("[api\n", 1, "not TOML"),
        ("[loop]\ninterval = 0\njitter = 7\n", 2, "(1 more to fix after it)"),
    ],
)
def test_a_mistake_is_named_with_its_file_line_and_key(write, text: str, line: int, words: str) -> None:
    file = write(text)
    with pytest.raises(ConfigError) as raised:
        load_config(file)
    assert str(raised.value).startswith(f"{file}:{line}: ")
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        (
            "MIRAGE_LOOP__INTERVALL",
            "5",
            "MIRAGE_LOOP__INTERVALL: loop.intervall: no such key; did you mean interval?",
        ),
        ("MIRAGE_LOOP__INTERVAL", "-5", "MIRAGE_LOOP__INTERVAL: loop.interval: "),
        ("MIRAGE_LOPP__INTERVAL", "5", "MIRAGE_LOPP__INTERVAL: there is no section 'lopp'"),
        ("MIRAGE_API__ADMINS", "[", "environment: "),
    ],
)
def test_a_mistake_in_the_environment_is_named(
    name: str, value: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError) as raised:
        load_config()
    assert str(raised.value).startswith(words)


def test_a_file_that_is_named_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere.toml: cannot be read"):
        load_config(tmp_path / "nowhere.toml")


@given(
    st.dictionaries(
        st.sampled_from([*Config.model_fields, "other"]),
        st.dictionaries(
            st.sampled_from(["interval", "url", "x", "rest"]), st.integers() | st.text() | st.booleans()
        ),
    )
)
def test_any_document_is_a_configuration_or_a_named_mistake(document: dict[str, dict[str, object]]) -> None:
    try:
        config = _validated((Source("f", document, "\n"),), default_places({"HOME": "/h"}, 1_000))
    except ConfigError as error:
        assert str(error).startswith("f: ")  # noqa: PT017
    else:
        assert config.store.url


def test_a_users_own_file_is_found(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path)}
    assert default_file(environ, 1_000) is None
    own = tmp_path / ".config/mirage/mirage.toml"
    own.parent.mkdir(parents=True)
    own.touch()
    assert default_file(environ, 1_000) == own


def test_store_and_socket_follow_the_folders(write) -> None:
    config = load_config(write('[service]\nstate = "/s"\nruntime = "/r"\n')).config
    assert config.store.url == "sqlite:////s/mirage.db"
    assert config.api.socket == "/r/api.sock"


@pytest.mark.parametrize(
    ("places", "socket"),
    [
        (Places(Path("/h/state"), Path("/h/state")), "/s/api.sock"),
        (Places(Path("/var/lib/mirage"), Path("/run/mirage")), "/run/mirage/api.sock"),
    ],
)
def test_state_alone_moves_a_users_socket_but_not_the_sites(places: Places, socket: str) -> None:
    config = _validated((Source("f", {"service": {"state": "/s"}}, "\n"),), places)
    assert config.api.socket == socket


def test_show_says_values_and_origins_and_hides_passwords(write) -> None:
    file = write('[store]\nurl = "postgresql://mirage:se:cr@et@db/mirage"\n')
    shown = CliRunner().invoke(app, ["config", "show", "--config", str(file)])
    assert shown.exit_code == 0
    assert "se:cr" not in shown.stdout
    assert re.search(rf'store.url +"?= "postgresql://mirage:\*\*\*@db/mirage" +# {file}:2', shown.stdout)
    document = json.loads(CliRunner().invoke(app, ["config", "show", "--json", "--config", str(file)]).stdout)
    assert document["loop.interval"] == {"value": 60, "from": "default"}
    assert set(document) == {".".join(key) for key, _ in settings(Config())}


def test_check_says_ok_or_what_is_wrong(write) -> None:
    good = CliRunner().invoke(app, ["config", "check", str(write("[loop]\ninterval = 30\n"))])
    assert good.exit_code == 0
    file = write('[loop]\npredictor = "oracel"\n')
    bad = CliRunner().invoke(app, ["config", "check", "--json", str(file)])
    assert bad.exit_code == 1
    answer = json.loads(bad.stdout)
    assert answer["problem"].startswith(f"{file}:2: loop.predictor: no predictor 'oracel'")


@pytest.mark.parametrize("value", ["plain", "http://host:80/x", 5, None])
def test_only_passwords_are_masked(value: object) -> None:
    assert masked(value) == value


SAMPLE = Path(__file__).resolve().parents[2] / "deploy" / "mirage.toml"


def test_the_sample_has_every_key_with_its_default() -> None:
    """Each key stands there as a comment; without the comment signs the file says what holds without it."""
    text = re.sub(r"^#(?=[a-z_]+ = )", "", SAMPLE.read_text(), flags=re.MULTILINE)
    given = Config.model_validate(tomllib.loads(text))
    assert given == Config()
    missing = {".".join(key) for key, value in settings(Config()) if value is not None} - set(
        _keys(tomllib.loads(text))
    )
    assert not missing


def _keys(document: dict[str, object], above: str = "") -> list[str]:
    found = []
    for key, value in document.items():
        found += _keys(value, f"{above}{key}.") if isinstance(value, dict) else [above + key]
    return found


def test_the_defaults_of_chains_are_those_of_a_chain() -> None:
    from dataclasses import fields, replace

    from mirage.api.routes.chaindefinition import _CHAIN
    from mirage.bootstrap.interface import chain_defaults
    from mirage.domain.chain import Chain, Steering

    least = {"chain_id": "c", "name": "n", "owner": "o", "request": {"name": "n", "user": "o", "limit": 60}}
    plain, configured = (
        _CHAIN.validate_python(least),
        _CHAIN.validate_python(least | chain_defaults(Config().chains)),
    )
    assert replace(plain, steering=Steering.AUTO) == configured
    assert set(chain_defaults(Config().chains)) <= {field.name for field in fields(Chain)}


def test_text_in_place_of_a_list_is_named_in_the_words_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "mirage.toml"
    file.write_text('[loop]\nshadows = "quantile"\n')
    with pytest.raises(ConfigError, match=r"mirage.toml:2: loop.shadows: expected a list"):
        load_config(file)
