"""The doctor's and the log's reports on a certificate, and the doctor's on files with secrets."""

from __future__ import annotations

import os
import shutil
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from api_world import world
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from mirage.api.listening import Listening, log_validity
from mirage.api.server import ApiServer
from mirage.config.model import ApiSection, ClusterConnectionSection, Config, JwtSection, RestSection, StoreSection
from mirage.daemon.doctor.credentials import check_certificate, check_port, check_secrets, check_transports

if TYPE_CHECKING:
    from collections.abc import Iterator

    from api_world import World

__all__ = ["world"]

DAYS = [(-400, -1, "fail"), (-1, 13, "warn"), (-1, 15, "ok"), (1, 400, "fail")]


def pem(start: int, end: int) -> bytes:
    """A private key and its certificate, valid from and until these numbers of days from now."""
    key, now = generate_private_key(SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, now + timedelta(start), now + timedelta(end))
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return secret + made.sign(key, SHA256()).public_bytes(Encoding.PEM)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A directory that every user may enter."""
    made = Path(tempfile.mkdtemp(prefix="mirage-secrets-", dir="/tmp"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


def config(file: Path, key: str = "", jwt: str = "") -> Config:
    section = {"listen": "0.0.0.0:8421", "certificate": str(file), "certificate_key": key}
    return Config(api=ApiSection(**section, jwt=JwtSection(key=jwt)))


@pytest.mark.parametrize(("start", "end", "level"), DAYS)
def test_certificate_is_judged_by_its_time(
    folder: Path, start: int, end: int, level: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = folder / "site.pem"
    file.write_bytes(pem(start, end))
    (found,) = check_certificate(config(file))
    assert (str(found.level), found.check) == (level, "certificate")
    log_validity(str(file))
    assert ("event=certificate_invalid" in caplog.text) == (level != "ok")


def test_certificate_below_an_expired_one_is_expired(folder: Path) -> None:
    (folder / "site.pem").write_bytes(pem(-1, 100) + pem(-9, -1))
    (found,) = check_certificate(config(folder / "site.pem"))
    assert str(found.level) == "fail"


def test_certificate_that_cannot_be_read_is_a_warning(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    (folder / "site.pem").write_text("no certificate")
    for file in (folder / "site.pem", folder / "missing.pem"):
        (found,) = check_certificate(config(file))
        assert str(found.level) == "warn"
        caplog.clear()
        log_validity(str(file))
        assert "event=certificate_invalid" in caplog.text


def test_certificate_without_an_address_is_not_looked_at() -> None:
    assert list(check_certificate(Config())) == []
    assert list(check_secrets(Config())) == []


@pytest.mark.parametrize(
    ("mode", "level"), [(0o400, "ok"), (0o640, "ok"), (0o644, "fail"), (0o602, "fail"), (0o604, "fail")]
)
def test_secret_open_to_all_users_is_a_failure(folder: Path, mode: int, level: str) -> None:
    for name in ("jwt.key", "tls.key"):
        (folder / name).touch()
        (folder / name).chmod(mode)
    levels = [str(f.level) for f in check_secrets(config(folder / "c", f"{folder}/tls.key", f"{folder}/jwt.key"))]
    assert levels == ([level] if level == "ok" else [level] * 2)


def test_secret_in_a_closed_directory_is_not_open(folder: Path) -> None:
    (folder / "jwt.key").touch(0o644)
    folder.chmod(0o700)
    assert [str(f.level) for f in check_secrets(config(folder / "c", jwt=f"{folder}/jwt.key"))] == ["warn", "ok"]


def test_certificate_file_with_its_key_is_a_secret(folder: Path) -> None:
    (folder / "both.pem").write_bytes(pem(-1, 100))
    (folder / "both.pem").chmod(0o644)
    (found,) = check_secrets(config(folder / "both.pem"))
    assert str(found.level) == "fail"
    assert found.found.startswith("api.certificate:")


def test_server_with_an_expired_certificate_logs_it(
    world: World, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "old.pem").write_bytes(pem(-400, -1))
    listening = Listening.of("127.0.0.1:0", str(folder / "old.pem"))
    server = ApiServer(world.service, folder / "tls.sock", listening)
    server.start()
    server.stop()
    assert "event=certificate_invalid" in caplog.text
    assert "it expired at" in caplog.text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root listens as another user")
@pytest.mark.parametrize(("account", "levels"), [(1, []), (2, ["fail"])])
def test_port_that_another_user_has_taken_is_found(account: int, levels: list[str]) -> None:
    os.seteuid(1)
    try:
        taken = Listening.of("127.0.0.1:0").bind()
    finally:
        os.seteuid(0)
    with taken:
        for host in ("127.0.0.1", "0.0.0.0", "localhost"):
            api = ApiSection(listen=f"{host}:{taken.getsockname()[1]}")
            assert [str(found.level) for found in check_port(Config(api=api), account)] == levels


@pytest.mark.parametrize(
    ("rest", "store", "found"),
    [
        ("", "sqlite:////tmp/x.db", 0),
        ("http://127.0.0.1:6820", "postgresql:///mirage?host=/run/postgresql", 0),
        ("unix:/run/slurmrestd.socket", "postgresql://mirage@localhost/mirage", 0),
        ("https://slurm.example.org", "postgresql://mirage@db.example.org/mirage?sslmode=verify-full", 0),
        ("http://slurm.example.org:6820", "postgresql://mirage@db.example.org/mirage", 2),
        ("http://10.1.0.2:6820", "postgresql://mirage:secret@10.1.0.3/mirage?sslmode=require", 2),
    ],
)
def test_server_elsewhere_that_proves_nothing_is_found(rest: str, store: str, found: int) -> None:
    config = Config(cluster=ClusterConnectionSection(rest=RestSection(url=rest)), store=StoreSection(url=store))
    findings = list(check_transports(config))
    assert [str(each.level) for each in findings] == ["warn"] * found
    assert "secret" not in str(findings)
