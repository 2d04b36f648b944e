"""Secrets stay where they are kept: not in logs, answers, the journal, other programs' arguments, others' jobs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from daemon.daemons import wait_until
from daemon.sites import MAIN
from fake_slurm.fake import Fault
from security.secretsite import ASKED, FILES, OF_THE_DAEMON, OF_THE_OWNER, PRIVATE, SecretSite, canary, secret_site

from mirage.allocation.inference.serving.upstream import Upstream
from mirage.backends.restclient import RestAddress
from mirage.domain.errors import MirageError
from mirage.domain.texts import without_secrets
from mirage.store.location import locate
from mirage.store.opening import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator

OPENAPI = Path(__file__).resolve().parents[2] / "docs" / "openapi.json"
NEVER_ENDS = ("/api/v1/events", "/api/v1/agent/order")
KEPT = {
    **OF_THE_DAEMON,
    **{f"owner's {name}": text for name, text in OF_THE_OWNER.items()},
    **FILES,
    "own": PRIVATE,
}

pytestmark = [
    # A killed daemon leaves queries to the fake Slurm unfinished.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecretSite]:
    with secret_site(tmp_path_factory.mktemp("secrets")) as made:
        yield made


@pytest.fixture(scope="module")
def answers(site: SecretSite) -> str:
    """Everything that the API says to an administrator on the socket and to strangers on the network."""
    paths = [path for path, methods in json.loads(OPENAPI.read_text())["paths"].items() if "get" in methods]
    told = []
    for path in paths:
        if path not in NEVER_ENDS:
            place = path.replace("{chain_id}", "svc").replace("{job_id}", "1").replace("{replay_id}", "none")
            told += [site.ask("GET", place), site.ask_as_administrator(place)]
    assert '"svc"' in "".join(told)
    return "".join(told)


@pytest.fixture(scope="module")
def attacked(site: SecretSite) -> SecretSite:
    """After requests that bring a secret along in every place where a client can put one, and after failures."""
    for headers in (
        {"Authorization": f"Bearer {ASKED}"},
        {"Authorization": f"Basic {ASKED}"},
        {"Cookie": f"mirage_session={ASKED}"},
        {"X_SLURM_USER_TOKEN": ASKED, "X_SLURM_USER_NAME": "root"},
    ):
        for method, path in (
            ("GET", "/api/v1/chains"),
            ("POST", "/api/v1/tokens"),
            ("DELETE", "/api/v1/chains/svc"),
        ):
            site.ask(method, path, **headers)
    site.ask("POST", "/login", f"token={ASKED}", Content_Type="application/x-www-form-urlencoded")
    site.ask("GET", f"/enter?ticket={ASKED}")
    site.ask("POST", "/api/v1/chains", '{"request": {"batch": {"text": "' + ASKED, Content_Type="application/json")
    for command in ("sbatch", "squeue", "sinfo"):
        for kind in (Fault.GARBAGE, Fault.CUT_OFF, Fault.REFUSE, Fault.UNREACHABLE):
            site.site.slurm.fault(command, kind)
    submitted = len(site.site.tags())
    wait_until(lambda: len(site.site.tags()) > submitted, "another submission after the faults")
    return site


def found_in(text: str, secrets: dict[str, str]) -> list[str]:
    return [name for name, secret in secrets.items() if secret in text]


def test_answers_hold_no_secret(answers: str) -> None:
    assert found_in(answers, KEPT) == []


def test_logs_hold_no_secret_at_the_most_talkative_level(attacked: SecretSite) -> None:
    log = attacked.log.read_text()
    assert "level=debug" in log
    assert "webhook" in log, "the message that could not be sent is logged"
    assert found_in(log, KEPT | {"brought along": ASKED}) == []


def test_the_store_holds_tokens_only_as_hashes_and_no_secret_in_the_journal(attacked: SecretSite) -> None:
    made = attacked.site.mirage("tokens", "create", "--json")
    token = json.loads(made.stdout)["token"]
    stored = attacked.stored()
    assert "svc" in stored
    assert found_in(stored, KEPT | {"brought along": ASKED, "a token of ours": token}) == []
    assert token not in attacked.log.read_text()


def test_jobs_get_their_owners_environment_and_nothing_of_the_daemons(attacked: SecretSite) -> None:
    submissions = [call for call in attacked.site.slurm.calls if call.command == "sbatch"]
    assert submissions
    for call in submissions:
        assert call.environment.get("WANDB_API_KEY") == PRIVATE, "what its owner gave it is the job's"
        given = json.dumps(call.environment) + call.stdin
        assert found_in(given, OF_THE_DAEMON | OF_THE_OWNER | FILES | {"brought along": ASKED}) == []


def test_arguments_that_every_user_sees_hold_no_secret(attacked: SecretSite) -> None:
    for call in attacked.site.slurm.calls:
        assert found_in(" ".join(call.arguments), KEPT) == [], call.command


def test_the_daemons_processes_show_no_secret(tmp_path: Path) -> None:
    with secret_site(tmp_path) as made:
        pass
    assert any("daemon" in line for line in made.commands)
    assert found_in(" ".join(made.commands), KEPT) == []


# Passwords within addresses

PASSWORD = canary("password")
URLS = (
    f"postgresql://mirage:{PASSWORD}@127.0.0.1:1/mirage",
    f"postgresql://mirage@127.0.0.1:1/mirage?password={PASSWORD}",
    f"postgresql://mirage:{PASSWORD}@127.0.0.1:1/mirage?sslpassword={PASSWORD}",
)


def mirage(*words: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", MAIN, *words],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize("url", URLS)
def test_a_server_that_cannot_be_reached_is_named_without_its_password(url: str) -> None:
    with pytest.raises(MirageError) as raised:
        open_store(url)
    assert "127.0.0.1" in str(raised.value)
    assert PASSWORD not in str(raised.value)
    assert PASSWORD not in locate(url).shown


@pytest.mark.parametrize(
    "words",
    [
        *(("config", "show"), ("config", "show", "--json"), ("doctor",), ("doctor", "--json"), ("db", "status")),
        *(("daemon", "--once"), ("db", "backup", "none"), ("db", "upgrade")),
    ],
    ids=" ".join,
)
def test_commands_show_no_password_of_the_store(tmp_path: Path, words: tuple[str, ...]) -> None:
    places = {"MIRAGE_SERVICE__STATE": str(tmp_path / "state"), "MIRAGE_SERVICE__RUNTIME": str(tmp_path / "run")}
    told = mirage(
        *words, MIRAGE_STORE__URL=URLS[1], MIRAGE_LOG__LEVEL="debug", MIRAGE_CLUSTER__TIMEOUT="2", **places
    )
    assert told
    assert PASSWORD not in told


@pytest.mark.parametrize(
    "read",
    [
        lambda: RestAddress.parse(f"http://mirage:{PASSWORD}@head:6820"),
        lambda: Upstream(f"ftp://mirage:{PASSWORD}@head:6820"),
        lambda: locate(f"mysql://mirage:{PASSWORD}@head/x"),
        lambda: locate(f"postgresql://mirage:{PASSWORD}@head:port/x"),
    ],
)
def test_an_address_that_is_refused_is_told_without_its_password(read: object) -> None:
    with pytest.raises((MirageError, ValueError)) as raised:
        read()  # type: ignore[operator]
    assert PASSWORD not in str(raised.value)


@pytest.mark.parametrize("fault", ["[store]\nurl = ['{}']\n", "[store]\nurll = '{}'\n", "[store]\nurl = '{}\n"])
def test_a_configuration_that_is_wrong_is_told_without_its_values(tmp_path: Path, fault: str) -> None:
    file = tmp_path / "mirage.toml"
    file.write_text(fault.format(URLS[0]))
    told = mirage("config", "check", str(file))
    assert str(file) in told
    assert PASSWORD not in told


def test_what_is_no_secret_stays_readable() -> None:
    for text in ("http://head:6820", "postgresql://mirage@head/mirage", "unix:/run/slurmrestd.sock", "a@b"):
        assert without_secrets(text) == text
